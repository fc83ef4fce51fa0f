"""The screen on a real (pseudo) terminal: how it leaves it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pdops_tui.widgets.terminal import _Output

RECORDING = Path(__file__).parents[2] / "fixtures" / "recordings" / "prefill-killed.pdrec"
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


def _until(terminal: int, wanted: bytes, seen: bytes = b"") -> bytes:
    """Return what the terminal was sent, up to its end or a text."""
    while wanted not in seen:
        try:
            more = os.read(terminal, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    return seen


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("columns", "number", "status"),
    [(None, signal.SIGTERM, 143), ("9" * 30, signal.SIGTERM, 143), (None, signal.SIGHUP, 129)],
)
def test_a_terminated_screen_gives_the_terminal_back(columns: str | None, number: int, status: int) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", **({"COLUMNS": columns, "LINES": columns} if columns else {})}
    command = [sys.executable, "-m", "pdops", "top", "--replay", str(RECORDING)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True) as top:
        os.close(theirs)
        try:
            seen = _until(ours, b"DIAGNOSIS", _until(ours, ENTER))
            assert ENTER in seen
            os.kill(top.pid, number)
            assert LEAVE in _until(ours, LEAVE)
            _until(ours, b"\0never\0")
            assert top.wait(60) == status
        finally:
            top.kill()
            os.close(ours)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("hang_up", [False, True])
def test_a_screen_whose_terminal_vanished_ends(hang_up: bool) -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "pdops", "top", "--replay", str(RECORDING)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True) as top:
        os.close(theirs)
        try:
            _until(ours, b"DIAGNOSIS", _until(ours, ENTER))
            os.close(ours)
            if hang_up:
                os.kill(top.pid, signal.SIGHUP)
            assert top.wait(60) == 129
        finally:
            top.kill()


def test_a_terminal_that_is_full_and_never_waits_is_not_lost() -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(theirs, False)
    with open(theirs, "w", encoding="utf-8", newline="") as file:
        output = _Output(file)
        wanted = "ä" * 200_000 + "end"
        writer = threading.Thread(target=output.write, args=(wanted,), daemon=True)
        writer.start()
        seen = _until(ours, b"end")
        writer.join(60)
        assert not output.lost
        assert seen.decode() == wanted
        os.close(ours)
        output.write("nobody reads")
        assert output.lost
