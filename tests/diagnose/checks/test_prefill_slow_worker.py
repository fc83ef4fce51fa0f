"""prefill/slow-worker: the same tokens, more time, at one of many; longer prompts are no slowness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from pdops.model.series import HistogramSeries, Kind, Series
from pdops.model.view import View
from tests.diagnose.build import Given, ask, but, causes, golden, histogram, one, sound, view

ID = "prefill/slow-worker"
SLOW_CLIENT: Given = {"client": {"ttft_seconds.p95": (0.4, 3.0), "ttft_seconds.mean": (0.3, 1.2)}}


def took(before: float, now: float, n: int = 100) -> HistogramSeries:
    return histogram([0.1, 100.0], {before: 2 * n}, {now: n})


def pool(seconds: list[float], tokens: list[float] | None = None, before: float = 0.2, n: int = 100) -> View:
    """Return prefill workers that took this long on the mean, for 1000 tokens each unless said."""
    series: dict[str, dict[str, object]] = {}
    for index, now in enumerate(seconds):
        asked = n * (tokens[index] if tokens else 1000.0)
        series[f"prefill-{index}"] = {
            "prefill_seconds": took(before, now, n),
            "prefill_seconds.mean": None,
            "prompt_tokens": (2 * n * 1000.0, asked),
        }
    workers = (*series, "decode-0")
    return view(workers=workers, series=but(but(sound(len(seconds), 1), SLOW_CLIENT), series))  # type: ignore[arg-type]


def accused(seen: View) -> list[str]:
    found = ask(ID, seen)
    return [str(s) for s in one(found).scopes] if causes(found) else []


@pytest.mark.parametrize(
    ("seconds", "named"),
    [
        ([0.2, 0.2, 0.2, 0.2, 0.9], ["prefill-4"]),
        ([0.2, 0.2, 0.2, 0.2, 0.31], ["prefill-4"]),
        ([0.2, 0.2, 0.2, 0.2, 0.29], []),
        ([0.29, 0.29, 0.29, 0.29, 0.29], []),
        ([0.9, 0.9, 0.9, 0.9, 0.9], ["pool prefill"]),
        ([0.2, 0.2, 0.2, 0.2, 0.02], []),
    ],
)
def test_against_its_peers(seconds: list[float], named: list[str]) -> None:
    assert accused(pool(seconds)) == named


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({}, ["gpu-throttle"]),
        ({"max_num_batched_tokens": "2048"}, ["gpu-throttle"]),
        ({"max_num_batched_tokens": "512"}, ["chunked-prefill-misconfig", "gpu-throttle"]),
    ],
    ids=["not read", "large enough", "small"],
)
def test_a_whole_pool_is_slow_by_its_machines_or_its_chunks(facts: dict[str, str], wanted: list[str]) -> None:
    found = ask(ID, replace(pool([0.9]), facts={"prefill-0": facts}))
    assert causes(found) == wanted
    assert all(str(s) == "pool prefill" for f in found for s in f.scopes)


def test_prompts_that_share_steps_wait_for_each_other() -> None:
    seen = pool([0.9, 0.2])
    crowded = Series(
        Kind.GAUGE, np.array([-900.0, -600.0, -301.0, -200.0, -100.0, 0.0]), np.array([1.0, 0.0, 1.0, 4.0, 0.0, 4.0])
    )
    assert accused(seen) == ["prefill-0"]
    assert accused(replace(seen, series={**seen.series, ("prefill-0", "running_requests"): (crowded,)})) == []


def test_where_decode_is_behind_a_slow_pool_is_not_judged() -> None:
    seen = pool([0.9])
    behind = Series(Kind.GAUGE, np.array([-900.0, -60.0, 0.0]), np.array([0.0, 9.0, 9.0]))
    given = replace(seen, series={**seen.series, ("decode-0", "queue_depth_capacity"): (behind,)})
    assert (causes(ask(ID, given)), causes(ask(ID, given), Status.CLEAR)) == ([], ["gpu-throttle"])


def test_longer_prompts_are_no_slowness() -> None:
    assert accused(pool([0.2, 0.2, 0.2, 0.2, 0.9], [1000, 1000, 1000, 1000, 4500])) == []


@pytest.mark.parametrize(("now", "named"), [(0.29, []), (0.31, ["prefill-0"])])
def test_against_its_own_past_where_peers_are_few(now: float, named: list[str]) -> None:
    assert accused(pool([now, 0.2])) == named


def test_tokens_from_the_cache_are_not_computed() -> None:
    seen = pool([0.09, 0.2])
    assert accused(seen) == []
    hits = Series(Kind.COUNTER, np.array([-900.0, -300.0, 0.0]), np.array([0.0, 0.0, 80_000.0]))
    assert accused(replace(seen, series={**seen.series, ("prefill-0", "prefix_cache_hits"): (hits,)})) == ["prefill-0"]


def test_where_what_was_cached_is_no_longer_told_a_worker_is_not_judged() -> None:
    seen = pool([0.9, 0.2])
    assert accused(seen) == ["prefill-0"]
    ended = Series(Kind.COUNTER, np.array([-900.0, -600.0, -300.0]), np.array([0.0, 40_000.0, 80_000.0]))
    assert accused(replace(seen, series={**seen.series, ("prefill-0", "prefix_cache_hits"): (ended,)})) == []


@pytest.mark.parametrize(("now", "named"), [(0.5, []), (0.6, ["prefill-0"])])
def test_few_prefills_must_differ_by_more(now: float, named: list[str]) -> None:
    assert accused(pool([now, 0.2], n=9)) == named


def test_without_high_ttft_it_does_not_look() -> None:
    assert ask(ID, view(series=sound())) == ()


def test_too_few_prefills_are_not_judged() -> None:
    assert causes(ask(ID, pool([0.2, 9.0], n=1)), Status.UNKNOWN) == ["prefill-slow-worker"]


@pytest.mark.parametrize(("seconds", "named"), [(0.7, []), (0.8, ["prefill-1"])])
def test_of_two_prefills_only_a_large_difference_counts(seconds: float, named: list[str]) -> None:
    """1.5 times 1 + 2 / sqrt(2) is 3.6 times the 0.2 s of before."""
    assert accused(pool([0.2, seconds], n=2)) == named


@pytest.mark.parametrize(("running", "named"), [(0.0, []), (8.0, ["prefill-1"])])
def test_a_worker_that_is_busy_and_finishes_nothing_is_slow(running: float, named: list[str]) -> None:
    stuck = Series(Kind.GAUGE, np.arange(-300.0, 1.0, 5.0), np.full(61, running))
    nothing = {
        "prefill-0": {"prompt_length.mean": 1000.0},
        "prefill-1": {
            "prompt_length.mean": 1000.0,
            "prefill_seconds": histogram([0.1, 100.0], {0.2: 200}, {}),
            "prefill_seconds.mean": None,
            "prompt_tokens": (200_000.0, 0.0),
            "running_requests": stuck,
        },
    }
    series = but(but(sound(2, 1), SLOW_CLIENT), nothing)
    series["prefill-0"] |= {
        "prefill_seconds": took(0.2, 0.2),
        "prefill_seconds.mean": None,
        "prompt_tokens": (200_000.0, 100_000.0),
    }
    assert accused(view(workers=("prefill-0", "prefill-1", "decode-0"), series=series)) == named


def test_the_report_accuses_the_slow_one() -> None:
    report = golden(ID, pool([0.2, 0.2, 0.2, 0.2, 4.6]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, [str(s) for s in report.top.scopes]) == ("prefill-slow-worker", ["prefill-4"])
