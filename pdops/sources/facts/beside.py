"""Collect facts beside a live source: once, and again after restarts, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping

from pdops.clock import Clock, WallClock
from pdops.model.cluster import Cluster, pool_key
from pdops.model.view import Note
from pdops.sources.facts.collected import Collected, Unread
from pdops.sources.facts.live import Known, LiveReader

CODE = "facts"
"""Notes about facts have this code, a slash and a number."""
AGAIN_S = 30.0
"""Least seconds between two collections; a rollout restarts one worker after the other."""
_PATIENCE_S = 1.0
_SHOWN = 6
_LATER = "its configuration has not been read yet"
_FIXES = (
    ("start log", "name its log file in the inventory, under logs"),
    ("settings", "pdops preflight reads them with the admin address of the inventory"),
    ("num_hidden_layers", "run pdops preflight where the model's files are"),
)
_ELSEWHERE = "run pdops preflight on its machine, as the user it runs as or as root"


class FactsBeside:
    """Reads what `pdops preflight` reads without administrative rights, pages and connections left out.

    Looking at processes and drivers may block for seconds, which no scrape waits for.
    """

    def __init__(self, cluster: Cluster, clock: Clock, known: Known | None = None) -> None:
        self._cluster, self._clock = cluster, clock
        self._known = known or Known()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Collected] | None = None
        self._ready: Collected | None = None
        self._fresh: Mapping[str, Mapping[str, str]] = {}
        self._notes: tuple[Note, ...] | None = None
        self._began_s = 0.0
        self._wanted = True
        self._closed = False

    @property
    def notes(self) -> tuple[Note, ...]:
        """What could not be read, and why; or that nothing has been read yet."""
        if self._notes is None:
            return tuple(Note(worker=w.id, code=f"{CODE}/0", why=_LATER, fix="") for w in self._cluster.workers)
        return self._notes

    def again(self) -> None:
        """Ask for another collection, because a worker has restarted."""
        self._wanted = True

    def take(self) -> Mapping[str, Mapping[str, str]]:
        """Return facts that are new since the last call, by worker; begins a collection when one is due."""
        if self._ready is not None:
            done, self._ready = self._ready, None
            self._fresh, self._notes = done.facts, tuple(as_notes(self._cluster, done.still_unread()))
        now_s = self._clock.monotonic()
        idle = self._thread is None or not self._thread.is_alive()
        if self._wanted and idle and not self._closed and (self._thread is None or now_s - self._began_s >= AGAIN_S):
            self._wanted, self._began_s = False, now_s
            self._thread = threading.Thread(target=self._run, name="pdops-facts", daemon=True)
            self._thread.start()
        fresh, self._fresh = self._fresh, {}
        return fresh

    async def aclose(self) -> None:
        """Stop reading; what blocks in the system is left behind. May be called twice."""
        self._closed = True
        loop, task, thread = self._loop, self._task, self._thread
        if thread is None or not thread.is_alive():
            return
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
        await asyncio.to_thread(thread.join, _PATIENCE_S)

    def _run(self) -> None:
        async def collect() -> Collected:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            if self._closed:
                return Collected()
            return await LiveReader(self._cluster, WallClock(), self._known, passive=True).collect()

        try:
            self._ready = asyncio.run(collect())
        except asyncio.CancelledError:
            return
        except Exception as error:  # noqa: BLE001  whatever a machine shows under /proc, a diagnosis goes on without it
            failed = Collected()
            for worker in self._cluster.workers:
                failed.miss(worker.id, "configuration", f"{type(error).__name__}: {error}")
            self._ready = failed


def as_notes(cluster: Cluster, unread: Iterable[Unread]) -> list[Note]:
    """Return what stayed unread as one note for each worker and reason, or pool when all of it give the same."""
    keys: dict[tuple[str, str], list[str]] = {}
    for item in unread:
        keys.setdefault((item.worker, item.why), []).append(item.key)
    notes: list[Note] = []
    for pool in cluster.pools():
        members = [w.id for w in cluster.of_pool(pool)]
        mine = [{(why, tuple(found)) for (w, why), found in keys.items() if w == member} for member in members]
        shared = set.intersection(*mine) if len(members) > 1 else set()
        notes += _said(pool_key(pool), shared)
        for member, own in zip(members, mine, strict=True):
            notes += _said(member, own - shared)
    return notes


def _said(key: str, reasons: Iterable[tuple[str, tuple[str, ...]]]) -> list[Note]:
    notes = []
    for index, (why, names) in enumerate(sorted(reasons)):
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        fix = next((fix for name, fix in _FIXES if name in names), _ELSEWHERE)
        notes.append(Note(worker=key, code=f"{CODE}/{index}", why=f"{', '.join(names[:_SHOWN])}{more}: {why}", fix=fix))
    return notes
