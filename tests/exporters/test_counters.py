"""Totals never fall, never jump, and miss nothing that was seen."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pdops.model.frame import Layout, Scrape
from pdops_exporters.counters import Counters


def page(values: dict[str, float], *, full: bool = True, at_s: float = 0.0) -> Scrape:
    layout = Layout(tuple(values))
    return Scrape(
        worker="w", engine="vllm", at_s=at_s, layout=layout, values=np.array(list(values.values())), full=full
    )


def totals(counters: Counters, values: dict[str, float], *, full: bool = True) -> dict[str, float]:
    return dict(zip(values, counters.add(page(values, full=full)), strict=True))


def test_the_first_page_counts_nothing() -> None:
    assert totals(Counters(), {"a_total": 1e6}) == {"a_total": 0.0}


def test_growth_adds_up() -> None:
    counters = Counters()
    totals(counters, {"a_total": 100.0})
    assert totals(counters, {"a_total": 107.0}) == {"a_total": 7.0}
    assert totals(counters, {"a_total": 110.0}) == {"a_total": 10.0}


def test_a_restarted_engine_makes_no_fall_and_no_spike() -> None:
    counters = Counters()
    totals(counters, {"a_total": 1000.0})
    totals(counters, {"a_total": 1010.0})
    assert totals(counters, {"a_total": 3.0}) == {"a_total": 13.0}


def test_one_restarted_rank_does_not_count_the_others_again() -> None:
    counters = Counters()
    ranks = ('a_total{engine="0"}', 'a_total{engine="1"}')
    totals(counters, dict(zip(ranks, (1000.0, 1000.0), strict=True)))
    assert sum(totals(counters, dict(zip(ranks, (1005.0, 2.0), strict=True))).values()) == 7.0


def test_a_series_that_appears_later_began_at_zero() -> None:
    counters = Counters()
    totals(counters, {"a_total": 5.0})
    assert totals(counters, {"a_total": 5.0, "b_total": 2.0}) == {"a_total": 0.0, "b_total": 2.0}


def test_a_page_asked_for_in_part_loses_nothing_of_the_whole() -> None:
    counters = Counters()
    whole = {"a_total": 5.0, "b_total": 9.0}
    totals(counters, whole)
    assert totals(counters, {"b_total": 10.0}, full=False) == {"b_total": 1.0}
    assert totals(counters, {"a_total": 6.0, "b_total": 12.0}) == {"a_total": 1.0, "b_total": 3.0}


def test_a_sum_that_falls_while_its_count_does_not_adds_nothing() -> None:
    counters = Counters()
    totals(counters, {"q_count": 10.0, "q_sum": 50.0})
    assert totals(counters, {"q_count": 11.0, "q_sum": -400.0}) == {"q_count": 1.0, "q_sum": 0.0}
    assert totals(counters, {"q_count": 12.0, "q_sum": -399.0}) == {"q_count": 2.0, "q_sum": 1.0}


def test_a_sum_restarts_with_its_count() -> None:
    counters = Counters()
    totals(counters, {"q_count": 10.0, "q_sum": 50.0})
    assert totals(counters, {"q_count": 2.0, "q_sum": 4.0}) == {"q_count": 2.0, "q_sum": 4.0}


def test_what_is_not_a_number_is_absent_and_costs_no_growth() -> None:
    counters = Counters()
    totals(counters, {"a_total": 5.0})
    assert math.isnan(totals(counters, {"a_total": math.nan})["a_total"])
    assert totals(counters, {"a_total": 8.0}) == {"a_total": 3.0}


@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans()), min_size=1, max_size=40))
def test_totals_are_the_sum_of_all_steps_whatever_restarts(steps: list[tuple[int, bool]]) -> None:
    counters, raw, expected, last = Counters(), 500.0, 0.0, 0.0
    totals(counters, {"a_total": raw})
    for step, restart in steps:
        raw = float(step) if restart and step < raw else raw + step
        expected += step
        now = totals(counters, {"a_total": raw})["a_total"]
        assert now >= last
        last = now
    assert last == expected
