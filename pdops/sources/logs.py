"""Follow the log files of workers: new lines only, bounded, without secrets or control characters."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from dataclasses import dataclass

from pdops.model.cluster import Cluster
from pdops.model.frame import LogLine
from pdops.sources.redact import clean, redact

MAX_READ_BYTES = 64 * 1024
MAX_LINES = 200
MAX_LINE_BYTES = 2 * 1024
_HEAD = 200

LogPattern = re.Pattern[str]

_LEVEL = re.compile(
    r"\b(?:WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
    r"|^[WEF][0-9]{4,8} "
    r"|(?i:\blevel\"?\s*[=:]\s*\"?(?:warn|error|crit|fatal))"
    r"|(?i:\bseverity\"?\s*[=:]\s*\"?(?:warn|error|crit|fatal))"
)


@dataclass(frozen=True, slots=True)
class _Batch:
    lines: list[str]
    left_out: int = 0


class LogTail:
    """Follows one file through rotation, truncation and absence.

    What stands in the file at the first look is old and is not read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None
        self._id: tuple[int, int] | None = None
        self._offset = 0
        self._first = True

    def read(self) -> _Batch:
        """Return the complete lines written since the last call, at most the newest 64 KiB of them."""
        lines: list[str] = []
        skipped = 0
        try:
            found = os.stat(self.path)
        except OSError:
            found = None
        if found is not None and not stat.S_ISREG(found.st_mode):
            found = None
        if self._fd is not None and (found is None or (found.st_dev, found.st_ino) != self._id):
            lines, skipped = self._rest()
            self.close()
        if found is not None and self._fd is None:
            self._open()
        self._first = False
        if self._fd is not None:
            more, cut = self._rest()
            lines, skipped = lines + more, skipped + cut
        return _Batch(lines, skipped)

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _open(self) -> None:
        try:
            # A name that turns into a pipe between the look and the opening must not block.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        there = os.fstat(self._fd)
        if not stat.S_ISREG(there.st_mode):
            self.close()
            return
        self._id = (there.st_dev, there.st_ino)
        self._offset = there.st_size if self._first else 0

    def _rest(self) -> tuple[list[str], int]:
        """Return new lines and the number of bytes that were too many to read."""
        assert self._fd is not None
        try:
            size = os.fstat(self._fd).st_size
            if size < self._offset:
                self._offset = 0
            skipped = max(0, size - self._offset - MAX_READ_BYTES)
            data = os.pread(self._fd, MAX_READ_BYTES, self._offset + skipped)
        except OSError:
            return [], 0
        end = data.rfind(b"\n") + 1
        if end == 0:
            # A line that fills the whole window will not be complete next time either.
            if len(data) == MAX_READ_BYTES:
                self._offset += skipped + len(data)
                return [], skipped + len(data)
            return [], 0
        begin = data.find(b"\n") + 1 if skipped else 0
        self._offset += skipped + end
        return [_text(line) for line in data[begin:end].split(b"\n")[:-1]], skipped + begin


class LogReader:
    """Follows every file the inventory names as a worker's log.

    Args:
        pattern: lines to keep beside those that carry a level of warning or above.
    """

    def __init__(self, cluster: Cluster, *, pattern: LogPattern | None = None) -> None:
        self._pattern = pattern
        self._tails = [
            (worker.id, LogTail(entry["file"]))
            for worker in cluster.workers
            for entry in worker.logs
            if "file" in entry
        ]
        for _, tail in self._tails:
            tail.read()

    async def read(self, at_s: float) -> tuple[LogLine, ...]:
        """Return the kept lines that are new at `at_s` (Unix seconds), at most 200 a file, and what was left out."""
        if not self._tails:
            return ()
        return await asyncio.to_thread(self._read, at_s)

    def close(self) -> None:
        """Let go of all files; may be called twice."""
        for _, tail in self._tails:
            tail.close()

    def _read(self, at_s: float) -> tuple[LogLine, ...]:
        found: list[LogLine] = []
        for worker, tail in self._tails:
            batch = tail.read()
            kept = [line for line in batch.lines if self._keep(line)]
            if batch.left_out:
                found.append(
                    LogLine(t_s=at_s, worker=worker, line=f"[{batch.left_out} bytes of the log were not read]")
                )
            if len(kept) > MAX_LINES:
                gone = len(kept) - MAX_LINES
                found.append(LogLine(t_s=at_s, worker=worker, line=f"[{gone} log lines were left out]"))
                kept = kept[gone:]
            found += [LogLine(t_s=at_s, worker=worker, line=redact(line)) for line in kept]
        return tuple(found)

    def _keep(self, line: str) -> bool:
        if _LEVEL.search(line[:_HEAD]) is not None:
            return True
        return self._pattern is not None and self._pattern.search(line) is not None


def _text(raw: bytes) -> str:
    cut = raw[:MAX_LINE_BYTES]
    text = clean(cut.decode("utf-8", errors="replace"))
    return text + "…" if len(raw) > MAX_LINE_BYTES else text
