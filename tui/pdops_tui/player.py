"""Walk through recorded frames, forwards and backwards, with a Ring that always holds what led up to the place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pdops.history.ring import STALE_INTERVALS, Ring
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.view import View

Frames = Sequence[Frame] | Callable[[], Iterable[Frame]]
_CHECK_EVERY = 64
"""Frames between two looks at whether a seek was called off."""


class Player:
    """A place in a recording.

    Going back rebuilds the Ring from the first frame: a worker's state depends on all that was heard of it before. With
    a factory instead of a sequence the end is not known until it was reached.

    Args:
        cluster: whose recording it is.
        frames: the frames in order of time, or a factory that gives a fresh iterator over them.
        interval_s: nominal seconds between frames.
    """

    def __init__(self, cluster: Cluster, frames: Frames, *, interval_s: float = 1.0) -> None:
        self.cluster = cluster
        self.interval_s = interval_s
        self._frames = frames
        self.index = 0
        self.at_s: float | None = None
        self.start_s: float | None = None
        self.total: int | None = None
        self.end_s: float | None = None
        self.gap_s: float | None = None
        if not callable(frames):
            self.total = len(frames)
            if frames:
                self.start_s, self.end_s = frames[0].at_s, frames[-1].at_s
        self._rewind()

    def _rewind(self) -> None:
        self._ring = Ring(self.cluster, interval_s=self.interval_s)
        self._iterator: Iterator[Frame] = iter(self._frames() if callable(self._frames) else self._frames)
        self._next: Frame | None = next(self._iterator, None)
        self.index, self.at_s, self.gap_s = 0, None, None

    @property
    def ended(self) -> bool:
        """Whether there is no further frame."""
        return self._next is None

    @property
    def wait_s(self) -> float:
        """Seconds of recorded time to the next frame, 0 at the start and at the end."""
        if self._next is None or self.at_s is None:
            return 0.0
        return max(0.0, self._next.at_s - self.at_s)

    def forward(self) -> bool:
        """Take in the next frame; False when there is none."""
        frame = self._next
        if frame is None:
            return False
        wait = self.wait_s
        self.gap_s = wait if wait > STALE_INTERVALS * self.interval_s else None
        self._ring.add(frame)
        self.index += 1
        self.at_s = frame.at_s
        if self.start_s is None:
            self.start_s = frame.at_s
        self._next = next(self._iterator, None)
        if self._next is None:
            self.total, self.end_s = self.index, frame.at_s
        return True

    def go_to(self, index: int, called_off: Callable[[], bool] = lambda: False) -> None:
        """Stand on the frame of this number, the first being 1; a number beyond the end stands on the last frame."""
        wanted = max(1, index)
        if wanted < self.index:
            self._rewind()
        while self.index < wanted and self.forward():
            if self.index % _CHECK_EVERY == 0 and called_off():
                return

    def seek(self, at_s: float, called_off: Callable[[], bool] = lambda: False) -> None:
        """Stand on the last frame that is not after a moment (Unix seconds), or on the first one."""
        if self.at_s is not None and at_s < self.at_s:
            self._rewind()
        if self.index == 0:
            self.forward()
        while self._next is not None and self._next.at_s <= at_s:
            self.forward()
            if self.index % _CHECK_EVERY == 0 and called_off():
                return

    def view(self) -> View:
        """Return the state at this place."""
        return self._ring.view()
