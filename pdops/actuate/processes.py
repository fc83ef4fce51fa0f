"""Start, find, signal and stop processes of our own, and nobody else's, across runs of the command line.

Each process leads a session and group of its own and carries a mark in its environment. A process is ours only when both
its start time and its mark are the ones written down, so a number that the system has given to another program since is
never signalled. Of one that has written a title over its environment, and so over the mark, the start time has to do.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdops.clock import WallClock
from pdops.errors import DeploymentError

MARK = "PDOPS_DEPLOYMENT"
"""Environment variable that names the deployment a process belongs to."""
CONT, TERM = signal.SIGCONT, signal.SIGTERM
_CLOCK = WallClock()
_ENDING_S = 15.0
"""The longest to wait for processes that have begun to end: a busy kernel takes seconds to free a large one's memory."""
_POLL_S = 0.05
_LOADED_S = 10.0
"""The longest to wait for the kernel to have loaded a program: milliseconds, unless the machine is very busy."""
_SHM = "/dev/shm/"  # noqa: S108  only what our own processes have mapped there is looked at
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class Ref:
    """One process: its id, which is its group's too, its start in clock ticks since boot, and its mark."""

    pid: int
    start_ticks: int
    mark: str


def spawn(command: Sequence[str], *, log: Path, mark: str, env: Mapping[str, str], cwd: Path | None = None) -> Ref:
    """Start a process that outlives us and shows its mark; its output is appended to `log`.

    Raises:
        DeploymentError: the program cannot be started, or ended at once.
    """
    with log.open("ab") as sink:
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**env, MARK: mark},
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise DeploymentError(
                "cannot start a program",
                where=command[0],
                why=error.strerror or str(error),
                hint="check that it is installed and may be run",
            ) from error
    _children[child.pid] = child
    _await_environment(child.pid)
    fields = _stat(child.pid)
    if fields is None:
        raise DeploymentError("a program ended at once", where=str(log), hint="read the end of that file")
    return Ref(child.pid, int(fields[19]), mark)


def _await_environment(pid: int) -> None:
    """Wait until a process shows its environment: until then it would not be known for ours, and so not be stopped."""
    end = _CLOCK.monotonic() + _LOADED_S
    while _environment(pid) == b"" and _CLOCK.monotonic() < end:
        fields = _stat(pid)
        if fields is None or fields[0] in "ZX":
            break
        time.sleep(0.001)


def alive(ref: Ref) -> bool:
    """Whether it still runs (a stopped process does, one that only waits to be collected does not)."""
    child = _children.get(ref.pid)
    if child is not None and child.poll() is not None:
        return False
    fields = _stat(ref.pid)
    return fields is not None and fields[0] not in "ZX" and int(fields[19]) == ref.start_ticks


def exit_status(ref: Ref) -> int | None:
    """Return how it ended, or None when it runs or was started by another run of ours."""
    child = _children.get(ref.pid)
    return child.poll() if child is not None else None


def stopped(ref: Ref) -> bool:
    """Whether it is stopped where it is (SIGSTOP)."""
    fields = _stat(ref.pid)
    return alive(ref) and fields is not None and fields[0] == "T"


def members(refs: Iterable[Ref]) -> set[int]:
    """Return every live process of these groups that is ours.

    One that has overwritten its environment, as programs do that give themselves a title, shows no mark; it is ours when it
    does not begin with a variable either and is of the session its group's leader made, and that leader, if it still lives,
    is the one written down: of its start time, and with the mark or a title over it.
    """
    wanted = {ref.pid: ref for ref in refs}
    table = [(pid, fields, marked(pid)) for pid, fields in _table()]
    # A number is not given to another program while a group or session still goes by it.
    taken = {pid for pid, fields, mark in table if pid in wanted and not _leads(wanted[pid], fields, mark)}
    found = set()
    for pid, fields, mark in table:
        ref = wanted.get(int(fields[2]))
        if ref is None or ref.pid in taken:
            continue
        of_session = int(fields[3]) == ref.pid and int(fields[19]) >= ref.start_ticks
        untold = mark is None and of_session and overwritten(pid)
        if mark == ref.mark or untold:
            found.add(pid)
    return found


def with_mark(mark: str) -> set[int]:
    """Return every live process that carries a mark, whoever started it and however it lost its parent.

    With those of the same session that show no mark, because they have overwritten their environment.
    """
    table = [(pid, int(fields[3]), marked(pid)) for pid, fields in _table()]
    found = {pid for pid, _, has in table if has == mark}
    return found | {pid for pid, session, has in table if has is None and session in found and overwritten(pid)}


def started(log: Path, mark: str) -> tuple[Ref, ...]:
    """Return how processes are found that `spawn` started with this log and mark, when nobody wrote down their numbers.

    Each leads a session and writes the log, and carries the mark or has put a title over it.
    """
    found = []
    for pid, fields in _table():
        if int(fields[3]) != pid or not _writes(pid, log):
            continue
        has = marked(pid)
        if has == mark or (has is None and overwritten(pid)):
            found.append(Ref(pid, int(fields[19]), mark))
    return tuple(sorted(found, key=lambda ref: ref.start_ticks))


def words(pid: int) -> tuple[str, ...]:
    """Return the command line of a process as it shows it."""
    with contextlib.suppress(OSError):
        shown = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return tuple(word for word in shown.split("\0") if word)
    return ()


def overwritten(pid: int) -> bool:
    """Whether a process's environment can be read and begins with no variable, as after setting a title.

    A title is written over the first variables; the last ones may stay. One that shows its first variable and no mark is
    somebody else's: a daemon keeps the session of a leader that has ended.
    """
    shown = _environment(pid)
    return shown is not None and _titled(shown)


def _leads(ref: Ref, fields: list[str], mark: str | None) -> bool:
    if int(fields[19]) != ref.start_ticks:
        return False
    if mark is not None:
        return mark == ref.mark
    # One whose program is only being loaded has an empty environment, which nobody has overwritten.
    shown = _environment(ref.pid)
    return shown is not None and shown != b"" and _titled(shown)


def marked(pid: int) -> str | None:
    """Return the mark in a process's environment, or None without one or when it may not be read."""
    for entry in (_environment(pid) or b"").split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == MARK.encode():
            return value.decode(errors="replace")
    return None


def _writes(pid: int, log: Path) -> bool:
    """Whether the standard output of a process is this file."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/fd/1").samefile(log)
    return False


def _titled(environment: bytes) -> bool:
    return b"=" not in environment.partition(b"\0")[0]


def _environment(pid: int) -> bytes | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return None


def send(ref: Ref, number: int) -> None:
    """Send a signal to the whole group; a group that is gone is no error."""
    for pid in members([ref]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(ref: Ref, timeout_s: float = 30.0) -> None:
    """End the whole group at once, as a crash would, and free the shared memory it could not."""
    _end(lambda: members([ref]), (), timeout_s)


def stop(ref: Ref, *, grace_s: float = 15.0, first: int = signal.SIGTERM) -> bool:
    """Ask the group to end and insist after `grace_s` seconds; return whether it ended by itself."""
    return _end(lambda: members([ref]), ((first, grace_s),))


def stop_marked(mark: str, refs: Iterable[Ref] = (), *, grace_s: float = 5.0) -> int:
    """Stop everything that carries a mark or belongs to these groups; return how many processes there were."""
    groups = tuple(refs)

    def find() -> set[int]:
        return with_mark(mark) | members(groups)

    found = len(find())
    _end(find, ((signal.SIGTERM, grace_s),))
    return found


def _end(find: Callable[[], set[int]], asks: Sequence[tuple[int, float]], timeout_s: float = 30.0) -> bool:
    met: dict[int, str] = {}

    def left() -> set[int]:
        found = find()
        met.update((pid, fields[19]) for pid in found - met.keys() if (fields := _stat(pid)) is not None)
        return found

    there = left()
    segments = _shared_memory(there)
    asked = True
    for number, grace_s in asks:
        for pid in there:
            for what in (signal.SIGCONT, number):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, what)
        if _gone(left, grace_s):
            break
    else:
        asked = not there
        end = _CLOCK.monotonic() + timeout_s
        # What is killed may have started more in the meantime.
        while (stay := left()) and _CLOCK.monotonic() < end:
            for pid in stay:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _gone(left, 1.0)
    # One that is ending shows no environment, and so no mark, some time before it is gone.
    _gone(lambda: {pid for pid, ticks in met.items() if _ending(pid, ticks)}, _ENDING_S)
    for child in _children.values():
        child.poll()
    if not find():
        for segment in segments:
            # A path of a segment that was unlinked already ends in " (deleted)" and exists no more.
            segment.unlink(missing_ok=True)
    return asked


def _ending(pid: int, start_ticks: str) -> bool:
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX" and fields[19] == start_ticks and _environment(pid) == b""


def _gone(find: Callable[[], set[int]], timeout_s: float) -> bool:
    end = _CLOCK.monotonic() + timeout_s
    while find():
        for child in list(_children.values()):
            child.poll()
        if _CLOCK.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True


def _shared_memory(pids: Iterable[int]) -> set[Path]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found |= {Path(line[line.index(_SHM) :]) for line in lines if _SHM in line}
    return found


def _table() -> list[tuple[int, list[str]]]:
    me = os.getpid()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != me:
            fields = _stat(int(entry.name))
            if fields is not None and fields[0] not in "ZX":
                found.append((int(entry.name), fields))
    return found


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name: state, parent, group …, and start time at 19."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return None
