"""client/load-shift: growth of what clients send counts only where a pool cannot keep up."""

from __future__ import annotations

import pytest

from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, histogram, sound, view

ID = "client/load-shift"
QUEUE: Given = {"prefill-0": {"queue_depth": (0.2, 12.0)}}
EDGES = [1000.0, 2000.0, 5000.0, 10000.0]


def shifted(more: Given, pressed: Given = QUEUE) -> list[str]:
    return causes(ask(ID, view(series=but(but(sound(), pressed), more))))


@pytest.mark.parametrize(("now", "fires"), [(900, False), (910, True)])
def test_half_as_many_requests_again(now: int, fires: bool) -> None:
    assert shifted({"client": {"request_success": (1200, now)}}) == (["traffic-burst"] if fires else [])


def test_tokens_of_longer_prompts_are_no_burst() -> None:
    longer = {"prompt_tokens": (240_000, 400_000), "prompt_length.mean": (1000.0, 3500.0)}
    assert shifted({"prefill-0": {**QUEUE["prefill-0"], **longer}}) == ["workload-shift"]


def test_after_a_change_of_size_only_clients_count_requests() -> None:
    event = Event(t_s=-100.0, kind=EventKind.SCALE_IN, worker="prefill-1")
    series = but(but(sound(), QUEUE), {"prefill-0": {"prompt_tokens": (240_000, 400_000)}})
    assert causes(ask(ID, view(series=series))) == ["traffic-burst"]
    assert causes(ask(ID, view(series=series, events=(event,)))) == []


@pytest.mark.parametrize(
    ("long", "fires"), [(2.0, False), (20.0, True)], ids=["two of two hundred", "twenty of two hundred"]
)
def test_a_tail_that_grew_fat(long: float, fires: bool) -> None:
    lengths = histogram(EDGES, {900.0: 400.0, 8000.0: 1.0}, {900.0: 200.0 - long, 8000.0: long}, sums=[0.0, 4e5, 6e5])
    assert bool(shifted({"prefill-0": {**QUEUE["prefill-0"], "prompt_length": lengths}})) is fires


def test_growth_that_fits_is_nobodys_fault() -> None:
    assert shifted({"client": {"request_success": (1200, 1200)}}, {}) == []


@pytest.mark.parametrize("signal", ["queue_depth_capacity", "preemptions"])
def test_decode_may_be_the_pool_that_is_short(signal: str) -> None:
    assert shifted({"client": {"request_success": (1200, 1200)}}, {"decode-0": {signal: (0.0, 9.0)}}) == [
        "traffic-burst"
    ]


def test_report() -> None:
    burst = {
        "client": {"request_success": (1200, 1100), "ttft_seconds.p95": (0.4, 3.0)},
        "decode-0": {"preemptions": (0, 12), "kv_cache_usage": (0.4, 0.95), "queue_depth_capacity": (0.0, 8.0)},
    }
    report = golden(ID, view(series=but(but(sound(), QUEUE), burst)))
    assert (report.verdict, report.hypotheses[0].cause) == (Verdict.OVERLOAD, "traffic-burst")
    assert "decode-kv-exhaustion" in {r.cause for r in report.ruled_out}
