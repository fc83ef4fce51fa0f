"""The fault a person switches on at the proxy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

MODES = ("none", "hold", "abandon", "drop-params")


@dataclass(slots=True)
class Fault:
    """The fault that is on.

    - hold: requests wait between prefill's answer and the call of decode until the mode changes
    - abandon: `fraction` of the requests end after prefill, as if their client had gone
    - drop-params: decode is called without the KV address
    """

    mode: str = "none"
    fraction: float = 0.0
    held: int = 0
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _debt: float = 0.0

    def switch(self, wanted: Any) -> None:
        """Take `{"mode": ..., "fraction": ...}`; leaving `hold` releases what is held.

        Raises:
            ValueError: it is not one.
        """
        if not isinstance(wanted, dict) or wanted.get("mode") not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}")
        fraction = wanted.get("fraction", 1.0)
        if not isinstance(fraction, int | float) or not 0.0 < fraction <= 1.0:
            raise ValueError("fraction is above 0 and at most 1")
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
        if self._debt < 1.0:
            return False
        self._debt -= 1.0
        return True

    def shown(self) -> dict[str, object]:
        """Return what is on, and how many requests are held."""
        return {"mode": self.mode, "fraction": self.fraction, "held": self.held}
