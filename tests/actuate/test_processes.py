"""Processes of our own: found again, signalled as a group, and nobody else's touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdops.actuate import processes
from pdops.errors import DeploymentError

FAMILY = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    processes.stop_marked(str(tmp_path), grace_s=0.2)


def _spawn(tmp_path: Path, mark: str, code: str) -> processes.Ref:
    return processes.spawn([sys.executable, "-c", code], log=tmp_path / "log", mark=mark, env=dict(os.environ))


def _until(true: object, limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)


def test_a_group_is_killed_with_what_it_started(tmp_path: Path, mark: str) -> None:
    ref = _spawn(tmp_path, mark, FAMILY)
    _until(lambda: len(processes.members([ref])) == 2)
    assert processes.alive(ref)
    processes.kill(ref)
    assert not processes.alive(ref)
    assert processes.with_mark(mark) == set()


def test_one_that_will_not_end_is_ended(tmp_path: Path, mark: str) -> None:
    ref = _spawn(tmp_path, mark, STUBBORN)
    _until(lambda: (tmp_path / "log").read_text() == "on\n")
    assert processes.stop(ref, grace_s=0.2) is False
    assert not processes.alive(ref)


def test_one_that_is_slow_to_be_gone_and_shows_no_mark_meanwhile_is_waited_for(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends has no environment from when its memory is let go until it is gone."""
    going = tmp_path / "going"
    code = (
        "import pathlib, signal, sys, time\n"
        f"def end(*_): pathlib.Path({str(going)!r}).touch(); time.sleep(1.5); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('on', flush=True); time.sleep(60)"
    )
    ref = _spawn(tmp_path, mark, code)
    _until(lambda: (tmp_path / "log").read_text() == "on\n")
    real = processes._environment
    monkeypatch.setattr(processes, "_environment", lambda pid: b"" if going.exists() and pid == ref.pid else real(pid))
    processes.stop(ref)
    assert not processes.alive(ref)


def test_one_whose_environment_may_not_be_read_is_not_taken_as_ending(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may read everything cannot show it, so the answer of the kernel is a double."""
    ref = _spawn(tmp_path, mark, "import time; time.sleep(60)")
    with monkeypatch.context() as closed:
        closed.setattr(processes, "_environment", lambda _: None)
        assert not processes._ending(ref.pid, str(ref.start_ticks))
        closed.setattr(processes, "_environment", lambda _: b"")
        assert processes._ending(ref.pid, str(ref.start_ticks))


def test_one_that_ends_when_asked_says_so(tmp_path: Path, mark: str) -> None:
    ref = _spawn(tmp_path, mark, "import time; time.sleep(60)")
    assert processes.stop(ref) is True
    assert processes.exit_status(ref) == -signal.SIGTERM


def test_one_that_has_just_been_started_can_be_stopped(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that the kernel is still loading shows an empty environment, as it does on a busy machine."""
    real, looks = processes._environment, iter(range(3))
    monkeypatch.setattr(processes, "_environment", lambda pid: b"" if next(looks, None) is not None else real(pid))
    ref = _spawn(tmp_path, mark, "import time; time.sleep(60)")
    assert processes.members([ref]) == {ref.pid}
    processes.kill(ref)
    assert not processes.alive(ref)


def test_a_number_given_to_somebody_else_since_is_left_alone(mark: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True) as other:
        ticks = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
        for ref in (processes.Ref(other.pid, ticks, mark), processes.Ref(other.pid, ticks + 1, mark)):
            processes.kill(ref, timeout_s=0.2)
            processes.stop(ref, grace_s=0.2)
        assert other.poll() is None
        assert not processes.alive(processes.Ref(other.pid, ticks + 1, mark))
        other.kill()


def test_orphans_are_found_by_their_mark(tmp_path: Path, mark: str) -> None:
    ref = _spawn(tmp_path, mark, FAMILY)
    _until(lambda: len(processes.members([ref])) == 2)
    os.kill(ref.pid, signal.SIGKILL)
    _until(lambda: not processes.alive(ref))
    assert len(processes.with_mark(mark)) == 1
    assert processes.stop_marked(mark, grace_s=0.5) == 1
    assert processes.with_mark(mark) == set()


def test_a_frozen_one_is_told_and_can_be_stopped(tmp_path: Path, mark: str) -> None:
    ref = _spawn(tmp_path, mark, "import time; time.sleep(60)")
    processes.send(ref, signal.SIGSTOP)
    _until(lambda: processes.stopped(ref))
    assert processes.alive(ref)
    assert processes.stop(ref) is True


def test_a_program_that_is_not_there_is_named(tmp_path: Path, mark: str) -> None:
    with pytest.raises(DeploymentError, match="no-such-program"):
        processes.spawn(["/no-such-program"], log=tmp_path / "log", mark=mark, env={})


UNTOLD = (
    "import os, subprocess, sys, time; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env={}); time.sleep(60)"
)


def test_one_that_shows_no_mark_is_killed_with_its_group(tmp_path: Path, mark: str) -> None:
    """Programs that give themselves a title overwrite their environment; engine workers do."""
    ref = _spawn(tmp_path, mark, UNTOLD)
    _until(lambda: len(processes.members([ref])) == 2)
    assert len(processes.with_mark(mark)) == 2
    (child,) = processes.members([ref]) - {ref.pid}
    assert processes.marked(child) is None
    processes.kill(ref)
    _until(lambda: not Path(f"/proc/{child}").exists())


def test_one_that_shows_no_mark_is_found_when_its_leader_has_died(tmp_path: Path, mark: str) -> None:
    ref = _spawn(tmp_path, mark, UNTOLD)
    _until(lambda: len(processes.members([ref])) == 2)
    os.kill(ref.pid, signal.SIGKILL)
    _until(lambda: not processes.alive(ref))
    (child,) = processes.members([ref])
    assert processes.stop(ref, grace_s=5.0) is True
    _until(lambda: not Path(f"/proc/{child}").exists())


TITLED = (
    "import ctypes, time; from pathlib import Path; "
    "begin, end = map(int, Path('/proc/self/stat').read_text().rpartition(')')[2].split()[47:49]); "
    "ctypes.memset(begin, 0, end - begin); print('titled', flush=True); time.sleep(60)"
)
"""What setproctitle makes of the environment of a program with a short title: zeros."""


def _titled(tmp_path: Path, mark: str) -> processes.Ref:
    ref = _spawn(tmp_path, mark, TITLED)
    _until(lambda: (tmp_path / "log").read_text() == "titled\n")
    assert processes.marked(ref.pid) is None
    return ref


def test_a_leader_that_gave_itself_a_title_is_stopped(tmp_path: Path, mark: str) -> None:
    """vllm-router does: what it shows of its environment holds no mark."""
    ref = _titled(tmp_path, mark)
    assert processes.members([ref]) == {ref.pid}
    assert processes.stop(ref, grace_s=20.0) is True
    assert processes.exit_status(ref) == -signal.SIGTERM


def test_a_leader_that_gave_itself_a_title_is_stopped_with_what_carries_the_mark(tmp_path: Path, mark: str) -> None:
    ref = _titled(tmp_path, mark)
    assert processes.stop_marked(mark, [ref]) == 1
    assert not processes.alive(ref)


def test_a_title_of_another_that_began_at_another_time_is_left_alone(tmp_path: Path, mark: str) -> None:
    ref = _titled(tmp_path, mark)
    other = processes.Ref(ref.pid, ref.start_ticks + 1, mark)
    assert processes.members([other]) == set()
    assert processes.stop_marked(mark, [other], grace_s=0.2) == 0
    assert processes.alive(ref)
    processes.kill(ref)
    assert not processes.alive(ref)


def test_a_group_whose_number_was_given_to_another_is_not_ours(tmp_path: Path, mark: str) -> None:
    ref = _spawn(tmp_path, mark, UNTOLD)
    _until(lambda: len(processes.members([ref])) == 2)
    assert processes.members([processes.Ref(ref.pid, ref.start_ticks - 1, mark)]) == set()


def test_a_daemon_whose_leader_has_ended_is_somebody_elses(mark: str) -> None:
    """It keeps the session of a leader that is gone, so its number and start alone would fit what is written down."""
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as done:
        assert done.stdout is not None
        daemon = int(done.stdout.readline())
    try:
        ref = processes.Ref(done.pid, 0, mark)
        assert processes.members([ref]) == set()
        assert processes.stop_marked(mark, [ref], grace_s=0.2) == 0
        assert Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[0] in "SR"
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_what_was_started_and_not_written_down_is_found_by_its_log_also_under_a_title(
    tmp_path: Path, mark: str
) -> None:
    plain = _spawn(tmp_path, mark, "import time; time.sleep(60)")
    titled = _titled(tmp_path, mark)
    assert processes.started(tmp_path / "log", mark) == (plain, titled)
    assert processes.words(plain.pid)[0] == sys.executable


def test_who_writes_another_log_carries_another_mark_or_leads_nothing_is_not_found(tmp_path: Path, mark: str) -> None:
    family = _spawn(tmp_path, mark, FAMILY)
    other = processes.spawn(
        [sys.executable, "-c", "import time; time.sleep(60)"], log=tmp_path / "log", mark=f"{mark}/other", env=dict(os.environ)
    )  # fmt: skip
    try:
        _until(lambda: len(processes.members([family])) == 2)
        assert processes.started(tmp_path / "log", mark) == (family,), "neither its child nor the other's"
        assert processes.started(tmp_path / "none", mark) == ()
        (tmp_path / "second").touch()
        assert processes.started(tmp_path / "second", mark) == ()
    finally:
        processes.kill(other)
