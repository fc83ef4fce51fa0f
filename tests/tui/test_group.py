"""Several sources behind one screen, and beside each other."""

from __future__ import annotations

import dataclasses

import pytest

from pdops.errors import UnreachableError
from pdops.model.cluster import Slo
from pdops_tui.group import Group
from pdops_tui.models.compare import Comparison, compare
from pdops_tui.once import render_beside
from pdops_tui.screens.compare import compared_lines
from pdops_tui.snapshot import Command, Snapshot
from tests.tui import build as b
from tests.tui.test_app import Hand

BEFORE = b.view(seconds=160)
AFTER = b.view(seconds=160, life=b.slow_link(90))


def made(*, after: bool) -> Snapshot:
    view = AFTER if after else BEFORE
    return b.snapshot(view, b.fault_report(view) if after else b.healthy_report(view))


@pytest.fixture
def hands() -> tuple[Hand, Hand]:
    return Hand(made(after=False)), Hand(made(after=True))


def test_one_is_on_the_screen_and_all_are_beside_it(hands: tuple[Hand, Hand]) -> None:
    group = Group(hands, ("a", "b"))
    group.start()
    assert all(hand.running for hand in hands)
    first = group.latest()
    assert first is not None
    assert (first.number, first.sources, first.view) == (0, ("a", "b"), BEFORE)
    assert [(s.number, s.view) for s in first.beside] == [(0, BEFORE), (1, AFTER)]
    group.control(Command("source", 1))
    second = group.latest()
    assert second is not None
    assert (second.number, second.view) == (1, AFTER)
    assert second.seq != first.seq
    group.control(Command("source", 2))
    assert group.latest() == first
    group.stop()
    assert not any(hand.running for hand in hands)


def test_news_of_any_source_is_news(hands: tuple[Hand, Hand]) -> None:
    group = Group(hands, ("a", "b"))
    seen = set()
    for hand in (*hands, *hands):
        snapshot = group.latest()
        assert snapshot is not None
        seen.add(snapshot.seq)
        hand.put(AFTER)
    assert len(seen) == 4


def test_time_moves_in_all_but_what_is_of_one_stays_with_it(hands: tuple[Hand, Hand]) -> None:
    group = Group(hands, ("a", "b"))
    together = [Command("toggle"), Command("step", 1), Command("fraction", 0.5), Command("promise", slo=Slo())]
    alone = [Command("event", 1), Command("mark"), Command("record", text="x")]
    group.control(Command("source", 1))
    for command in together + alone:
        group.control(command)
    assert hands[0].commands == together
    assert hands[1].commands == together + alone
    group.control(Command("link"))
    group.control(Command("step", 1))
    assert hands[0].commands == together
    snapshot = group.latest()
    assert snapshot is not None
    assert not snapshot.linked


def test_a_source_without_data_does_not_take_the_others_off_the_screen(hands: tuple[Hand, Hand]) -> None:
    hands[0].snapshot, hands[0].failure = None, UnreachableError("nobody answers", where="prod-us")
    group = Group(hands, ("us", "eu"))
    shown = group.latest()
    assert group.failure is None
    assert shown is not None
    assert (shown.view, shown.trouble) == (AFTER, "us: nobody answers: prod-us")
    hands[1].snapshot, hands[1].failure = None, UnreachableError("nobody answers", where="prod-eu")
    assert group.latest() is None
    assert group.failure is hands[0].failure


def found(comparison: Comparison, section: str, label: str) -> tuple[list[str], str]:
    (lines,) = (s.lines for s in comparison.sections if s.title == section)
    (line,) = (x for x in lines if x.label == label)
    return [c.text for c in line.cells], line.change.text


def test_before_and_after_say_what_changed_and_which_way() -> None:
    comparison = compare((made(after=False), made(after=True)))
    assert found(comparison, "DIAGNOSIS", "verdict")[0] == ["ok healthy", "[X] fault"]
    cells, change = found(comparison, "DECODE POOL", "KV%")
    assert cells[0] != cells[1]
    assert change.startswith("x")
    assert found(comparison, "DECODE POOL", "workers up") == (["2/2", "2/2"], "")
    assert found(comparison, "CLIENTS", "req/s")[1] == "same"


def test_what_is_not_known_on_one_side_has_no_change() -> None:
    empty = b.view(seconds=5, life=lambda *_: False)
    comparison = compare((b.snapshot(empty, None), made(after=True)))
    assert found(comparison, "DIAGNOSIS", "verdict")[0] == ["?", "[X] fault"]
    assert found(comparison, "DECODE POOL", "KV%")[1] == "?"
    assert found(comparison, "CLIENTS", "TTFT p95")[1] == "?"


def test_a_bound_has_no_ratio() -> None:
    comparison = compare((made(after=False), made(after=True)))
    for section in comparison.sections:
        for line in section.lines:
            if any(c.text.startswith((">=", "<=", "~")) for c in (line.cells[0], line.cells[-1])):
                assert line.change.text in ("?", "")


def test_two_percentiles_are_not_compared() -> None:
    other = dataclasses.replace(AFTER.cluster, slo=Slo(ttft_s=1.0, percentile=0.5))
    view = dataclasses.replace(AFTER, cluster=other)
    comparison = compare((made(after=False), b.snapshot(view, b.fault_report(view))))
    assert found(comparison, "CLIENTS", "TTFT")[1] == "not the same"


def test_a_pool_that_one_source_lacks_is_unknown_there() -> None:
    other = b.view(b.cluster(2, 0), seconds=30)
    comparison = compare((b.snapshot(other, None), made(after=True)))
    assert found(comparison, "DECODE POOL", "workers up")[0] == ["?", "2/2"]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_sources_that_do_not_fit_are_counted(width: int) -> None:
    shown = [made(after=i > 0) for i in range(9)]
    text = render_beside(shown, width)
    assert max(len(line) for line in text.splitlines()) <= width
    left = 9 - text.splitlines()[1].count("prod-eu")
    assert (f"{left} more not shown" in text) is (left > 0 and width > 40)


def test_the_source_of_the_keys_is_marked() -> None:
    lines = compared_lines(compare((made(after=False), made(after=True))), 100, number=1)
    assert "> " in "".join(text for text, _ in lines[1])


def test_hostile_names_stay_text_beside_each_other() -> None:
    hostile = "\x1b[2J[bold]x[/]\u202e"
    cluster = dataclasses.replace(AFTER.cluster, name=hostile)
    shown = b.snapshot(dataclasses.replace(AFTER, cluster=cluster), b.fault_report(AFTER))
    text = render_beside([dataclasses.replace(shown, source=hostile), made(after=True)], 100)
    assert not any(c in text for c in "\x1b\u202e")
    assert "[bold]x[/]" in text
