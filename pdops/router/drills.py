"""Faults a person switches on to see what the rest of the cluster does; only where drills are allowed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pdops.router.settings import RouterError

_HINT = 'for example {"mode": "abandon", "fraction": 0.5}; {"mode": "none"} ends it'
MODES = ("none", "hold", "abandon", "drop-params")


@dataclass(slots=True)
class Drill:
    """The fault that is on.

    - hold: requests wait between prefill's answer and the call of decode until the mode changes
    - abandon: `fraction` of the requests end after prefill, and nobody tells prefill
    - drop-params: decode is called without the KV address, as a faulty router would
    """

    mode: str = "none"
    fraction: float = 1.0
    held: int = 0
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _debt: float = 0.0

    def switch(self, wanted: object) -> None:
        """Take `{"mode": ..., "fraction": ...}`; leaving `hold` releases what is held.

        Raises:
            RouterError: it is not one.
        """
        if not isinstance(wanted, dict) or not isinstance(wanted.get("mode"), str) or wanted["mode"] not in MODES:
            raise RouterError("not a drill", why=f"mode is one of {', '.join(MODES)}", hint=_HINT)
        if unknown := set(wanted) - {"mode", "fraction"}:
            raise RouterError("not a drill", why=f"unknown key {sorted(map(str, unknown))[0]!r}", hint=_HINT)
        fraction = wanted.get("fraction", 1.0)
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0.0 < fraction <= 1.0:
            raise RouterError("not a drill", why="fraction is above 0 and at most 1", hint=_HINT)
        self.mode, self.fraction, self._debt = wanted["mode"], float(fraction), 0.0
        if self.mode == "hold":
            self._released.clear()
        else:
            self.release()

    def release(self) -> None:
        """Let go what is held."""
        self._released.set()

    async def hold(self) -> None:
        """Wait while requests are held."""
        if self.mode != "hold":
            return
        self.held += 1
        try:
            await self._released.wait()
        finally:
            self.held -= 1

    def abandons(self) -> bool:
        """Say whether this request is one of those to abandon; spread evenly, not drawn."""
        if self.mode != "abandon":
            return False
        self._debt += self.fraction
        # Sums of fractions such as 0.1 fall short of one by a rounding error.
        if self._debt < 1.0 - 1e-9:
            return False
        self._debt -= 1.0
        return True

    def shown(self) -> dict[str, object]:
        """Return what is on, and how many requests are held."""
        return {"mode": self.mode, "fraction": self.fraction, "held": self.held}
