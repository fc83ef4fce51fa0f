"""transfer/staging-buffer: prompts longer than the buffer, a full buffer, and what breaks for it."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "transfer/staging-buffer"
FACTS = {"prefill-0": {"max_tokens_in_buffer": "10240"}}


def prompts(longest: Points = (4_000, 20_000), more: Given | None = None) -> Given:
    return but(but(sound(), {"prefill-0": {"prompt_length.p99": longest}}), more or {})


@pytest.mark.parametrize(("longest", "fires"), [(10_240, False), (10_241, True)])
def test_prompts_longer_than_the_buffer(longest: float, fires: bool) -> None:
    found = ask(ID, view(series=prompts((4_000, longest)), facts=FACTS))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


def test_while_nothing_breaks_it_is_not_believed() -> None:
    assert one(ask(ID, view(series=prompts(), facts=FACTS))).cap < 0.5


@pytest.mark.parametrize(("place", "signal"), [("prefill-0", "kv_transfer_failures"), ("client", "request_failure")])
def test_failures_are_what_breaks(place: str, signal: str) -> None:
    found = one(ask(ID, view(series=prompts(more={place: {signal: (0, 3)}}), facts=FACTS)))
    assert "breaks" in groups(found)
    assert found.cap > 0.9


@pytest.mark.parametrize(
    ("memory", "usage", "grew"),
    [((100e9, 104e9), (0.3, 0.3), True), ((100e9, 103e9), (0.3, 0.3), False), ((100e9, 104e9), (0.3, 0.6), False)],
)
def test_memory_that_grows_beside_the_kv_pool(memory: Points, usage: Points, grew: bool) -> None:
    more = {"prefill-0": {"gpu_mem_used_bytes": memory, "kv_cache_usage": usage}}
    assert ("memory" in groups(one(ask(ID, view(series=prompts(more=more), facts=FACTS))))) is grew


@pytest.mark.parametrize(("used", "fires"), [(0.95, False), (0.96, True)])
def test_a_buffer_that_is_full_all_the_time(used: float, fires: bool) -> None:
    given = but(sound(), {"decode-0": {"staging_buffer_usage": used}})
    assert bool(causes(ask(ID, view(series=given)))) is fires


def test_without_the_size_or_the_lengths_it_says_nothing() -> None:
    assert ask(ID, view(series=prompts())) == ()
    assert ask(ID, view(series=sound(), facts=FACTS)) == ()


def test_report() -> None:
    more = {"prefill-0": {"kv_transfer_failures": (0, 8)}, "client": {"request_failure": (0, 8)}}
    report = golden(ID, view(series=prompts(more=more), facts=FACTS))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "staging-buffer-exhausted"
