"""kvstore/prefix-collapse: contents that were lost, or a router that no longer finds them."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, restart, sound, view

ID = "kvstore/prefix-collapse"
WORKERS = ("prefill-0", "decode-0", "router-0", "store-0")


def cached(hits: Points, more: Given | None = None) -> Given:
    own = {"prefix_cache_hits": hits, "prefix_cache_queries": (100_000, 50_000)}
    return but(but(sound(), {"prefill-0": own}), more or {})


def store(hits: Points, up: Points = 1.0) -> Given:
    asked = {"external_cache_hits": hits, "external_cache_queries": (100_000, 50_000)}
    return {"prefill-0": asked, "store-0": {"kvstore_up": up}}


@pytest.mark.parametrize(("hits", "fires"), [(15_000, False), (14_900, True)])
def test_half_of_what_it_was(hits: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=cached((60_000, hits))))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(
    ("hits", "late", "fires"), [(37_000, True, False), (36_000, True, True), (36_000, False, False)]
)
def test_while_clients_wait_a_third_more_to_compute(hits: float, late: bool, fires: bool) -> None:
    """Of 80 % a fifth was computed; a third more than that is 26.7 %, so 73.3 % or 36 667 of 50 000 are found."""
    client: Given = {"client": {"ttft_seconds.p95": (0.4, 4.0)}} if late else {}
    assert bool(causes(ask(ID, view(workers=WORKERS, series=cached((80_000, hits), client))))) is fires


@pytest.mark.parametrize(("before", "fires"), [(9_900, False), (10_000, True)])
def test_a_tenth_is_the_least_worth_having(before: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=cached((before, 0))))
    assert bool(causes(found)) is fires
    assert causes(found, Status.CLEAR) == []


def test_alone_the_contents_are_gone() -> None:
    found = ask(ID, view(workers=WORKERS, series=cached((60_000, 3_000))))
    assert one(found, cause="prefix-cache-collapse").against == ()


@pytest.mark.parametrize(("t_s", "blind"), [(-900.0, True), (-901.0, False)])
def test_a_router_that_restarted_lost_its_index(t_s: float, blind: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=cached((60_000, 3_000)), events=[restart("router-0", t_s)]))
    assert ("restart" in groups(one(found, cause="router-index-loss"))) is blind
    assert bool(one(found, cause="prefix-cache-collapse").against) is blind


def test_a_store_that_is_well_speaks_for_the_router() -> None:
    found = ask(ID, view(workers=WORKERS, series=cached((60_000, 3_000), store((50_000, 24_000)))))
    assert "store" in groups(one(found, cause="router-index-loss"))
    gone = ask(ID, view(workers=WORKERS, series=cached((60_000, 3_000), store((50_000, 1_000)))))
    assert "store" not in groups(one(gone, cause="router-index-loss"))


def test_prefill_workers_that_restarted_begin_empty() -> None:
    slow = cached((60_000, 3_000), {"client": {"ttft_seconds.p95": (0.4, 6.0)}})
    found = ask(ID, view(workers=WORKERS, series=slow, events=[restart("prefill-0", -200)]))
    assert "restart" in groups(one(found, cause="prefix-cache-collapse"))
    assert one(found, cause="router-index-loss").against


def test_a_cache_that_fills_again_and_slows_nobody_is_no_fault() -> None:
    found = ask(ID, view(workers=WORKERS, series=cached((60_000, 3_000)), events=[restart("prefill-0", -200)]))
    assert [(f.status, f.cause) for f in found] == [(Status.CLEAR, "prefix-cache-collapse")]


@pytest.mark.parametrize(("length", "other"), [(2000.0, False), (2001.0, True), (499.0, True)])
def test_other_prompts_hit_less(length: float, other: bool) -> None:
    given = cached((60_000, 3_000), {"prefill-0": {"prompt_length.mean": (1000.0, length)}})
    found = one(ask(ID, view(workers=WORKERS, series=given)), cause="prefix-cache-collapse")
    assert bool(found.against) is other


def test_without_lookups_or_with_few_it_says_nothing() -> None:
    assert ask(ID, view(workers=WORKERS, series=sound())) == ()
    few = {"prefill-0": {"prefix_cache_hits": (90, 0), "prefix_cache_queries": (99, 99)}}
    assert ask(ID, view(workers=WORKERS, series=but(sound(), few))) == ()


def test_pool_totals_are_enough() -> None:
    given = {"pool:prefill": {"prefix_cache_hits": (60_000, 0), "prefix_cache_queries": (100_000, 50_000)}}
    assert causes(ask(ID, view(series=given))) == ["router-index-loss", "prefix-cache-collapse"]


def test_report() -> None:
    longer: Given = {"client": {"ttft_seconds.p95": (0.4, 2.2)}, "prefill-0": {"queue_seconds.mean": (0.05, 0.9)}}
    more = but(store((50_000, 24_000)), longer)
    seen = view(workers=WORKERS, series=cached((60_000, 3_000), more), events=[restart("router-0", -200)])
    report = golden(ID, seen)
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("router-index-loss", ID)


def test_a_router_that_lost_its_index_does_not_empty_the_store() -> None:
    found = ask(ID, view(workers=WORKERS, series=but(sound(), store((60_000, 500)))))
    assert causes(found) == ["prefix-cache-collapse"]


@pytest.mark.parametrize(("prompts", "fires"), [(19, False), (20, True)])
def test_a_share_of_few_prompts_is_chance(prompts: float, fires: bool) -> None:
    few = cached((60_000, 3_000), {"prefill-0": {"request_success": (100, prompts)}})
    assert bool(causes(ask(ID, view(workers=WORKERS, series=few)))) is fires


@pytest.mark.parametrize(("prompts", "fires"), [(30, False), (300, True)])
def test_a_small_share_must_fall_by_more_than_chance_makes_of_so_few_prompts(prompts: float, fires: bool) -> None:
    few = cached((30_000, 5_000), {"prefill-0": {"request_success": (1000, prompts)}})
    assert bool(causes(ask(ID, view(workers=WORKERS, series=few)))) is fires
