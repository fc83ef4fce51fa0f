"""transfer/deadlock-ring: requests wait on both sides and no token is computed for a minute."""

from __future__ import annotations

import numpy as np
import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "transfer/deadlock-ring"


def until(t_s: float, per_s: float = 400.0) -> list[tuple[float, float]]:
    return [(float(t), per_s * (min(float(t), t_s) + 900)) for t in np.arange(-900, 1, 15)]


def ring(
    prefill: Points = (0.2, 6.0), decode: Points = (0.0, 6.0), last_s: float = -120, more: Given | None = None
) -> Given:
    still = {
        "prefill-0": {"queue_depth": prefill, "prompt_tokens": until(last_s)},
        "decode-0": {"queue_depth": decode, "generated_tokens": until(last_s), "running_requests": (8.0, 0.0)},
    }
    return but(but(sound(), still), more or {})


def test_all_wait_and_nothing_moves() -> None:
    found = one(ask(ID, view(series=ring())))
    assert found.cause == "backpressure-deadlock"
    assert groups(found) == {"prefill waits", "decode waits", "still"}
    assert "enable-chunked-prefill" in {d.action for d in found.do_not}


@pytest.mark.parametrize(("last_s", "fires"), [(-60.0, True), (-45.0, False)])
def test_a_token_within_the_last_minute_is_progress(last_s: float, fires: bool) -> None:
    found = ask(ID, view(series=ring(last_s=last_s)))
    assert causes(found) == (["backpressure-deadlock"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("prefill", "decode"), [(0.0, (0.0, 6.0)), ((0.2, 6.0), 0.0)])
def test_one_side_alone_makes_no_ring(prefill: Points, decode: Points) -> None:
    assert ask(ID, view(series=ring(prefill, decode))) == ()


def test_one_worker_that_goes_on_breaks_the_ring() -> None:
    working = {"decode-1": {"generated_tokens": until(0), "queue_depth": 0.0, "running_requests": 4.0}}
    found = ask(ID, view(workers=("prefill-0", "decode-0", "decode-1"), series=ring(more=working)))
    assert causes(found) == []


def test_without_token_counters_it_is_not_known() -> None:
    found = one(ask(ID, view(series=ring(more={"decode-0": {"generated_tokens": None}}))), Status.UNKNOWN)
    assert found.missing[0].signal == "generated_tokens"


def test_a_cut_link_rules_it_out_and_without_the_wire_it_is_less_sure() -> None:
    cut = {"decode-0": {"transfer_queue_depth": (0, 3), "kv_transfer_bytes": until(-120, 1e9)}}
    assert causes(ask(ID, view(series=ring(more=cut))), Status.CLEAR) == ["backpressure-deadlock"]
    assert not one(ask(ID, view(series=ring()))).missing
    assert one(ask(ID, view(series=ring(more={"decode-0": {"transfer_queue_depth": None}})))).missing


def test_chunks_of_prompts_support_it() -> None:
    facts = {"prefill-0": {"enable_chunked_prefill": "True"}}
    assert "chunked" in groups(one(ask(ID, view(series=ring(), facts=facts))))


def test_report() -> None:
    report = golden(ID, view(series=ring(more={"client": {"request_success": (1200, 0)}})))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "backpressure-deadlock"
