"""kvstore/slow-fetch: good hits and slow first tokens; believed only when requests are seen waiting for the store."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "kvstore/slow-fetch"
WORKERS = ("prefill-0", "decode-0", "store-0")


def fetching(waits: Points = (0.2, 6.0), hits: Points = (50_000, 30_000), more: Given | None = None) -> Given:
    own = {
        "external_cache_hits": hits,
        "external_cache_queries": None if hits is None else (100_000, 50_000),
        "queue_depth_deferred": waits,
    }
    slow = but(sound(), {"prefill-0": own, "client": {"ttft_seconds.p95": (0.4, 2.5)}})
    return but(slow, more or {})


@pytest.mark.parametrize(("waiting", "seen"), [(1.0, False), (1.1, True)])
def test_more_than_one_waits_for_the_store(waiting: float, seen: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=fetching((0.2, waiting))))
    assert bool(causes(found)) is seen
    assert bool(causes(found, Status.CLEAR)) is not seen


@pytest.mark.parametrize(("before", "seen"), [(3.0, False), (2.9, True)])
def test_twice_as_many_as_before(before: float, seen: bool) -> None:
    assert bool(causes(ask(ID, view(workers=WORKERS, series=fetching((before, 6.0)))))) is seen


def test_without_a_past_many_that_wait_are_weaker_evidence() -> None:
    young = fetching([(-100.0, 6.0), (0.0, 6.0)])
    told, known = (one(ask(ID, view(workers=WORKERS, series=g))) for g in (young, fetching((0.2, 6.0))))
    weight = {f: max(w.ratio for w in f.for_ if w.group == "waits") for f in (told, known)}
    assert weight[told] < weight[known]


def test_good_hits_and_slow_first_tokens_alone_decide_nothing() -> None:
    found = ask(ID, view(workers=WORKERS, series=fetching(None)))
    assert one(found).cap < 0.5
    assert one(found, Status.UNKNOWN).missing[0].signal == "queue_depth_deferred"


@pytest.mark.parametrize("hits", [(50_000, 20_000), (5_000, 2_500)])
def test_hits_that_fell_or_were_never_worth_it_are_another_story(hits: tuple[float, float]) -> None:
    assert ask(ID, view(workers=WORKERS, series=fetching(hits=hits))) == ()


def test_first_tokens_as_promised_are_fine() -> None:
    given = fetching(more={"client": {"ttft_seconds.p95": 0.6}})
    assert ask(ID, view(workers=WORKERS, series=given)) == ()


@pytest.mark.parametrize(("queue", "fires"), [(11.9, True), (12.1, False)])
def test_a_queue_that_mostly_waits_for_the_store_needs_neither_hits_nor_slow_first_tokens(
    queue: float, fires: bool
) -> None:
    more = {"client": {"ttft_seconds.p95": 0.6}, "prefill-0": {"queue_depth": (0.2, queue)}}
    found = ask(ID, view(workers=WORKERS, series=fetching(hits=(50_000, 1_000), more=more)))
    assert bool(causes(found)) is fires
    if fires:
        assert {"waits", "most"} <= groups(one(found))


def test_longer_stages_on_decode_speak_against_it() -> None:
    given = fetching(more={"decode-0": {"kv_transfer_seconds.mean": (0.02, 0.9)}})
    assert [w.group for w in one(ask(ID, view(workers=WORKERS, series=given))).against] == ["elsewhere"]


def test_computing_that_did_not_grow_supports_it() -> None:
    assert "computing" in groups(one(ask(ID, view(workers=WORKERS, series=fetching()))))


def test_without_lookups_it_says_nothing() -> None:
    assert ask(ID, view(workers=WORKERS, series=fetching(hits=None))) == ()


def test_report() -> None:
    report = golden(ID, view(workers=WORKERS, series=fetching()))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("kvstore-slow-or-missed-prefetch", ID)
    assert "prefix-cache-fallback" in report.top.runbooks


QUEUED: Given = {"prefill-0": {"queue_depth": (0.2, 6.0)}}


def test_the_store_is_named_where_all_of_prefill_waits_and_the_worker_where_one_does() -> None:
    assert [str(s) for s in one(ask(ID, view(workers=WORKERS, series=fetching(more=QUEUED)))).scopes] == ["store-0"]
    two = but(sound(2, 1), fetching(more=QUEUED))
    found = one(ask(ID, view(workers=("prefill-0", "prefill-1", "decode-0", "store-0"), series=two)))
    assert [str(s) for s in found.scopes] == ["prefill-0"]


@pytest.mark.parametrize(("seconds", "against"), [(0.069, False), (0.071, True)])
def test_stages_that_grew_by_less_than_a_twentieth_of_the_promise_are_not_where_time_went(
    seconds: float, against: bool
) -> None:
    given = fetching(more={"decode-0": {"kv_transfer_seconds.mean": (0.02, seconds)}})
    assert bool(one(ask(ID, view(workers=WORKERS, series=given))).against) is against
