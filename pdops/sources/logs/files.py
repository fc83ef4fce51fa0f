"""Follow a log file, safely and bounded."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass

from pdops.sources.logs.batch import MAX_READ_BYTES, Batch, Line, Trouble, decode

_PATIENCE_S = 0.5
"""A file on a mount that hangs must not hold up the other workers' logs."""


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Complete lines, and the bytes that were too many to read."""

    lines: list[str]
    left_out: int = 0


class LogTail:
    """Follows one file through rotation, truncation and absence.

    What stands in the file at the first look is old and is not read. `why` says what keeps it from being read now.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None
        self._id: tuple[int, int] | None = None
        self._offset = 0
        self._first = True
        self.why: str | None = None

    def read(self) -> FileBatch:
        """Return the complete lines written since the last call, at most the newest 64 KiB of them."""
        lines: list[str] = []
        skipped = 0
        try:
            found = os.stat(self.path)
            self.why = None if stat.S_ISREG(found.st_mode) else "it is no plain file"
        except OSError as error:
            found, self.why = None, _reason(error)
        if self.why is not None:
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
        return FileBatch(lines, skipped)

    def close(self) -> None:
        """Let go of the file; may be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _open(self) -> None:
        try:
            # A name that turns into a pipe between the look and the opening must not block.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.why = _reason(error)
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
        except OSError as error:
            self.why = _reason(error)
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
        return [decode(line) for line in data[begin:end].split(b"\n")[:-1]], skipped + begin


class FileLog:
    """A log file of a worker on this machine, or on a mount."""

    def __init__(self, path: str) -> None:
        self.name = f"file {path}"
        self._tail = LogTail(path)
        self._tail.read()
        self._running: asyncio.Task[FileBatch] | None = None

    @property
    def trouble(self) -> Trouble | None:
        """Why the file cannot be read now, or None."""
        if self._running is not None:
            return Trouble("the file system does not answer", "check the mount")
        why = self._tail.why
        return None if why is None else Trouble(why, "check the path in the inventory and its permissions")

    async def read(self) -> Batch:
        """Return the complete lines written since the last call."""
        task = self._running or asyncio.create_task(asyncio.to_thread(self._tail.read))
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE_S)
        self._running = None if done else task
        if not done:
            return Batch()
        found = task.result()
        return Batch(tuple(map(Line, found.lines)), left_out_bytes=found.left_out)

    async def aclose(self) -> None:
        """Let go of the file; may be called twice."""
        # A read that hangs holds the file; closing it under that thread would free its number for another file.
        if self._running is None:
            self._tail.close()


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
