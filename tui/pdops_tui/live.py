"""A live source, read and judged in the background."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pdops.clock import Clock, WallClock
from pdops.errors import UnreachableError
from pdops.history.ring import Ring
from pdops.sources.base import Source
from pdops_tui.published import JOIN_S, Judge, Published
from pdops_tui.snapshot import Command
from pdops_tui.tape import Deck

_REST = 2.0
"""A judgement that takes long is followed by a pause of this many times its length, so that reading goes on."""
_DRAWN_FIRST_S = 0.25


class LiveFeed(Published):
    """Read a Source in a thread with an event loop of its own; judge in another, so that reading never waits for it.

    Without new frames the View ages, so data goes STALE on the screen when the source itself hangs.

    Args:
        source: what to read; closed when the feed stops.
        judge: makes a Report of a View.
        diagnose_every_s: seconds between two judgements, more when one takes long.
        label: what the header calls the source.
        clock: where durations are read.
    """

    def __init__(
        self,
        source: Source,
        judge: Judge,
        *,
        diagnose_every_s: float = 1.0,
        label: str = "live",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(label, judge)
        self._live = source
        self._every_s = diagnose_every_s
        self._clock = clock or WallClock()
        self._ring = Ring(source.cluster, interval_s=source.interval_s)
        self._deck = Deck()
        self._wish: asyncio.Future[None] | None = None
        self._heard_s: float | None = None
        self._frame_at_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = asyncio.Event()
        self._done: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pdops-live-feed", daemon=True)
        if source.cluster.workers:
            # Whose answers are waited for is there to be seen while they are.
            self._asking = True
            self.publish(self._ring.view(self._clock.now()))

    def start(self) -> None:
        """Begin to read; until the first frame the newest state is the inventory, with nothing known of it."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Stop reading, close the source and wait for the thread; may be called twice."""
        if self._loop is not None and self._done is not None and self._thread.is_alive():
            # The loop may end by itself between the question and the call.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join(JOIN_S)

    def control(self, command: Command) -> None:
        """Record, stop recording, or judge by another promise; wishes about a replay are ignored."""
        if command.action in ("record", "stop_recording", "promise") and self._loop is not None:
            # The loop may have ended by itself.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._obey, command)

    def _obey(self, command: Command) -> None:
        if command.action == "promise":
            self._slo = command.slo
            self._ring.cluster = self.promised(self._live.cluster)
            self._asked.set()
            self._show()
            return
        self._wish = asyncio.ensure_future(self._tape(command))

    async def _tape(self, command: Command) -> None:
        if command.action == "record":
            facts = self._ring.view().facts
            await self._deck.start(command.text, self._live.cluster, interval_s=self._live.interval_s, facts=facts)
        else:
            await self._deck.stop()
        self._show()

    def _show(self) -> None:
        """Publish what was seen last once more, with what a person asked for."""
        if self._latest is not None:
            view = self._latest.view
            slo = self.promised(self._live.cluster).slo
            self.publish(replace(view, cluster=replace(view.cluster, slo=slo)), taping=self._deck.state)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:  # noqa: BLE001  what ends this thread must reach the person, who looks at another one
            self.failed(error)
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        tasks = [asyncio.create_task(self._guarded(part)) for part in (self._read, self._judge_often, self._age)]
        try:
            await self._done.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._wish is not None:
                await asyncio.gather(self._wish, return_exceptions=True)
            await self._deck.stop()
            self._show()
            await self._live.aclose()

    async def _guarded(self, part: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await part()
        except Exception as error:  # noqa: BLE001  any way a source can break must be shown, with its last data aging
            self.failed(error)
            if self._asking:
                # It ends where it began, and there is nothing to show.
                self._latest = None
            self._show()

    async def _read(self) -> None:
        async for frame in self._live.frames():
            # A source that discovers its workers knows more of them with every look.
            self._ring.cluster = self.promised(self._live.cluster)
            self._ring.add(frame)
            self._deck.add(frame)
            self._ring.take_notes(self._live.notes)
            self._heard_s, self._frame_at_s, self._asking = self._clock.monotonic(), frame.at_s, False
            self.publish(self._ring.view(), taping=self._deck.state)
        raise UnreachableError("the source ended", where=self._source, hint="start it again")

    async def _age(self) -> None:
        interval = self._live.interval_s
        while True:
            await asyncio.sleep(interval)
            if self._heard_s is None:
                continue
            silent = self._clock.monotonic() - self._heard_s
            if silent > 1.5 * interval:
                self.publish(self._ring.view(self._frame_at_s + silent), taping=self._deck.state)

    async def _judge_often(self) -> None:
        loop = asyncio.get_running_loop()
        while self._heard_s is None or self._latest is None:
            await asyncio.sleep(min(0.05, self._every_s))
        # The first judgement loads every check, and the numbers should be on the screen before.
        await asyncio.sleep(min(_DRAWN_FIRST_S, self._every_s))
        with ThreadPoolExecutor(1, "pdops-judge") as pool:
            while True:
                seen = self._latest
                assert seen is not None
                began = self._clock.monotonic()
                await loop.run_in_executor(pool, self.judged, seen.view)
                self._show()
                took = self._clock.monotonic() - began
                # What a person asked for is judged at once.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._asked.wait(), max(self._every_s - took, took * _REST))
                self._asked.clear()
