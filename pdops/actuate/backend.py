"""What every backend that changes a cluster offers: what it can do, what is there, and one way to set it.

A state is a flat table: every value has a subject, and every action sets one subject to one value. So a plan can name what
it found and what it wants, and whoever carries it out can tell "already so", "still as planned" and "somebody else moved
it" apart without knowing the action.

Subjects::

    pool/ROLE/replicas        engines of a role that run, as a number
    pool/ROLE/owner           who else sets its size; an empty text is nobody
    pool/ROLE/rollout         whether it is inside a rollout
    pool/ROLE/free            how many more engines fit
    pool/ROLE/disruptions     how many engines may be taken out now, as a budget of the cluster says
    worker/ID/process         running, frozen, stopped or absent
    worker/ID/serving         whether it answers as its role must
    worker/ID/routed          whether the router knows it
    worker/ID/cordoned        whether the router keeps new requests away from it
    worker/ID/starts          how often it was started; a restart sets one more
    worker/ID/inflight        requests in it
    worker/ID/role            prefill, decode, router or kvstore
    worker/ID/version         of its engine
    store/ID/process          as for a worker
    store/ID/starts           as for a worker
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pdops.model.frame import Probe

Value = str | int | float | bool | None
Params = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Seen:
    """One value, where it was read, and why it is None when it is not known."""

    value: Value
    source: str
    why: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a backend sees at one moment (Unix seconds), by subject."""

    at_s: float
    values: Mapping[str, Seen] = field(default_factory=dict)

    def get(self, subject: str) -> Seen:
        """Return what is known of a subject; a subject nobody reads is unknown, not absent."""
        return self.values.get(subject, Seen(None, "", f"the backend does not read {subject}"))

    def workers(self, role: str | None = None) -> tuple[str, ...]:
        """Return the ids of the workers, of one role or of all, sorted."""
        found = [
            subject.split("/")[1]
            for subject, seen in self.values.items()
            if subject.startswith("worker/") and subject.endswith("/role") and (role is None or seen.value == role)
        ]
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Actions a backend offers, and for those it does not, why; `otherwise` is why for all that are not named."""

    offered: frozenset[str]
    missing: Mapping[str, str] = field(default_factory=dict)
    otherwise: str = "the backend does not know it"

    def refusal(self, action: str) -> str | None:
        """Return why an action is not offered, or None when it is."""
        if action in self.offered:
            return None
        return self.missing.get(action, self.otherwise)


@dataclass(frozen=True, slots=True)
class Fence:
    """Who acts: a run and the number it got when it was taken over last. A backend turns lower numbers away."""

    run: str
    number: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What an action did. `changed` is False when it was so already; `probes` are what it asked on the way."""

    changed: bool
    detail: str = ""
    probes: tuple[Probe, ...] = ()


class Backend(Protocol):
    """One way to change a cluster."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def capabilities(self) -> Capabilities:
        """Return what it can do here and now, found by asking, not by version."""
        ...

    def observe(self) -> State:
        """Return what is there. Never raises for a part that does not answer: that part is unknown."""
        ...

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:
        """Set what the action sets; what is so already is no error. Bounded in time.

        Raises:
            ActionError: it could not be done.
            BusyError: somebody else is changing it; nothing was done, and later it may be.
            FencedError: the fence is older than one seen before; nothing was done.
        """
        ...
