"""What every source that stands around another one passes on."""

from __future__ import annotations

from pdops.model.cluster import Cluster
from pdops.model.view import Note
from pdops.sources.base import Source


class Around:
    """Passes on who is there, how often and what is said of the data; frames are for those who inherit."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def cluster(self) -> Cluster:
        """Who is there, as the source knows it now."""
        return self._source.cluster

    @property
    def interval_s(self) -> float:
        """Nominal seconds between frames."""
        return self._source.interval_s

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the source says of its data."""
        return self._source.notes
