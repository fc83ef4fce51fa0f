"""The screen is shared out so that header, pools and diagnosis are always there, and nothing overlaps."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops_tui.draw.plan import plan
from pdops_tui.draw.table import NAME, STATE, grid
from pdops_tui.models.screen import Screen, build
from tests.tui import build as b


@cache
def screen(prefill: int, decode: int) -> Screen:
    view = b.view(b.cluster(prefill, decode, store=True), seconds=3)
    return build(b.snapshot(view, b.fault_report(view)))


@given(st.sampled_from([(0, 0), (1, 1), (2, 2), (12, 3), (3, 40), (40, 40)]), st.integers(20, 260), st.integers(3, 90))
def test_heights_add_up(shape: tuple[int, int], width: int, height: int) -> None:
    layout = plan(screen(*shape), width, height)
    below = 0 if layout.side else layout.diagnosis + layout.events
    assert layout.top + sum(layout.tables) + layout.others + below + 1 <= max(height, layout.top + 1)
    assert layout.main + layout.side <= width
    assert min(*layout.tables, layout.others, layout.diagnosis, layout.events, 0) >= 0


@pytest.mark.parametrize("shape", [(2, 2), (12, 30), (100, 400)])
def test_80x24_shows_header_pools_and_diagnosis(shape: tuple[int, int]) -> None:
    layout = plan(screen(*shape), 80, 24)
    assert layout.top == 5
    assert all(rows >= 5 for rows in layout.tables)
    assert layout.diagnosis >= 4


def test_a_small_pool_is_not_crowded_out_by_a_large_one() -> None:
    prefill, decode = plan(screen(2, 400), 120, 36).tables
    assert prefill == 5
    assert decode > 12


def test_columns_leave_from_the_least_needed() -> None:
    table = screen(2, 2).tables[1]

    def shown(width: int) -> list[str]:
        return [table.columns[i].key for i in grid(table, width).shown]

    assert shown(120) == [c.key for c in table.columns]
    assert shown(80) == ["run", "wait", "fetch", "ttft", "itl", "kv", "kvin", "xfer"]
    assert shown(50) == ["run", "wait", "ttft", "itl", "kv"] or set(shown(50)) < set(shown(80))
    assert shown(20) == []


@given(st.integers(10, 200))
def test_columns_fit_and_keep_their_order(width: int) -> None:
    table = screen(2, 2).tables[0]
    layout = grid(table, width)
    assert list(layout.shown) == sorted(layout.shown)
    assert layout.places[:2] == (NAME, STATE)
    taken = 2 + layout.name + layout.state
    taken += sum(table.columns[i].width + layout.mark + layout.gap for i in layout.shown)
    assert taken <= max(width, 2 + layout.name + layout.state)
