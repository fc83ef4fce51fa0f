"""A promise that clients see kept: what is above it by chance only, and who may still be accused then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdops.diagnose.context import Context
from pdops.diagnose.promise import kept, momentary, unfelt, untouched
from pdops.model.report import Verdict
from pdops.model.series import HistogramSeries
from pdops.model.view import TIMESTAMPS, Note
from tests.diagnose.build import BASE_S, NOW_S, Given, Points, but, diagnose, histogram, sound, view

ENDS = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0]
QUEUES: Given = {"prefill-0": {"queue_depth": (0.2, 6.0)}}


def late(of: int, n: int) -> Points:
    """Return TTFTs of `n` requests, `of` of them far over the promise of one second."""
    return histogram(ENDS, {0.3: 400}, {0.3: n - of, 3.0: of})


def clients(ttft: Points, itl: Points = 0.02, more: Given | None = None) -> Given:
    series = but(sound(), {"client": {"ttft_seconds.p95": None, "ttft_seconds": ttft, "itl_seconds.p95": itl}})
    return but(series, more or {})


@pytest.mark.parametrize(("of", "n", "high"), [(3, 40, False), (8, 40, True), (75, 1000, True), (60, 1000, False)])
def test_few_requests_must_exceed_the_promise_by_more_than_chance(of: int, n: int, high: bool) -> None:
    seen = Context(view(series=clients(late(of, n))))
    assert seen.ttft().above(1.0)
    assert seen.exceeds("ttft_seconds", 1.0) is high
    assert kept(seen) is not high


def test_a_promise_inside_a_wide_client_bucket_is_judged_by_decode_s_finer_ones() -> None:
    wide = histogram([0.01, 0.1], {0.06: 9000}, {0.09: 9000})
    given = clients(0.3, wide)
    given["client"]["itl_seconds.p95"] = None
    given["client"]["itl_seconds"] = wide
    assert Context(view(series=given)).exceeds("itl_seconds", 0.05)
    finer = but(given, {"decode-0": {"itl_seconds": histogram([0.01, 0.04, 0.1], {0.02: 9000}, {0.03: 9000})}})
    assert not Context(view(series=finer)).exceeds("itl_seconds", 0.05)


@pytest.mark.parametrize(("ttft", "verdict"), [(0.5, Verdict.HEALTHY), (2.5, Verdict.OVERLOAD)])
def test_a_queue_that_no_client_feels_is_no_overload(ttft: float, verdict: Verdict) -> None:
    given = but(sound(), {"client": {"ttft_seconds.p95": (0.4, ttft)}, "prefill-0": {"queue_seconds.mean": (0.05, 2)}})
    assert diagnose(view(series=but(given, QUEUES))).verdict is verdict


def test_without_what_clients_see_a_promise_is_not_known_to_be_kept() -> None:
    unseen = but(sound(), {"client": {"ttft_seconds.p95": None}})
    assert not kept(Context(view(series=unseen)))


@pytest.mark.parametrize(("now", "still"), [(0.5, True), (0.7, False)])
def test_a_mean_that_grew_by_half_is_not_untouched(now: float, still: bool) -> None:
    seen = Context(view(series=clients(histogram(ENDS, {0.4: 300}, {now: 300}))))
    assert kept(seen)
    assert untouched(seen) is still


def test_without_errors_at_clients_or_a_past_nobody_knows_that_nothing_changed() -> None:
    well = view(series=clients(histogram(ENDS, {0.4: 300}, {0.5: 300})))
    assert untouched(Context(well))
    assert not untouched(Context(replace(well, base=None)))
    unread: Given = {
        "client": {"request_failure": None, "request_success": None},
        "decode-0": {"request_failure": None},
    }
    assert not kept(Context(view(series=clients(histogram(ENDS, {0.4: 300}, {0.5: 300}), more=unread))))


GAPS = [0.01, 0.04, 0.1]


def told(series: Given) -> tuple[Verdict, str]:
    """Return the verdict, and what is said to be missing."""
    report = diagnose(view(series=series))
    return report.verdict, "; ".join(m.why for m in report.missing)


def test_over_the_promise_in_too_few_requests_is_unknown_and_said() -> None:
    assert told(clients(late(0, 40)))[0] is Verdict.HEALTHY
    verdict, why = told(clients(late(3, 40)))
    assert verdict is Verdict.UNKNOWN
    assert "TTFT may be over its promise, but in so few requests" in why


def test_gaps_over_the_promise_in_too_few_tokens_are_unknown_unless_decode_s_buckets_stay_below() -> None:
    few = histogram(GAPS, {0.02: 400}, {0.02: 37, 0.09: 3})
    given = but(clients(0.3), {"client": {"itl_seconds.p95": None, "itl_seconds": few}})
    verdict, why = told(given)
    assert verdict is Verdict.UNKNOWN
    assert "ITL may be over its promise, but in so few token gaps" in why
    below = {"decode-0": {"itl_seconds": histogram(GAPS, {0.02: 9000}, {0.03: 9000})}}
    assert told(but(given, below))[0] is Verdict.HEALTHY


def test_a_latency_beyond_the_last_bucket_is_not_known_to_keep_a_greater_promise() -> None:
    beyond = histogram([0.1, 0.5], {0.3: 400}, {0.3: 300, 0.9: 100})
    verdict, why = told(clients(beyond))
    assert verdict is Verdict.UNKNOWN
    assert "TTFT is only known to be at least 0.5 s" in why


def test_decode_pools_keep_a_promise_only_where_all_of_their_workers_tell() -> None:
    wide = histogram([0.01, 0.1], {0.06: 9000}, {0.09: 9000})
    finer = histogram(GAPS, {0.02: 9000}, {0.03: 9000})
    given = but(clients(0.3, wide), {"client": {"itl_seconds.p95": None, "itl_seconds": wide}})
    one = but(given, {"decode-0": {"itl_seconds": finer}, "decode-1": {"itl_seconds": None, "itl_seconds.p95": None}})
    both = but(one, {"decode-1": {"itl_seconds": finer}})
    workers = ("prefill-0", "decode-0", "decode-1")
    assert not Context(view(workers=workers, series=both)).exceeds("itl_seconds", 0.05)
    assert Context(view(workers=workers, series=one)).exceeds("itl_seconds", 0.05)


def test_samples_of_long_ago_make_no_cluster_healthy() -> None:
    old = Note(worker="decode-0", code=TIMESTAMPS, why="its values are 900 s old")
    assert diagnose(view(series=sound())).verdict is Verdict.HEALTHY
    assert diagnose(view(series=sound(), notes=(old,))).verdict is Verdict.UNKNOWN


def late_in(first: int, second: int) -> HistogramSeries:
    """Return TTFTs of a judged window in whose halves so many of a hundred requests are far over the promise."""
    edges = np.array([*ENDS, np.inf])
    rows, total, t = [np.zeros(len(edges))], [0.0], [-BASE_S, -NOW_S, -NOW_S / 2, 0.0]
    for of, n in ((0, 400), (first, 100), (second, 100)):
        rows.append(rows[-1] + (edges >= 0.5) * (n - of) + (edges >= 5.0) * of)
        total.append(total[-1] + n)
    times = np.array(t)
    return HistogramSeries(edges, times, np.array(rows), times, np.array(total) * 0.5, np.array(total))


@pytest.mark.parametrize(
    ("first", "second", "for_a_moment"), [(0, 40, True), (40, 0, True), (40, 40, False), (0, 0, False)]
)
def test_what_hurts_in_one_half_of_the_window_only_is_momentary(first: int, second: int, for_a_moment: bool) -> None:
    seen = replace(view(series=clients(late_in(first, second))), relative=False)
    assert momentary(Context(seen)) is for_a_moment


@pytest.mark.parametrize(("second", "verdict"), [(0, Verdict.UNKNOWN), (40, Verdict.OVERLOAD)])
def test_a_queue_that_makes_clients_wait_for_a_moment_is_not_yet_overload(second: int, verdict: Verdict) -> None:
    given = clients(late_in(40, second), more=QUEUES)
    assert diagnose(replace(view(series=given), relative=False)).verdict is verdict


@pytest.mark.parametrize("untold", ["itl_seconds.p95", "ttft_seconds.p95", "request_failure"])
def test_a_queue_is_no_overload_while_what_clients_tell_is_as_promised(untold: str) -> None:
    given = but(but(sound(), {"client": {untold: None}}), QUEUES)
    seen = replace(view(series=given), relative=False)
    assert (unfelt(Context(seen)), kept(Context(seen))) == (True, False)
    assert diagnose(seen).verdict is not Verdict.OVERLOAD


def test_where_clients_tell_no_latency_nobody_knows_who_feels_it() -> None:
    untold = but(sound(), {"client": {"ttft_seconds.p95": None, "itl_seconds.p95": None}})
    assert not unfelt(Context(replace(view(series=untold), relative=False)))


def test_preemptions_that_no_client_feels_are_load_that_is_borne() -> None:
    given = but(sound(), {"decode-0": {"preemptions": (0, 3), "kv_cache_usage": 0.95}})
    assert diagnose(view(series=given)).verdict is not Verdict.OVERLOAD
    felt = but(given, {"client": {"itl_seconds.p95": (0.02, 0.2)}})
    assert diagnose(view(series=felt)).verdict is Verdict.OVERLOAD


@pytest.mark.parametrize(("n", "still"), [(8, True), (80, False)])
def test_a_mean_of_few_requests_that_grew_by_three_quarters_may_be_chance(n: int, still: bool) -> None:
    seen = Context(view(series=clients(histogram(ENDS, {0.4: 300}, {0.7: n}))))
    assert kept(seen)
    assert untouched(seen) is still
