"""The screen as text."""

from __future__ import annotations

import dataclasses

import pytest

from pdops.model.frame import Event, EventKind
from pdops.model.report import Report
from pdops.model.view import View
from pdops_tui.draw.line import plain
from pdops_tui.draw.table import Grid, row_line
from pdops_tui.models.format import Cell
from pdops_tui.models.pools import Row
from pdops_tui.models.screen import build
from pdops_tui.models.text import cells
from pdops_tui.once import render_once
from pdops_tui.snapshot import Position
from tests.tui import build as b
from tests.tui.states import STATES


def seen(name: str) -> tuple[View, Report | None]:
    snapshot = STATES[name]()
    return snapshot.view, snapshot.report


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("height", [None, 6, 10, 14, 24, 36, 60])
@pytest.mark.parametrize("width", [40, 57, 80, 100, 120, 175, 176, 240])
def test_no_line_is_wider_and_no_screen_taller_than_asked(name: str, width: int, height: int | None) -> None:
    view, report = seen(name)
    lines = render_once(view, report, width, height).splitlines()
    assert max(cells(line) for line in lines) <= width
    if height is not None:
        assert len(lines) <= height


def test_the_verdict_is_on_the_smallest_screen() -> None:
    view, report = seen("degraded")
    assert "[X] FAULT" in render_once(view, report, 40, 6)


@pytest.mark.parametrize(("name", "worker"), [("healthy", "prefill-0"), ("unknown", "decode-7")])
def test_a_row_of_each_table_is_on_a_very_small_screen(name: str, worker: str) -> None:
    view, report = seen(name)
    for height in (8, 10, 12):
        lines = render_once(view, report, 40, height).splitlines()
        assert any(line.startswith(f" {worker} ") for line in lines), (height, lines)
        assert sum(line.startswith((" prefill-", " decode-")) for line in lines) >= 2, (height, lines)


def test_a_number_that_does_not_fit_is_not_shown_as_another_one() -> None:
    row = Row("w", "w", Cell("ok"), (Cell(">=12345", sort=12345.0), Cell("45", sort=45.0)))
    table = build(STATES["healthy"]()).tables[0]
    layout = Grid(60, 8, 5, 1, 1, (0, 1))
    text = plain([row_line(table, row, layout)])
    assert "…" in text
    assert "123" not in text
    assert "45" in text


def test_without_a_height_every_worker_is_listed() -> None:
    view, report = seen("unknown")
    text = render_once(view, report, 100)
    assert all(f"decode-{i} " in text for i in range(12))


def test_rows_that_do_not_fit_are_counted_and_the_pool_row_stays() -> None:
    view, report = seen("unknown")
    text = render_once(view, report, 80, 24)
    assert "more not shown" in text
    assert sum(line.startswith(" pool ") for line in text.splitlines()) == 2
    assert " decode-7  DOWN 21s" in text


@pytest.mark.parametrize("name", STATES)
def test_ascii_is_ascii_and_keeps_every_column(name: str) -> None:
    view, report = seen(name)
    drawn, spelled = (render_once(view, report, 120, 36, ascii=a) for a in (False, True))
    assert spelled.isascii()
    assert [cells(x) for x in spelled.splitlines()] == [cells(x) for x in drawn.splitlines()]


@pytest.mark.parametrize("name", STATES)
def test_ascii_calls_nothing_unknown_that_is_known(name: str) -> None:
    view, report = seen(name)
    drawn, spelled = (render_once(view, report, 200, 60, ascii=a) for a in (False, True))
    assert spelled.count("?") == drawn.count("?")


def test_colour_adds_only_colour() -> None:
    import re

    view, report = seen("degraded")
    plain, dressed = (render_once(view, report, 120, 36, color=c) for c in (False, True))
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", dressed)
    assert "\x1b[1;31m" in dressed
    assert "\x1b" not in plain
    assert [x.rstrip() for x in stripped.splitlines()] == plain.splitlines()


def test_a_narrow_split_shortens_its_labels_before_its_numbers() -> None:
    view, report = seen("unknown")
    (line,) = (x for x in render_once(view, report, 80, 24).splitlines() if x.startswith(" TTFT >="))
    assert line.startswith(" TTFT >=1.49s Pq 224ms pre 560ms hand ? fetch 0s KV 560ms Dw 144ms")


def test_replay_line_tells_place_and_gap() -> None:
    view, report = seen("degraded")
    position = Position(
        index=161, total=825, start_s=b.START_S, end_s=b.START_S + 824, at_s=view.at_s, speed=4, gap_s=18.0
    )
    text = render_once(view, report, 100, 30, position=position)
    (line,) = (x for x in text.splitlines() if "REPLAY" in x)
    assert line.startswith(" REPLAY  paused x4  frame 161/825  │")
    assert line.endswith("no data for 18 s before this 11:09:20Z")


HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J[bold red]decode[/]\u202e\u200d\r\n节点" + "A\u0301" * 40 + "\U0001f469\u200d\U0001f469"
)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 36), (200, 60), (100, None)])
def test_hostile_names_stay_text(width: int, height: int | None) -> None:
    who = b.cluster()
    bad = tuple(
        dataclasses.replace(w, id=HOSTILE + w.id, pool=HOSTILE, node=HOSTILE, version=HOSTILE) for w in who.workers
    )
    who = dataclasses.replace(who, name=HOSTILE, model=HOSTILE, workers=bad)
    events = (Event(t_s=b.START_S + 5, kind=EventKind.DOWN, worker=HOSTILE, detail=HOSTILE, revision=HOSTILE),)
    view = b.view(who, seconds=20, events=events)
    view = dataclasses.replace(view, health={w: dataclasses.replace(h, why=HOSTILE) for w, h in view.health.items()})
    report = b.fault_report(view)
    first = dataclasses.replace(report.hypotheses[0], cause=HOSTILE, next=(HOSTILE,), runbooks=(HOSTILE,))
    report = dataclasses.replace(report, hypotheses=(first,), cluster=HOSTILE)
    text = render_once(view, report, width, height, source=HOSTILE)
    assert not any(ord(c) < 32 and c != "\n" for c in text)
    assert not any(c in text for c in "\x7f\x9b\u202e\u200d\u0301")
    assert max(cells(line) for line in text.splitlines()) <= width
    heads = [line for line in text.splitlines() if " WORKER" in line]
    assert heads
