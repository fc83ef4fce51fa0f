"""prefill/kv-short: KV in use per token of the prompts that use it, and what else fills a prefill worker."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "prefill/kv-short"


def short(usage: Points = (0.1, 0.9), running: Points = (1.0, 4.0), more: Given | None = None) -> Given:
    own = {
        "kv_cache_usage": usage,
        "running_requests": running,
        "queue_depth": (0.1, 20.0),
        "prompt_length.mean": (2000.0, 2000.0),
        "kv_exports_outstanding": (0.0, 0.0),
        "queue_seconds.mean": (0.1, 6.0),
    }
    return but(but(sound(), {"prefill-0": own, "client": {"ttft_seconds.p95": (0.4, 9.0)}}), more or {})


@pytest.mark.parametrize(("usage", "fires"), [(0.79, False), (0.81, True)])
def test_twice_the_kv_for_the_same_tokens(usage: float, fires: bool) -> None:
    found = ask(ID, view(series=short((0.1, usage))))
    assert causes(found) == (["prefill-kv-oom"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


def test_longer_prompts_need_more_by_themselves() -> None:
    assert causes(ask(ID, view(series=short(more={"prefill-0": {"prompt_length.mean": (2000.0, 6000.0)}})))) == []


def test_finished_prompts_that_wait_to_be_read_use_kv_too() -> None:
    assert causes(ask(ID, view(series=short(more={"prefill-0": {"kv_exports_outstanding": (0.0, 8.0)}})))) == []


def test_a_pool_that_computes_no_more_than_before_is_filled_by_something_else() -> None:
    assert causes(ask(ID, view(series=short((0.1, 0.9), (1.0, 1.0))))) == []


@pytest.mark.parametrize("signal", ["queue_depth", "queue_depth_deferred"])
def test_a_decode_that_is_behind_fills_prefill(signal: str) -> None:
    assert ask(ID, view(series=short(more={"decode-0": {signal: (0.0, 9.0)}}))) == ()


@pytest.mark.parametrize("signal", ["kv_cache_usage", "running_requests", "queue_depth", "kv_exports_outstanding"])
def test_what_is_not_told_is_not_judged(signal: str) -> None:
    assert ask(ID, view(series=short(more={"prefill-0": {signal: None}}))) == ()


def test_prefixes_that_went_are_a_further_sign() -> None:
    cache = {"prefix_cache_hits": (60_000.0, 10_000.0), "prefix_cache_queries": (100_000.0, 100_000.0)}
    found = one(ask(ID, view(series=short(more={"prefill-0": cache}))))
    assert groups(found) == {"room", "queue", "hits"}


def test_report() -> None:
    cache = {"prefix_cache_hits": (60_000.0, 10_000.0), "prefix_cache_queries": (100_000.0, 100_000.0)}
    report = golden(ID, view(series=short(more={"prefill-0": cache})))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("prefill-kv-oom", ID)
    assert "prefix-cache-collapse" in [r.cause for r in report.ruled_out]
