"""Several ways to change one cluster as one backend: whoever runs the engines, then stores and engines themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pdops.actuate.backend import Backend, Capabilities, Effect, Fence, Params, Seen, State
from pdops.actuate.fences import FenceFile
from pdops.errors import ActionError, FencedError


class Controls(Protocol):
    """A part of a cluster that can be asked and changed by itself."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def capabilities(self) -> Capabilities:
        """Return what it can do here and now."""
        ...

    def values(self) -> Mapping[str, Seen]:
        """Return what it sees; what does not answer is unknown. Raises nothing."""
        ...

    def apply(self, action: str, params: Params) -> Effect:
        """Do one of its actions. Raises as `Backend.apply` does, fences aside."""
        ...


class JoinedBackend:
    """A backend with further controls; the first that offers an action does it.

    Args:
        base: the backend.
        controls: asked in this order after it.
        fences: keeps older runs away from the controls, which know no fences.
    """

    def __init__(self, base: Backend, controls: Sequence[Controls], fences: FenceFile) -> None:
        self._base, self._controls, self._fences = base, tuple(controls), fences

    @property
    def name(self) -> str:
        """What people call it: as without the controls, so that a plan does not depend on their order."""
        return self._base.name

    def capabilities(self) -> Capabilities:
        """Return what any of them can do; a reason is that of the last which knows the action."""
        asked = [self._base.capabilities(), *(c.capabilities() for c in self._controls)]
        offered = frozenset[str]().union(*(c.offered for c in asked))
        missing: dict[str, str] = {}
        for one in asked:
            missing |= one.missing
        missing = {action: why for action, why in missing.items() if action not in offered}
        return Capabilities(offered, missing, asked[0].otherwise)

    def observe(self) -> State:
        """Return what all of them see; what one does not know another may."""
        state = self._base.observe()
        values = dict(state.values)
        for controls in self._controls:
            for subject, seen in controls.values().items():
                if subject not in values or not values[subject].known:
                    values[subject] = seen
        return State(at_s=state.at_s, values=values)

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:
        """Do one action. See `Backend.apply`."""
        if self._base.capabilities().refusal(action) is None:
            return self._base.apply(action, params, fence)
        for controls in self._controls:
            if controls.capabilities().refusal(action) is None:
                with self._fences.alone(fence.number) as first:
                    if not first:
                        raise FencedError(
                            "another run has been here since", where=controls.name, hint="see `pdops runbook log`"
                        )
                    return controls.apply(action, params)
        raise ActionError(
            f"{action} is not offered", where=self.name, why=self.capabilities().refusal(action) or "",
            hint="plan something else",
        )  # fmt: skip
