"""Keep what a live source gives in a recording, without ever making its reader wait for the disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pdops.errors import PdopsError, RecordingError
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.times import rfc3339
from pdops_tui.published import JOIN_S
from pdops_tui.snapshot import Taping

BEFORE_S = 300.0
"""So much of what was seen before a recording began is put into it: nobody presses a key before the incident."""
BEFORE_BYTES = 16 << 20
"""And no more values than this, so that a large cluster's past does not take the memory of the machine."""
_WAITING_MOST = 120
"""Frames that may wait for the disk; further ones are lost and counted."""

Facts = Mapping[str, Mapping[str, str]]


class Past:
    """The last frames, as many as time and memory allow."""

    def __init__(self, most_s: float = BEFORE_S, most_bytes: int = BEFORE_BYTES) -> None:
        self._frames: deque[tuple[Frame, int, float]] = deque()
        self._most_s, self._most_bytes, self._bytes = most_s, most_bytes, 0

    def add(self, frame: Frame) -> None:
        """Take in a frame and let go of what is too old or too much."""
        passed = 0.0
        if self._frames:
            last, _, passed = self._frames[-1]
            step = frame.at_s - last.at_s
            # A clock that was set says nothing of the time between two frames.
            passed += step if 0.0 <= step <= self._most_s else 0.0
        size = sum(s.values.nbytes for s in frame.scrapes if s.values is not None)
        self._frames.append((frame, size, passed))
        self._bytes += size
        while len(self._frames) > 1 and (self._bytes > self._most_bytes or passed - self._frames[0][2] > self._most_s):
            self._bytes -= self._frames.popleft()[1]

    def frames(self) -> tuple[Frame, ...]:
        """Return what is kept, oldest first."""
        return tuple(frame for frame, *_ in self._frames)


def offered_name(cluster: str, at_s: float, folder: Path, ending: str = ".pdrec") -> Path:
    """Return a path in a folder, named after cluster and time, that is not taken."""
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in cluster)[:40].strip(".-")
    stamp = rfc3339(at_s)[:19].replace(":", "").replace("-", "")
    stem = f"{safe or 'cluster'}-{stamp}Z"
    path, n = folder / f"{stem}{ending}", 1
    while os.path.lexists(path):
        n += 1
        path = folder / f"{stem}-{n}{ending}"
    return path


class Tape:
    """Writes frames to a new file in a thread of its own. An existing file is never replaced.

    Args:
        path: the file to make; `~` is the home folder.
        cluster: the inventory.
        interval_s: nominal distance of frames, in seconds.
        facts: configuration read so far, which comes with the first frame.
        before: frames of before, written first.

    Raises:
        RecordingError: the file cannot be made.
    """

    def __init__(
        self, path: str, cluster: Cluster, *, interval_s: float, facts: Facts, before: tuple[Frame, ...] = ()
    ) -> None:
        # Not loaded before somebody records: a start should not wait for it.
        from pdops.sources.recording.writer import RecordingWriter

        try:
            wanted = Path(path).expanduser()
        except RuntimeError as error:
            hint = "give a path without ~, or of a user that is there"
            raise RecordingError("recording cannot be written", where=path, why=str(error), hint=hint) from error
        self._writer = RecordingWriter(wanted, cluster, interval_s=interval_s)
        self._waiting: queue.Queue[Frame | None] = queue.Queue(len(before) + _WAITING_MOST)
        self._lock = threading.Lock()
        self._state = Taping(path=os.path.abspath(wanted))
        self._facts: Facts | None = facts
        for frame in before:
            self.add(frame)
        self._thread = threading.Thread(target=self._run, name="pdops-tape", daemon=True)
        self._thread.start()

    @property
    def state(self) -> Taping:
        """How far it is."""
        return self._state

    def add(self, frame: Frame) -> None:
        """Have a frame written; never waits."""
        if not self._state.running:
            return
        if self._facts is not None:
            known = {w: dict(f) for w, f in self._facts.items()}
            for worker, options in frame.facts.items():
                known[worker] = {**known.get(worker, {}), **options}
            frame, self._facts = replace(frame, facts=known), None
        try:
            self._waiting.put_nowait(frame)
        except queue.Full:
            self._now(lost=self._state.lost + 1)

    def stop(self) -> Taping:
        """Write what waits, close the file and return the last state; may be called twice."""
        if self._thread.is_alive():
            # A disk that hangs for so long is left behind with what waits for it.
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=JOIN_S)
            self._thread.join(JOIN_S)
        return self._state

    def _now(self, **changes: object) -> None:
        with self._lock:
            self._state = replace(self._state, **changes)  # type: ignore[arg-type]

    def _run(self) -> None:
        trouble = None
        try:
            with self._writer as writer:
                while (frame := self._waiting.get()) is not None:
                    writer.write(frame)
                    first = self._state.from_s
                    self._now(
                        from_s=frame.at_s if first is None else first,
                        to_s=frame.at_s,
                        frames=writer.frames,
                        size_bytes=writer.size_bytes,
                    )
        except PdopsError as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001  the screen goes on and says why its recording does not
            trouble = f"recording cannot be written: {type(error).__name__}: {error}"
        self._now(running=False, trouble=trouble, size_bytes=self._writer.size_bytes)


class Deck:
    """The recordings of one live source: what was just seen, and the tape that is running or ran last.

    All of it belongs to one event loop; whatever waits for the disk does so elsewhere.
    """

    def __init__(self) -> None:
        self._past = Past()
        self._tape: Tape | None = None
        self._refused: Taping | None = None
        self._starting = False
        self._since: list[Frame] = []

    @property
    def state(self) -> Taping | None:
        """The recording being written, the last one, or the one that could not be begun; None before the first."""
        return self._refused or (self._tape.state if self._tape is not None else None)

    def add(self, frame: Frame) -> None:
        """Take in a frame."""
        self._past.add(frame)
        if self._starting:
            self._since.append(frame)
        elif self._tape is not None:
            self._tape.add(frame)

    async def start(self, path: str, cluster: Cluster, *, interval_s: float, facts: Facts) -> None:
        """Begin a recording with what is kept of the past, unless one is running; why it cannot stands in `state`."""
        if self._starting or (self._tape is not None and self._tape.state.running):
            return
        self._starting, self._since = True, []
        past = self._past.frames()
        try:
            self._tape = await asyncio.to_thread(Tape, path, cluster, interval_s=interval_s, facts=facts, before=past)
            self._refused = None
            for frame in self._since:
                self._tape.add(frame)
        except PdopsError as error:
            self._refused = Taping(path=path, running=False, trouble=str(error))
        finally:
            self._starting, self._since = False, []

    async def stop(self) -> None:
        """End the recording that is running and close its file."""
        if self._tape is not None:
            await asyncio.to_thread(self._tape.stop)
