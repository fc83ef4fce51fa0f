"""Metrics are taken away by family and role; impact is what clients felt."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pdops.bench.impact import Felt, broken, normal, noticed, stuttered
from pdops.bench.thin import Thinner
from pdops.model.cluster import Slo
from pdops.model.frame import Frame, Layout, Scrape
from tests.bench_diagnosis.made import cluster

SERIES = tuple(f'vllm:m{i}{{engine="0"}}' for i in range(200)) + tuple(
    f'vllm:h_{part}{{le="1"}}' for part in ("bucket", "sum", "count")
)
SLO = Slo(ttft_s=1.0, itl_s=0.1, percentile=0.95, attainment=0.95)


def _frame(layout: Layout, at_s: float = 0.0) -> Frame:
    values = np.arange(len(layout.series), dtype=np.float64)
    ids = ("prefill-0", "prefill-1", "decode-0")
    scrapes = [Scrape(worker=w, engine="vllm", at_s=at_s, layout=layout, values=values) for w in ids]
    return Frame(at_s=at_s, scrapes=(*scrapes, Scrape(worker="decode-1", engine="vllm", at_s=at_s, error="gone")))


def test_about_the_share_asked_for_is_missing_and_values_stay_with_their_names() -> None:
    layout = Layout(SERIES)
    thinned = Thinner(cluster(), 0.3, "seed")(_frame(layout)).scrapes[0]
    assert thinned.layout is not None
    assert thinned.values is not None
    assert 0.55 < len(thinned.layout.series) / len(SERIES) < 0.85
    assert all(SERIES[int(v)] == s for s, v in zip(thinned.layout.series, thinned.values, strict=True))


def test_workers_of_a_role_miss_the_same_in_every_frame_and_share_a_layout() -> None:
    layout, thin = Layout(SERIES), Thinner(cluster(), 0.3, "seed")
    first, second = thin(_frame(layout)), thin(_frame(layout, 5.0))
    assert first.scrapes[0].layout is first.scrapes[1].layout is second.scrapes[0].layout
    assert first.scrapes[0].layout is not first.scrapes[2].layout


def test_a_histogram_goes_as_a_whole() -> None:
    for seed in range(20):
        thinned = Thinner(cluster(), 0.5, str(seed))(_frame(Layout(SERIES))).scrapes[0]
        assert thinned.layout is not None
        assert sum("vllm:h_" in s for s in thinned.layout.series) in (0, 3)


def test_nothing_is_touched_when_nothing_is_to_be_missing() -> None:
    frame = _frame(Layout(SERIES))
    assert Thinner(cluster(), 0.0, "seed")(frame) is frame
    assert Thinner(cluster(), 0.5, "seed")(frame).scrapes[3].error == "gone"


def _requests(until_s: float, per_s: float = 4.0) -> list[Felt]:
    count = int(until_s * per_s)
    return [Felt(arrival_s=i / per_s, ttft_s=0.2, itl_s=0.05, end_s=i / per_s + 3.0, ok=True) for i in range(count)]


def _look(requests: list[Felt]) -> float | None:
    return noticed(requests, SLO, since_s=200.0, until_s=400.0, interval_s=5.0)


def test_sound_requests_are_no_impact() -> None:
    assert _look(_requests(400)) is None


def test_late_first_tokens_are_noticed_soon_after_they_begin() -> None:
    found = [dataclasses.replace(r, ttft_s=5.0) if r.arrival_s >= 250 else r for r in _requests(400)]
    impact = _look(found)
    assert impact is not None
    assert 250 < impact <= 275


def test_a_request_that_never_answers_is_late_when_the_promise_passes() -> None:
    hung = [
        dataclasses.replace(r, ttft_s=None, end_s=None, ok=False) if r.arrival_s >= 250 else r for r in _requests(400)
    ]
    impact = _look(hung)
    assert impact is not None
    assert impact <= 275


def test_one_late_request_in_fifty_is_no_impact() -> None:
    assert (
        _look([dataclasses.replace(r, ttft_s=5.0) if i % 50 == 0 else r for i, r in enumerate(_requests(400))]) is None
    )


def test_what_was_as_bad_before_is_no_impact() -> None:
    assert _look([dataclasses.replace(r, itl_s=0.5) if i % 5 == 0 else r for i, r in enumerate(_requests(400))]) is None


def test_clients_that_left_say_nothing() -> None:
    left = [dataclasses.replace(r, ok=False, left=True) if r.arrival_s >= 250 else r for r in _requests(400)]
    assert _look(left) is None


def test_what_is_normal_is_read_from_requests_that_went_well() -> None:
    found = normal(iter([*_requests(50), Felt(arrival_s=1, ttft_s=99.0, itl_s=9.0, end_s=120, ok=False)]), 0.95)
    assert found is not None
    assert np.allclose(found, (0.2, 0.05))
    assert normal([], 0.95) is None


def test_the_promise_is_broken_while_clients_feel_it_and_not_before_or_long_after() -> None:
    found = [dataclasses.replace(r, ttft_s=5.0) if 250 <= r.arrival_s < 300 else r for r in _requests(400)]
    moments = broken(found, SLO, until_s=400.0, interval_s=5.0)
    assert moments
    assert min(moments) > 250
    assert 300 <= max(moments) <= 345
    assert broken(_requests(400), SLO, until_s=400.0, interval_s=5.0) == ()


def test_a_promise_that_is_missed_by_little_is_not_broken_for_sure() -> None:
    found = [dataclasses.replace(r, ttft_s=5.0) if i % 13 == 0 else r for i, r in enumerate(_requests(400))]
    assert broken(found, SLO, until_s=400.0, interval_s=5.0) == ()


@pytest.mark.parametrize(("late", "told"), [(4, False), (6, True)])
def test_itl_is_over_its_promise_while_one_gap_in_twenty_is_late(late: int, told: bool) -> None:
    gaps = {second: (late if 250 <= second < 300 else 0, 100) for second in range(400)}
    moments = stuttered(gaps, SLO, until_s=400.0, interval_s=5.0)
    assert bool(moments) is told
    assert not told or (min(moments) > 250 and max(moments) < 330)
    assert stuttered({}, SLO, until_s=400.0, interval_s=5.0) == ()
