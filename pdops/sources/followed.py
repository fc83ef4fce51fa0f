"""A live source that follows its inventory: workers that are added to the file are read, those taken out are not any more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from pdops.errors import PdopsError
from pdops.model.cluster import Cluster
from pdops.model.frame import Event, EventKind, Frame
from pdops.sources.around import Around
from pdops.sources.base import Source

_Stamp = tuple[int, int] | None


class Followed(Around):
    """Gives the frames of a source that is opened anew whenever the workers in a file are others.

    A file that is gone or not valid changes nothing: it may be about to be written.

    Args:
        path: the inventory.
        cluster: what it says now.
        load: reads it.
        open_: opens the source of a cluster.
    """

    def __init__(
        self, path: Path, cluster: Cluster, load: Callable[[], Cluster], open_: Callable[[Cluster], Source]
    ) -> None:
        super().__init__(open_(cluster))
        self._path, self._load, self._open = path, load, open_
        self._stamp = _stamp(path)
        self._closed = False

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield the frames of each source in turn, with an event for every worker that came or went.

        The next source looks at the clock anew, which may have been set back meanwhile.
        """
        came: tuple[Event, ...] = ()
        while not self._closed:
            fresh: Cluster | None = None
            async with aclosing(self._source.frames()) as frames:  # type: ignore[type-var]
                async for frame in frames:
                    yield replace(frame, events=(*(replace(e, t_s=frame.at_s) for e in came), *frame.events))
                    came = ()
                    if (fresh := self._changed()) is not None:
                        break
            if fresh is None:
                return
            came = _between(self.cluster, fresh)
            await self._source.aclose()
            self._source = self._open(fresh)

    async def aclose(self) -> None:
        """Let go of everything; may be called twice."""
        self._closed = True
        await self._source.aclose()

    def _changed(self) -> Cluster | None:
        stamp = _stamp(self._path)
        if stamp is None or stamp == self._stamp:
            return None
        try:
            fresh = self._load()
        except PdopsError:
            return None
        self._stamp = stamp
        return fresh if fresh.workers and fresh.workers != self.cluster.workers else None


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _between(before: Cluster, after: Cluster) -> tuple[Event, ...]:
    known, now = {w.id: w for w in before.workers}, {w.id: w for w in after.workers}
    came = [(EventKind.SCALE_OUT, w) for i, w in now.items() if i not in known]
    went = [(EventKind.SCALE_IN, w) for i, w in known.items() if i not in now]
    return tuple(Event(t_s=0.0, kind=kind, worker=w.id, pool=w.pool) for kind, w in (*came, *went))
