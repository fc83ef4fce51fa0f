"""Read every log the inventory names: bounded, redacted, and what cannot be read is said."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pdops.clock import Clock, WallClock
from pdops.model.cluster import Cluster, Secret
from pdops.model.frame import LogLine
from pdops.model.view import Note
from pdops.sources.logs.batch import MAX_LINES, Batch, Line, LogPattern, LogSource, keep
from pdops.sources.logs.files import FileLog
from pdops.sources.logs.follow import FollowedLog
from pdops.sources.logs.loki import LokiLog
from pdops.sources.logs.programs import journald, kubernetes
from pdops.sources.redact import clean, redact

CODE = "logs"
"""Notes about logs have this code, a slash and the number of the log in the worker's list."""
MAX_TICK_BYTES = 8 * 1024 * 1024
"""Text that is looked at in one tick over all logs; each log has an equal share, so a flood costs only its own."""


class LogReader:
    """Follows every log the inventory names.

    Args:
        pattern: lines to keep beside warnings, errors and lines the catalog knows.
    """

    def __init__(self, cluster: Cluster, *, pattern: LogPattern | None = None, clock: Clock | None = None) -> None:
        self._pattern = pattern
        self._clock = clock or WallClock()
        self._sources = [
            (worker.id, index, _open(entry, self._clock))
            for worker in cluster.workers
            for index, entry in enumerate(worker.logs)
        ]
        self._share = MAX_TICK_BYTES // max(1, len(self._sources))

    @property
    def notes(self) -> tuple[Note, ...]:
        """The logs that cannot be read now, with the reason and what to do."""
        return tuple(
            Note(worker=worker, code=f"{CODE}/{index}", why=clean(f"{source.name}: {trouble.why}"), fix=trouble.fix)
            for worker, index, source in self._sources
            if (trouble := source.trouble) is not None
        )

    async def read(self, at_s: float) -> tuple[LogLine, ...]:
        """Return the kept lines that are new at `at_s` (Unix seconds), at most 200 a log, and what was left out."""
        if not self._sources:
            return ()
        batches = await asyncio.gather(*(source.read() for _, _, source in self._sources))
        if not any(b.lines or b.left_out_bytes or b.left_out_lines for b in batches):
            return ()
        return await asyncio.to_thread(self._lines, at_s, batches)

    async def aclose(self) -> None:
        """Let go of everything; may be called twice."""
        await asyncio.gather(*(source.aclose() for _, _, source in self._sources))

    def _lines(self, at_s: float, batches: list[Batch]) -> tuple[LogLine, ...]:
        found: list[LogLine] = []
        for (worker, _, _), batch in zip(self._sources, batches, strict=True):
            lines, unread = _newest(batch.lines, self._share)
            unread += batch.left_out_bytes
            kept = [line for line in lines if keep(line, self._pattern)]
            gone = batch.left_out_lines + max(0, len(kept) - MAX_LINES)
            if unread:
                found.append(LogLine(t_s=at_s, worker=worker, line=f"[{unread} bytes of the log were not read]"))
            if gone:
                least = "at least " if batch.or_more else ""
                found.append(LogLine(t_s=at_s, worker=worker, line=f"[{least}{gone} log lines were left out]"))
            for line in kept[-MAX_LINES:]:
                # A clock that is ahead of ours must not move a line out of the window.
                t_s = at_s if line.t_s is None else min(line.t_s, at_s)
                found.append(LogLine(t_s=t_s, worker=worker, line=redact(line.text)))
        return tuple(found)


def _newest(lines: tuple[Line, ...], most: int) -> tuple[tuple[Line, ...], int]:
    """Return the newest lines that fit into so many characters, and the characters that do not."""
    total = sum(len(line.text) for line in lines)
    gone = first = 0
    while total - gone > most and first < len(lines):
        gone += len(lines[first].text)
        first += 1
    return lines[first:], gone


def _open(entry: Mapping[str, str], clock: Clock) -> LogSource:
    if "file" in entry:
        return FileLog(entry["file"])
    if "journald" in entry:
        return FollowedLog(journald(entry["journald"]), clock)
    if "kubernetes" in entry:
        program = kubernetes(
            entry["kubernetes"],
            namespace=entry.get("namespace"),
            container=entry.get("container"),
            context=entry.get("context"),
        )
        return FollowedLog(program, clock)
    keys = ("bearer_token_file", "username", "password_file", "ca", "cert", "key")
    secret = Secret(**{key: entry[key] for key in keys if key in entry})
    return LokiLog(entry["loki"], entry["query"], secret=secret, clock=clock, tenant=entry.get("tenant"))
