"""Play a recording as if it were live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from pdops.clock import Clock, WallClock
from pdops.model.frame import Frame
from pdops.model.view import Note
from pdops.sources.recording.reader import Recording


class RecordingSource:
    """Gives the frames of a recording, as fast as possible or paced.

    Args:
        recording: what to play.
        speed: recorded seconds per second; None does not wait.
        from_s: where to begin, as for `Recording.iter_frames`.
        clock: where pacing takes its time from.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        speed: float | None = None,
        from_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        if speed is not None and not speed > 0:
            raise ValueError(f"speed must be above zero, not {speed}")
        self.recording = recording
        self.cluster = recording.cluster
        self.interval_s = recording.interval_s
        self._speed = speed
        self._from_s = from_s
        self._clock = clock or WallClock()
        self._closed = False

    @property
    def notes(self) -> tuple[Note, ...]:
        """What is wrong with the file, as far as it was read."""
        return self.recording.notes

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield frames in order of time, until the end of the recording or `aclose`."""
        began_s = self._clock.monotonic()
        first_s: float | None = None
        for frame in self.recording.iter_frames(self._from_s):
            if first_s is None:
                first_s = frame.at_s
            if self._speed is None:
                await asyncio.sleep(0)
            else:
                due_s = began_s + (frame.at_s - first_s) / self._speed
                await self._clock.sleep(due_s - self._clock.monotonic())
            if self._closed:
                return
            yield frame

    async def aclose(self) -> None:
        """Stop after the current frame."""
        self._closed = True
