"""Walk through recorded frames, forwards and backwards, with a Ring that always holds what led up to the place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from pdops.history.ring import STALE_INTERVALS, Ring
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.view import Note, View


class Recorded(Protocol):
    """A recording: whose it is, how long, and its frames in order of time, from the start each time they are asked for."""

    cluster: Cluster
    interval_s: float

    @property
    def start_s(self) -> float:
        """Unix seconds of the first frame."""
        ...

    @property
    def end_s(self) -> float:
        """Unix seconds of the last frame."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """What is wrong with it, as far as it was read."""
        ...

    def iter_frames(self) -> Iterator[Frame]:
        """Yield the frames."""
        ...


class Frames:
    """Frames in memory, as a recording."""

    def __init__(self, cluster: Cluster, frames: Sequence[Frame], *, interval_s: float = 1.0) -> None:
        self.cluster = cluster
        self.interval_s = interval_s
        self._frames = frames

    @property
    def start_s(self) -> float:
        """Unix seconds of the first frame, 0 when there is none."""
        return self._frames[0].at_s if self._frames else 0.0

    @property
    def end_s(self) -> float:
        """Unix seconds of the last frame, 0 when there is none."""
        return self._frames[-1].at_s if self._frames else 0.0

    @property
    def notes(self) -> tuple[Note, ...]:
        """Nothing: memory is not damaged."""
        return ()

    def iter_frames(self) -> Iterator[Frame]:
        """Yield the frames."""
        return iter(self._frames)


_CHECK_EVERY = 64
"""Frames between two looks at whether a seek was called off."""


class Player:
    """A place in a recording.

    Going back rebuilds the Ring from the first frame: a worker's state depends on all that was heard of it before. How
    many frames there are is not known until the end was reached.
    """

    def __init__(self, recorded: Recorded, cluster: Cluster | None = None) -> None:
        self.recorded = recorded
        self.cluster = cluster or recorded.cluster
        self.interval_s = recorded.interval_s
        self.index = 0
        self.at_s: float | None = None
        self.total: int | None = None
        self.gap_s: float | None = None
        self._rewind()

    def _rewind(self) -> None:
        self._ring = Ring(self.cluster, interval_s=self.interval_s)
        self._iterator = self.recorded.iter_frames()
        self._next: Frame | None = next(self._iterator, None)
        self.index, self.at_s, self.gap_s = 0, None, None

    def set_cluster(self, cluster: Cluster) -> None:
        """Judge by another promise from here on."""
        self.cluster = self._ring.cluster = cluster

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
        self._next = next(self._iterator, None)
        if self._next is None:
            self.total = self.index
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
        """Return the state at this place; what was found wrong with the file is said at every place."""
        self._ring.take_notes(self.recorded.notes)
        return self._ring.view()
