"""kvstore/full: refused writes, or a full store that evicts what is still needed."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "kvstore/full"
WORKERS = ("prefill-0", "decode-0", "store-0")


def store(
    used: Points = 95.0, evictions: Points = (600, 900), refused: Points = (0, 0), hits: Points = (60_000, 10_000)
) -> Given:
    own = {
        "kvstore_used_bytes": used,
        "kvstore_total_bytes": 100.0,
        "kvstore_evictions": evictions,
        "kvstore_alloc_failures": refused,
    }
    lookups = {"external_cache_hits": hits, "external_cache_queries": (100_000, 50_000)}
    return but(sound(), {"store-0": own, "prefill-0": lookups})


@pytest.mark.parametrize(("used", "fires"), [(90.0, False), (90.1, True)])
def test_nine_tenths_are_full(used: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(workers=WORKERS, series=store(used))))) is fires


@pytest.mark.parametrize(("evictions", "fires"), [(600, False), (601, True)])
def test_evictions_twice_as_fast(evictions: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=store(evictions=(600, evictions))))
    assert bool(causes(found)) is fires
    assert bool(causes(found, Status.CLEAR)) is not fires


def test_a_full_store_that_still_gives_its_hits_is_a_cache_at_work() -> None:
    found = ask(ID, view(workers=WORKERS, series=store(hits=(60_000, 30_000))))
    assert causes(found, Status.CLEAR) == ["kvstore-full"]


def test_a_refused_write_is_enough_but_not_in_an_empty_store() -> None:
    found = one(ask(ID, view(workers=WORKERS, series=store(refused=(0, 4), hits=None))))
    assert groups(found) == {"refused", "full", "evicted"}
    empty = one(ask(ID, view(workers=WORKERS, series=store(20.0, refused=(0, 4), hits=None))))
    assert [w.group for w in empty.against] == ["full"]


def test_engines_that_lose_hits_of_their_own_caches_speak_for_other_prompts() -> None:
    own = {"prefill-0": {"prefix_cache_hits": (60_000, 2_000), "prefix_cache_queries": (100_000, 50_000)}}
    assert [w.group for w in one(ask(ID, view(workers=WORKERS, series=but(store(), own)))).against] == ["own"]
    refused = but(store(refused=(0, 4)), own)
    assert one(ask(ID, view(workers=WORKERS, series=refused))).against == ()


def test_full_without_counters_is_not_known() -> None:
    found = ask(ID, view(workers=WORKERS, series=store(evictions=None, refused=None)))
    assert causes(found, Status.UNKNOWN) == ["kvstore-full"]


def test_without_its_size_it_says_nothing() -> None:
    assert ask(ID, view(workers=WORKERS, series=store(used=None))) == ()


def test_report() -> None:
    given = but(store(refused=(0, 40)), {"client": {"ttft_seconds.p95": (0.4, 1.9)}})
    report = golden(ID, view(workers=WORKERS, series=given))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("kvstore-full", ID)
    assert "evict-kv" in [d.action for d in report.top.do_not]
