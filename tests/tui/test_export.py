"""What leaves the screen cannot harm what opens it."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import pytest

from pdops.errors import UsageError
from pdops.model.cluster import Cluster
from pdops_tui.export import to_csv, to_markdown, write_new
from pdops_tui.models.screen import Screen, build
from tests.tui import build as b


def named(name: str) -> Screen:
    who: Cluster = b.cluster(1, 1, router=False)
    workers = tuple(dataclasses.replace(w, id=f"{name}{w.id}") for w in who.workers)
    view = b.view(dataclasses.replace(who, workers=workers), seconds=5)
    return build(b.snapshot(view, b.healthy_report(view)))


@pytest.mark.parametrize("name", ["=cmd()|", "+1+", "@SUM(", "-2+3+"])
def test_no_cell_is_a_formula(name: str) -> None:
    rows = list(csv.reader(io.StringIO(to_csv(named(name)))))
    ids = {row[4] for row in rows[1:] if row[3] == "worker"}
    assert ids
    assert all(i.startswith("'") for i in ids)


def test_backticks_in_names_do_not_end_the_block() -> None:
    text = to_markdown(named("````x"))
    fence = next(line for line in text.splitlines() if line.endswith("text") and line.startswith("`"))
    assert fence == "`````text"
    assert text.rstrip().endswith("`````")


def test_a_file_is_written_once(tmp_path: Path) -> None:
    assert write_new(str(tmp_path / "x"), "a") == str(tmp_path / "x")
    with pytest.raises(UsageError, match="the file exists"):
        write_new(str(tmp_path / "x"), "b")
    with pytest.raises(UsageError, match="no such file or directory"):
        write_new(str(tmp_path / "none" / "x"), "b")
    with pytest.raises(UsageError, match="not written"):
        write_new("a\0b", "c")
    with pytest.raises(UsageError, match="not written"):
        write_new("~nobody-of-that-name/x", "c")
    assert (tmp_path / "x").read_text() == "a"


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="the file exists"):
        write_new(str(tmp_path / "x"), "a")
    assert not (tmp_path / "elsewhere").exists()
