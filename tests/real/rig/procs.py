"""Start, signal and stop processes of our own, and nobody else's.

Each process leads a group of its own, so that a signal reaches what it spawned and nothing more.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import ClassVar

from pdops.clock import WallClock
from pdops.errors import PdopsError

LOOPBACK = "127.0.0.1"
CLOCK = WallClock()


class RigError(PdopsError):
    """The rig cannot be built, started or driven."""

    exit_code = 3


def free_ports(count: int) -> list[int]:
    """Return ports the operating system gives out now.

    All are held until the last is known, so they differ; another program may still take one before it is used.
    """
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            holder = stack.enter_context(socket.socket())
            holder.bind((LOOPBACK, 0))
            ports.append(int(holder.getsockname()[1]))
        return ports


class Process:
    """One process, leader of its own group, with its output in a file.

    Args:
        name: how messages call it.
        command: program and arguments.
        log: file its output is appended to.
        env: its whole environment; None is ours.
        cwd: its working directory.
        capture: keep standard output for `read_line` and `finish`; only standard error goes to the log then.
    """

    live: ClassVar[set[Process]] = set()

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        capture: bool = False,
    ) -> None:
        self.name, self.command, self.log = name, tuple(command), log
        _install_cleanup()
        with log.open("ab") as sink:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if capture else sink,
                stderr=sink if capture else subprocess.STDOUT,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                start_new_session=True,
            )
        self.started_s = CLOCK.now()
        Process.live.add(self)

    @property
    def pid(self) -> int:
        """The process id, which is the group id too."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, None while it runs."""
        return self._popen.poll()

    @property
    def alive(self) -> bool:
        """Whether it runs (a stopped process does)."""
        return self._popen.poll() is None

    def members(self) -> list[int]:
        """Return the ids of all live processes of the group, the leader's first."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == self.pid and fields[0] != "Z":
                    found.append(int(entry.name))
        return sorted(found, key=lambda pid: (pid != self.pid, pid))

    def send(self, number: int) -> None:
        """Send a signal to the whole group; a group that is gone is no error."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """End the whole group at once, as a crash would, and collect it and the shared memory it could not free."""
        left = self._shared_memory()
        self.send(signal.SIGKILL)
        self._collect(30.0)
        self._unlink(left)

    def stop(self, *, first: int = signal.SIGTERM, grace_s: float = 15.0) -> int | None:
        """Ask the group to end, insist after `grace_s` seconds, and return the leader's exit status."""
        if self in Process.live:
            left = self._shared_memory()
            self.send(signal.SIGCONT)
            self.send(first)
            self._collect(grace_s)
            self.send(signal.SIGKILL)
            self._collect(30.0)
            self._unlink(left)
        return self._popen.poll()

    def finish(self, timeout_s: float) -> str:
        """Wait for the end and return the captured output.

        Raises:
            RigError: it did not end in time, or ended with an error.
        """
        try:
            text, _ = self._popen.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            raise RigError(f"{self.name} did not end within {timeout_s:.0f} s", where=str(self.log)) from None
        Process.live.discard(self)
        if self._popen.returncode:
            why = f"exit status {self._popen.returncode}"
            raise RigError(f"{self.name} failed", where=str(self.log), why=why, hint="read the end of that file")
        return (text or b"").decode()

    def read_line(self, timeout_s: float) -> str:
        """Return the next line of captured output.

        Raises:
            RigError: none came in time.
        """
        assert self._popen.stdout is not None, "started without capture"
        stdout, lines = self._popen.stdout, list[bytes]()
        reader = threading.Thread(target=lambda: lines.append(stdout.readline()), daemon=True)
        reader.start()
        reader.join(timeout_s)
        if not lines or not lines[0]:
            why = f"nothing within {timeout_s:.0f} s" if self.alive else f"exit status {self.returncode}"
            raise RigError(f"{self.name} did not start", where=str(self.log), why=why, hint="read the end of that file")
        return lines[0].decode().rstrip("\n")

    def _shared_memory(self) -> set[Path]:
        found = set()
        for pid in self.members():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
                found |= {Path(line[line.index("/dev/shm/") :]) for line in lines if "/dev/shm/" in line}
        return found

    def _unlink(self, segments: set[Path]) -> None:
        if not self.members():
            for segment in segments:
                # A path of a segment that was unlinked already ends in " (deleted)" and exists no more.
                segment.unlink(missing_ok=True)

    def _collect(self, timeout_s: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)
        if self._popen.poll() is not None and not self.members():
            Process.live.discard(self)
            if self._popen.stdout is not None:
                self._popen.stdout.close()


def stop_all() -> None:
    """Stop every process that was started and still lives."""
    for process in list(Process.live):
        process.stop(grace_s=5.0)


_installed = threading.Event()


def _install_cleanup() -> None:
    if _installed.is_set():
        return
    _installed.set()
    atexit.register(stop_all)
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    # Leaving through SystemExit lets context managers and atexit stop what runs.
    sys.exit(128 + signal.SIGTERM)


def main(body: Callable[[], int | None]) -> None:
    """Run a program's body; print an error of ours as two lines and exit with its status."""
    try:
        status = body() or 0
    except PdopsError as error:
        sys.stderr.write(f"pdops: {error}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        status = error.exit_code
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
