"""What every live or recorded source looks like to the rooms above."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.view import Note


class Source(Protocol):
    """Gives one Frame per tick until it ends or is closed.

    A target that does not answer is a Scrape with an `error`, never an exception and never a missing entry. Frames come
    in order of `at_s`. `interval_s` is the nominal distance between frames, in seconds.
    """

    @property
    def cluster(self) -> Cluster:
        """Who is there; may change from frame to frame."""
        ...

    @property
    def interval_s(self) -> float:
        """Nominal seconds between frames."""
        ...

    @property
    def notes(self) -> tuple[Note, ...]:
        """What a reader must know about the data itself; may change from frame to frame."""
        ...

    def frames(self) -> AsyncIterator[Frame]:
        """Yield frames in order of time."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and files; may be called twice."""
        ...
