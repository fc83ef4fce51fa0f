"""Look at live targets for as long as something goes on, from the thread that acts."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from pdops.cli.inputs import Inputs, live_source
from pdops.clock import WallClock
from pdops.errors import PdopsError, UnreachableError, UsageError

if TYPE_CHECKING:
    from pdops.model.report import Report
    from pdops.model.view import View
    from pdops.sources.base import Source

_PATIENCE_S = 60.0
"""Beyond the time that is watched anyway, the longest to wait for a first answer, and for the next when one is late."""
_LATE_INTERVALS = 3.0
"""A look that is older says nothing about now; what a scrape is allowed before it counts as stale."""
_LATE_LEAST_S = 12.0
"""And at least this old, as targets that time out make a round of looks longer."""
_CLOCK = WallClock()


class Looker:
    """Reads a live source in a thread of its own.

    Args:
        inputs: the source options.
        watch_s: how long targets are watched before the first answer, in seconds.

    Raises:
        UsageError: the options name no live source.
    """

    def __init__(self, inputs: Inputs, watch_s: float) -> None:
        if inputs.kind() not in ("live", "prometheus"):
            raise UsageError("only a live cluster can be changed", hint="give -c pdops.yaml")
        from pdops.history.ring import Ring

        self._source: Source = live_source(inputs, follow=True)
        self._watch_s = watch_s
        window_s = min(60.0, max(watch_s, 3 * self._source.interval_s))
        self._ring = Ring(self._source.cluster, interval_s=self._source.interval_s, window_s=window_s)
        self._frame, self._ready, self._stop = threading.Condition(), threading.Event(), threading.Event()
        self._error: PdopsError | None = None
        self._newest_s = self._heard_s = 0.0
        self._late_s = max(_LATE_INTERVALS * self._source.interval_s, _LATE_LEAST_S)
        self._judged: tuple[float, View, Report] | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read()), name="pdops-look", daemon=True)

    def __enter__(self) -> Looker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=2 * self._source.interval_s + 10.0)

    @property
    def ended(self) -> bool:
        """Whether nothing is read any more, so that only another one sees anything."""
        return self._error is not None

    def look(self) -> tuple[View, Report]:
        """Return what is seen now and what the diagnosis makes of it; what was seen long ago is waited past, never given.

        Raises:
            UnreachableError: nothing can be read, or nothing can be read any more.
        """
        from pdops.diagnose.engine import diagnose

        if not self._ready.wait(self._watch_s + _PATIENCE_S) or self._error is not None:
            raise self._error or UnreachableError("no target answered in time", hint="check addresses and ports")
        with self._frame:
            self._frame.wait_for(lambda: self._error is not None or self._recent(), _PATIENCE_S)
            if self._error is not None:
                raise self._error
            if not self._recent():
                raise UnreachableError("targets are not read any more", hint="resume the run once they can be")
            if self._judged is None or self._judged[0] != self._newest_s:
                view = self._ring.view()
                self._judged = (self._newest_s, view, diagnose(view))
            return self._judged[1], self._judged[2]

    def _recent(self) -> bool:
        return _CLOCK.monotonic() - self._heard_s <= self._late_s

    async def _read(self) -> None:
        first_s: float | None = None
        try:
            async for frame in self._source.frames():
                with self._frame:
                    self._ring.cluster = self._source.cluster
                    self._ring.add(frame)
                    self._ring.take_notes(self._source.notes)
                    self._newest_s, self._heard_s = frame.at_s, _CLOCK.monotonic()
                    self._frame.notify_all()
                first_s = frame.at_s if first_s is None else first_s
                if frame.at_s - first_s >= self._watch_s:
                    self._ready.set()
                if self._stop.is_set():
                    break
        except PdopsError as error:
            self._error = error
        finally:
            with self._frame:
                if self._error is None:
                    self._error = UnreachableError("targets are not read any more", hint="resume the run to read again")
                self._frame.notify_all()
            self._ready.set()
            await self._source.aclose()
