"""Scores against answers whose worth is known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.bench import scores
from pdops.bench.calibrate import IDENTITY, compose, fit, isotonic, to_yaml
from pdops.bench.outcome import SILENT, Said
from tests.bench_diagnosis.made import outcome, said


def test_a_right_first_cause_counts_and_one_that_is_not_stood_for_does_not() -> None:
    assert scores.top(outcome(1, said("prefill-down")), "pdops", 1)
    assert not scores.top(outcome(1, said("prefill-down", abstained=True)), "pdops", 1)
    assert scores.top(outcome(1, said("prefill-down", abstained=True)), "pdops", 3)
    assert not scores.top(outcome(1, said("a", "b", "c", "prefill-down")), "pdops", 3)
    assert not scores.top(outcome(1, SILENT), "pdops", 3)


def test_kinds_count_the_same_however_many_episodes_they_have() -> None:
    common = [outcome(i, said("prefill-down")) for i in range(90)]
    rare = [outcome(100 + i, said("x"), truth=(("decode-down",),)) for i in range(10)]
    assert scores.score([*common, *rare], "pdops").top1.value == pytest.approx(0.5)


def test_an_interval_holds_the_mean_and_narrows_with_more_episodes() -> None:
    def some(n: int) -> list[object]:
        return [outcome(i, said("prefill-down" if i % 2 else "x")) for i in range(n)]

    few, many = (scores.macro(some(n), lambda o: scores.top(o, "pdops", 1)) for n in (10, 400))  # type: ignore[arg-type]
    assert few.low <= few.value <= few.high  # type: ignore[operator]
    assert many.high - many.low < few.high - few.low  # type: ignore[operator]


def test_nothing_to_count_is_not_zero() -> None:
    empty = scores.score([], "pdops")
    assert empty.top1.value is None
    assert scores.alarms_per_hour([])[0] is None
    assert scores.ece([]) is None


def test_of_two_faults_both_must_be_named_and_no_third() -> None:
    truth = (("prefill-down",), ("transport-slow",))
    exact = outcome(1, said("prefill-down", "transport-slow", faults=(1, 2)), truth=truth)
    rivals = outcome(2, said("prefill-down", "transport-slow", faults=(1, 1)), truth=truth)
    third = outcome(3, said("prefill-down", "transport-slow", "x", faults=(1, 2, 3)), truth=truth)
    assert [scores.exact_set(o, "pdops") for o in (exact, rivals, third)] == [True, False, False]
    both = scores.score([exact, rivals, third], "pdops").both
    assert both.value == 1.0


def test_an_unseen_kind_is_met_by_unknown_or_by_the_right_place_and_not_by_calling_it_healthy() -> None:
    given = [
        outcome(1, said("x", abstained=True), unseen=True, scope_right=False),
        outcome(2, said("x"), unseen=True, scope_right=True),
        outcome(3, said("x"), unseen=True, scope_right=False),
        outcome(4, SILENT, unseen=True, scope_right=False),
    ]
    result = scores.score(given, "pdops")
    assert result.unseen.value == pytest.approx(2 / 4)
    assert result.top1.n == 0


def test_what_is_right_of_a_second_fault_does_not_count_for_an_unseen_kind() -> None:
    truth = (("x",), ("prefill-down",))
    double = outcome(1, said("prefill-down"), unseen=True, scope_right=True, truth=truth)
    assert scores.score([double], "pdops").unseen.n == 0


def test_false_alarms_are_per_hour_with_a_bound_even_when_there_was_none() -> None:
    quiet = [outcome(i, SILENT, state="healthy", healthy_s=3600.0) for i in range(30)]
    rate, upper, hours = scores.alarms_per_hour(quiet)
    assert (rate, hours) == (0.0, 30.0)
    assert upper == pytest.approx(3.69 / 30, rel=0.05)


def test_confidence_that_is_right_has_no_calibration_error_and_bragging_has() -> None:
    honest = [(0.8, i % 5 != 0) for i in range(100)]
    braggart = [(1.0, i % 2 == 0) for i in range(100)]
    assert scores.ece(honest) == pytest.approx(0.0, abs=0.11)
    assert scores.ece(braggart) == pytest.approx(0.5, abs=0.01)
    assert scores.brier(braggart) == pytest.approx(0.5)


def test_answering_only_when_sure_costs_coverage_and_saves_errors() -> None:
    sure = [outcome(i, said("prefill-down", confidence=0.9)) for i in range(5)]
    unsure = [outcome(10 + i, said("x", confidence=0.5)) for i in range(5)]
    curve = scores.risk_coverage([*sure, *unsure], "pdops")
    assert curve[4] == (0.5, 0.0)
    assert curve[-1] == (1.0, 0.5)


def test_episodes_that_were_set_aside_count_nowhere() -> None:
    aside = [outcome(1, said("x"), state="sub-threshold"), outcome(2, said("x"), state="not-healthy")]
    result = scores.score(aside, "pdops")
    assert (result.top1.n, result.false_share.n) == (0, 0)
    assert scores.stated(aside, "pdops") == []


units = st.floats(0.0, 1.0, allow_nan=False)


@given(st.lists(st.tuples(units, st.booleans()), min_size=1, max_size=60))
def test_a_fit_never_falls_and_stays_between_nothing_and_certainty(pairs: list[tuple[float, bool]]) -> None:
    knots = isotonic([x for x, _ in pairs], [float(y) for _, y in pairs])
    assert knots[0][0] == 0.0
    assert knots[-1][0] == 1.0
    assert all(a[0] < b[0] and a[1] <= b[1] for a, b in itertools.pairwise(knots))
    assert all(0.0 <= y <= 1.0 for _, y in knots)


def test_a_fit_pulls_bragging_down() -> None:
    given = [outcome(i, said("prefill-down" if i % 2 else "x", confidence=0.9)) for i in range(60)]
    fitted = fit(given)
    assert np.interp(0.9, *zip(*fitted.knots, strict=True)) == pytest.approx(0.5, abs=0.02)
    assert (fit(given[:5]).knots, fit(given[:5]).after) == (IDENTITY, None)


def test_a_fit_that_betters_nothing_out_of_fold_is_not_used() -> None:
    honest = [outcome(i, said("prefill-down" if i % 5 else "x", confidence=0.8)) for i in range(60)]
    fitted = fit(honest)
    assert fitted.knots == IDENTITY
    assert "not used" in str(fitted)


def test_a_fit_after_a_line_in_use_is_one_line() -> None:
    old, new = ((0.0, 0.0), (0.5, 0.3), (1.0, 0.9)), ((0.0, 0.0), (0.6, 0.5), (1.0, 0.8))
    both = compose(old, new)
    for raw in np.linspace(0, 1, 21):
        step = np.interp(np.interp(raw, *zip(*old, strict=True)), *zip(*new, strict=True))
        assert math.isclose(np.interp(raw, *zip(*both, strict=True)), step, abs_tol=0.01)
    assert "knots:" in to_yaml(both, "60 episodes")


def test_a_fault_announced_on_a_healthy_cluster_is_told_from_one_that_is_only_unknown() -> None:
    given = [
        outcome(1, said("x"), state="healthy"),
        outcome(2, Said(alarm=True, abstained=True), state="healthy"),
        outcome(3, SILENT, state="healthy"),
    ]
    result = scores.score(given, "pdops")
    assert result.false_share.value == pytest.approx(1 / 3)
    assert result.unknown_share.value == pytest.approx(1 / 3)


@pytest.mark.parametrize(("verdicts", "right"), [(("fault", "unknown"), True), (("fault",), False)])
def test_unknown_is_a_right_answer_where_the_truth_allows_it(verdicts: tuple[str, ...], right: bool) -> None:
    one = outcome(1, replace(said("decode-down", abstained=True), verdict="unknown"))
    one = replace(one, expected=tuple(replace(e, verdicts=verdicts) for e in one.expected))
    assert [scores.top(one, "pdops", k) for k in (1, 3)] == [right, right]
    healthy = replace(one, said={"pdops": said(alarm=False)})
    assert not scores.top(healthy, "pdops", 1)
