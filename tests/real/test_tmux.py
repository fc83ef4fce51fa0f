"""`pdops top` in a real terminal multiplexer, on the recording of a real incident, as a person on call sees it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdops.clock import WallClock
from pdops_tui.models.ttft import LABELS

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
]

ROOT = Path(__file__).parents[2]
INCIDENT = ROOT / "fixtures" / "recordings" / "link-cut-above-lease.pdrec"
ROOTS = os.pathsep.join(str(ROOT / part) for part in (".", "exporters", "tui", "runbooks", "dashboards"))
BOUND_S = 100.0
_POLL_S = 0.1


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, socket: Path, columns: int, lines: int) -> None:
        self._socket, self._size = socket, (str(columns), str(lines))

    def tmux(self, *args: str) -> str:
        command = ["tmux", "-S", str(self._socket), "-f", "/dev/null", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True).stdout

    def start(self, *args: str, **environ: str) -> None:
        env = {"PYTHONPATH": ROOTS, "TZ": "UTC", "LANG": "C.UTF-8", **environ}
        words = ["env", "-u", "COLUMNS", "-u", "LINES", *(f"{k}={v}" for k, v in env.items())]
        command = shlex.join([*words, sys.executable, "-m", "pdops", "top", *args])
        # What it ended with stays on the screen to be read.
        then = f"{command}; echo ended with $?; cat"
        self.tmux("new-session", "-d", "-x", self._size[0], "-y", self._size[1], then)

    def keys(self, *names: str) -> None:
        self.tmux("send-keys", *names)

    def screen(self, *more: str) -> str:
        return self.tmux("capture-pane", "-p", *more)

    def until(self, wanted: str | Callable[[str], bool]) -> str:
        """Return the screen once it is as wanted; fail with what is there when it is not in time."""
        clock = WallClock()
        end_s = clock.monotonic() + BOUND_S
        while True:
            seen = self.screen()
            if wanted in seen if isinstance(wanted, str) else wanted(seen):
                return seen
            assert clock.monotonic() < end_s, f"{wanted} did not come:\n{seen}"
            subprocess.run(["tmux", "-S", str(self._socket), "run-shell", "-d", str(_POLL_S), ""], check=False)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path / "tmux", 120, 40)
    yield made
    subprocess.run(["tmux", "-S", str(tmp_path / "tmux"), "kill-server"], check=False, capture_output=True)


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What `--json` says of the instant of the incident that says most."""
    command = [sys.executable, "-m", "pdops", "top", "--replay", str(INCIDENT), "--json"]
    env = {**os.environ, "PYTHONPATH": ROOTS}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=env)
    (source,) = json.loads(done.stdout)["sources"]
    return dict(source)


def _at(told: dict[str, Any], *more: str) -> list[str]:
    # So slow that it stands still until it is paused.
    return ["--replay", str(INCIDENT), "--at", f"{told['replay']['offset_s'] + 0.01:.3f}", "--speed", "0.1", *more]


def test_the_incident_is_named_with_its_pair_and_its_share_of_ttft(terminal: Terminal, told: dict[str, Any]) -> None:
    truth = yaml.safe_load(INCIDENT.with_name(INCIDENT.name.replace(".pdrec", ".truth.yaml")).read_text())
    (window,) = (w for w in truth["windows"] if w.get("verdict") == "fault")
    (pair,) = (s["pair"] for s in window["scopes"] if "pair" in s)
    stages = {s["stage"]: s["share"] for s in told["diagnosis"]["ttft"] if s["share"] is not None}
    stage, share = max(stages.items(), key=lambda item: item[1])
    terminal.start(*_at(told))
    terminal.until("DIAGNOSIS")
    terminal.keys("Space")
    seen = terminal.until(lambda text: "paused" in text and "[X] FAULT" in text)
    first = next(line for line in seen.splitlines() if line.startswith(" 1 [X]"))
    assert any(cause in first for cause in window["causes"])
    assert pair in first
    assert f"{LABELS[stage]} {share:.0%}" in seen
    terminal.keys("x")
    seen = terminal.until("how it was found")
    assert pair in seen


def test_no_question_mark_stands_where_data_exists(terminal: Terminal, told: dict[str, Any]) -> None:
    terminal.start(*_at(told))
    terminal.until("DIAGNOSIS")
    terminal.keys("Space")
    lines = terminal.until("paused").splitlines()
    compared = 0
    for table in told["tables"]:
        title = next(i for i, line in enumerate(lines) if re.match(rf".?.?{table['role'].upper()} ", line))
        head = lines[title + 1]
        for row in (r for r in table["rows"] if r["kind"] == "worker"):
            line = next(x for x in lines[title + 2 :] if x[1:].startswith(row["id"]))
            for column in table["columns"]:
                end = head.find(f" {column['title']} ") + len(column["title"])
                if end > len(column["title"]):
                    unknown = line[end] == "?"
                    assert unknown is (row["cells"][column["key"]]["value"] is None), column
                    compared += 1
    assert compared > 10


def test_the_window_is_resized_and_left_while_it_plays(terminal: Terminal, told: dict[str, Any]) -> None:
    terminal.start("--replay", str(INCIDENT), "--speed", "8")
    terminal.until("playing x8")
    for columns, lines in ((80, 24), (200, 60), (60, 15)):
        terminal.tmux("resize-window", "-x", str(columns), "-y", str(lines))
        words = ("PREFILL", " q quit")
        terminal.until(
            lambda text, lines=lines, words=words: (
                len(text.rstrip("\n").splitlines()) == lines and all(word in text for word in words)
            )
        )
    terminal.keys("Space")
    terminal.until("paused")
    terminal.keys("q")
    terminal.until("ended with 0")


def test_without_colour_nothing_is_lost_and_nothing_is_coloured(terminal: Terminal, told: dict[str, Any]) -> None:
    terminal.start(*_at(told), NO_COLOR="1")
    terminal.until("[X] FAULT")
    codes = re.findall(r"\x1b\[([0-9;]*)m", terminal.screen("-e"))
    numbers = {int(n) for code in codes for n in code.split(";") if n}
    assert not {n for n in numbers if 31 <= n <= 36 or 91 <= n <= 96}


def test_a_recording_that_is_none_leaves_the_terminal_as_it_was(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "zero.pdrec").touch()
    terminal.start("--replay", str(tmp_path / "zero.pdrec"))
    terminal.until("ended with 2")
    # The path is as long as it is: joined, a line that is wrapped within a word is whole again.
    seen = terminal.screen("-J")
    assert "pdops: recording cannot be read" in seen
    assert "the file is empty" in " ".join(seen.split())
    assert "hint: record again with `pdops record`" in seen
