"""kvstore/written-never-read: the store fills and lookups find nothing."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Layer, Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, restart, sound, view, worker

ID = "kvstore/written-never-read"
WORKERS = (worker("prefill-0", engine="sglang"), worker("decode-0", engine="sglang"), worker("store-0"))


def stored(
    hits: Points = (0, 0), used: Points = (20e9, 40e9), ttft: Points = (0.4, 3.0), more: Given | None = None
) -> Given:
    given = {
        "prefill-0": {"external_cache_hits": hits, "external_cache_queries": (100_000, 50_000)},
        "store-0": {"kvstore_used_bytes": used},
        "client": {"ttft_seconds.p95": ttft},
    }
    return but(but(sound(), given), more or {})


def test_written_and_never_found() -> None:
    found = one(ask(ID, view(workers=WORKERS, series=stored())))
    assert found.cause == "kvstore-slow-or-missed-prefetch"
    assert found.layer is Layer.CONFIG
    assert groups(found) == {"hits", "written"}


@pytest.mark.parametrize(("now", "fires"), [(499, True), (500, False)])
def test_one_in_a_hundred_is_found(now: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(workers=WORKERS, series=stored((0, now)))))) is fires


def test_hits_that_were_there_are_another_story() -> None:
    assert causes(ask(ID, view(workers=WORKERS, series=stored((50_000, 0))))) == []
    assert causes(ask(ID, view(workers=WORKERS, series=stored((50_000, 26_000)))), Status.CLEAR) != []


@pytest.mark.parametrize(("used", "fires"), [(21.0e9, False), (21.1e9, True)])
def test_somebody_has_to_write(used: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(workers=WORKERS, series=stored(used=(20e9, used)))))) is fires


def test_evictions_show_writing_too() -> None:
    given = stored(used=40e9, more={"store-0": {"kvstore_evictions": (0, 100)}})
    assert "written" in groups(one(ask(ID, view(workers=WORKERS, series=given))))


def test_a_store_nobody_misses_or_that_just_started_is_no_fault() -> None:
    assert ask(ID, view(workers=WORKERS, series=stored(ttft=0.4))) == ()
    assert ask(ID, view(workers=WORKERS, series=stored(), events=[restart("store-0", -200)])) == ()


def test_prompts_that_do_not_repeat_speak_against_it() -> None:
    own = {"prefill-0": {"prefix_cache_hits": (0, 0), "prefix_cache_queries": (100_000, 50_000)}}
    assert one(ask(ID, view(workers=WORKERS, series=stored(more=own)))).against


def test_with_vllm_the_hashes_may_differ() -> None:
    found = ask(ID, view(workers=("prefill-0", "decode-0", "store-0"), series=stored()))
    assert causes(found) == ["kvstore-slow-or-missed-prefetch", "hash-mismatch"]


def test_report() -> None:
    report = golden(ID, view(workers=WORKERS, series=stored()))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.check == ID
