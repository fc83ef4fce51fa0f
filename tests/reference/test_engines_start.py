"""What the start makes of engines whose log says that a port is taken. Engines are doubles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pdops.reference.effects import Engines
from pdops.reference.running import Running

TAKEN = "OSError: [Errno 98] Address already in use\n"
ENGINE = cast("Any", SimpleNamespace(id="prefill-0"))


@dataclass
class Double:
    """A deployment of one engine that starts, and serves or not."""

    file: Path
    why_not: str | None
    state: Any = None
    runs: bool = False

    def start(self, worker: str) -> None:
        self.runs, self.state = True, SimpleNamespace(processes={worker: None})

    def alive(self, _worker: str) -> bool:
        return self.runs

    def log(self, _worker: str) -> Path:
        return self.file

    def serves(self, _worker: str) -> str | None:
        return self.why_not


def stage(double: Double) -> Engines:
    made = Engines(cast("Running", double), [ENGINE])
    made.begin()
    return made


def test_an_engine_that_could_not_listen_ends_the_start(tmp_path: Path) -> None:
    started = stage(Double(tmp_path / "log", "it does not answer yet"))
    (tmp_path / "log").write_text(TAKEN)
    found = started.probe()
    assert (found.ok, found.fatal) == (False, True)
    assert "prefill-0: one of its ports was taken meanwhile" in found.detail


@pytest.mark.parametrize("earlier", ["", TAKEN])
def test_one_that_loads_is_waited_for_whatever_an_earlier_start_said(tmp_path: Path, earlier: str) -> None:
    (tmp_path / "log").write_text(earlier)
    found = stage(Double(tmp_path / "log", "it does not answer yet")).probe()
    assert (found.ok, found.fatal) == (False, False)


def test_one_that_serves_is_up_whatever_its_log_says(tmp_path: Path) -> None:
    started = stage(Double(tmp_path / "log", None))
    (tmp_path / "log").write_text(TAKEN)
    assert started.probe().ok
