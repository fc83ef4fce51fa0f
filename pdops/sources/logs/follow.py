"""Follow what a program prints: started by an argument list, bounded, started again when it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from pdops.clock import Clock
from pdops.sources.logs.batch import MAX_READ_BYTES, Batch, Line, Trouble, decode
from pdops.sources.redact import redact

RETRY_S = 2.0
RETRY_MOST_S = 60.0
MAX_BYTES_PER_S = 1024 * 1024
"""What one program may make us read; beyond it its pipe fills and it waits."""
_CHUNK = 64 * 1024
_ERROR_BYTES = 4 * 1024
_ENDING_S = 2.0
_SILENT_S = 10.0
"""A program that has something prints it well within this time."""
_SOUND_S = 30.0
"""A program that ran this long before it ended is started again at once."""


class Program:
    """One kind of program: how it is called, and how its lines are read.

    Args:
        name: kind and place for people.
        argv: gives the argument list; takes the Unix time from which lines are wanted, or None for new ones only.
        parse: reads one raw line; None leaves it out.
        absent: what to do when the program is not there.
        failed: what to do when it ends.
        silent: what it means that it prints nothing at all; empty when that is normal.
    """

    def __init__(
        self,
        name: str,
        argv: Callable[[float | None], Sequence[str]],
        parse: Callable[[bytes], Line | None],
        *,
        absent: str,
        failed: str,
        silent: str = "",
    ) -> None:
        self.name, self.argv, self.parse = name, argv, parse
        self.absent, self.failed, self.silent = absent, failed, silent


class FollowedLog:
    """The log that a program prints; its newest 64 KiB are held between two looks."""

    def __init__(self, program: Program, clock: Clock, *, retry_s: float | None = None) -> None:
        self.name = program.name
        self._program, self._clock = program, clock
        self._retry_s = RETRY_S if retry_s is None else retry_s
        self._lines: deque[bytes] = deque()
        self._held = 0
        self._left_out = 0
        self._task: asyncio.Task[None] | None = None
        self._errors = b""
        self._spoke = False
        self._first_s: float | None = None
        self._began_s = 0.0
        self._dead: Trouble | None = None
        self._closed = False

    @property
    def trouble(self) -> Trouble | None:
        """Why there may be no lines, or None: the program is not there, ended, or only complains."""
        if self._dead is not None:
            return self._dead
        if self._spoke or self._first_s is None:
            return None
        said = _last_line(self._errors)
        if not said and self._clock.monotonic() - self._began_s > _SILENT_S:
            said = self._program.silent
        return Trouble(said, self._program.failed) if said else None

    async def read(self) -> Batch:
        """Return the lines that came since the last call."""
        if self._task is None and not self._closed:
            self._first_s, self._began_s = self._clock.now(), self._clock.monotonic()
            self._task = asyncio.create_task(self._run())
        raw, self._lines, self._held = self._lines, deque(), 0
        left_out, self._left_out = self._left_out, 0
        parsed = [self._program.parse(line) for line in raw]
        first_s = self._first_s or 0.0
        new = tuple(line for line in parsed if line is not None and (line.t_s is None or line.t_s >= first_s))
        return Batch(new, left_out_bytes=left_out)

    async def aclose(self) -> None:
        """End the program; may be called twice."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        wait_s, since_s = self._retry_s, None
        while True:
            argv = list(self._program.argv(since_s))
            began_s = self._clock.monotonic()
            path = shutil.which(argv[0])
            if path is None:
                self._dead = Trouble(f"{argv[0]} is not installed here", self._program.absent)
            else:
                await self._follow([path, *argv[1:]])
            since_s = self._clock.now()
            wait_s = self._retry_s if self._clock.monotonic() - began_s > _SOUND_S else min(RETRY_MOST_S, 2 * wait_s)
            await asyncio.sleep(wait_s)

    async def _follow(self, argv: list[str]) -> None:
        self._errors = b""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C.UTF-8", "PAGER": "cat"},
            )
        except OSError as error:
            self._dead = Trouble(f"{argv[0]}: {(error.strerror or str(error)).lower()}", self._program.failed)
            return
        self._dead = None
        assert process.stdout is not None
        assert process.stderr is not None
        beside = asyncio.create_task(self._complaints(process.stderr))
        try:
            await self._take(process.stdout)
            status = await process.wait()
            await asyncio.wait({beside}, timeout=_ENDING_S)
        finally:
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            await _end(process)
        said = _last_line(self._errors)
        if status == 0 and not said:
            self._dead = Trouble(f"{os.path.basename(argv[0])} says that it is over", "it is asked for again by itself")
            return
        why = f"{os.path.basename(argv[0])} ended with status {status}" + (f": {said}" if said else "")
        self._dead = Trouble(why, self._program.failed)

    async def _take(self, stdout: asyncio.StreamReader) -> None:
        """Read to the end, holding the newest lines only and never more than so many bytes a second."""
        rest = b""
        second_s, taken = self._clock.monotonic(), 0
        while chunk := await stdout.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._hold(line)
            if len(rest) > MAX_READ_BYTES:
                self._left_out += len(rest)
                rest = b""
            taken += len(chunk)
            if taken >= MAX_BYTES_PER_S:
                await asyncio.sleep(max(0.0, second_s + 1.0 - self._clock.monotonic()))
                second_s, taken = self._clock.monotonic(), 0
        if rest:
            self._hold(rest)

    def _hold(self, line: bytes) -> None:
        self._spoke = True
        self._lines.append(line)
        self._held += len(line) + 1
        while self._held > MAX_READ_BYTES:
            size = len(self._lines.popleft()) + 1
            self._held -= size
            self._left_out += size

    async def _complaints(self, stderr: asyncio.StreamReader) -> None:
        while chunk := await stderr.read(_ERROR_BYTES):
            self._errors = (self._errors + chunk)[-_ERROR_BYTES:]


async def _end(process: asyncio.subprocess.Process) -> None:
    for stop in (process.terminate, process.kill):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            stop()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _ENDING_S)
        except asyncio.CancelledError:
            # Told twice to stop: nobody waits any more, and nothing may be left running.
            with suppress(ProcessLookupError):
                process.kill()
            raise


def _last_line(raw: bytes) -> str:
    lines = [line for line in raw.splitlines() if line.strip()]
    return redact(decode(lines[-1])).strip() if lines else ""
