"""kvstore/metadata-lost: a restart of the store, and hits or contents that vanished with it."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, line, one, restart, sound, view

ID = "kvstore/metadata-lost"
WORKERS = ("prefill-0", "decode-0", "store-0")
BACK = restart("store-0", -250)


def lookups(hits: Points, used: Points = None) -> Given:
    asked = {"external_cache_hits": hits, "external_cache_queries": None if hits is None else (100_000, 50_000)}
    return but(sound(), {"prefill-0": asked, "store-0": {"kvstore_used_bytes": used}})


@pytest.mark.parametrize(("hits", "fires"), [(6_000, False), (5_900, True)])
def test_a_fifth_of_the_hits_after_a_restart(hits: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=lookups((60_000, hits)), events=[BACK]))
    assert causes(found) == (["kvstore-metadata-loss"] if fires else [])


@pytest.mark.parametrize(("used", "fires"), [(10.0, False), (9.9, True)])
def test_a_fifth_of_the_contents_after_a_restart(used: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=lookups((60_000, 29_000), (50.0, used)), events=[BACK]))
    assert bool(causes(found)) is fires


@pytest.mark.parametrize(("t_s", "fires"), [(-900.0, True), (-901.0, False)])
def test_for_a_quarter_of_an_hour(t_s: float, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=lookups((60_000, 100)), events=[restart("store-0", t_s)]))
    assert bool(causes(found)) is fires


def test_hits_that_vanish_without_a_restart_are_another_story() -> None:
    assert ask(ID, view(workers=WORKERS, series=lookups((60_000, 100)))) == ()


def test_hits_that_were_never_there_cannot_vanish() -> None:
    assert causes(ask(ID, view(workers=WORKERS, series=lookups((5_000, 0)), events=[BACK]))) == []


def test_a_restart_without_lookups_is_not_known() -> None:
    found = one(ask(ID, view(workers=WORKERS, series=lookups(None), events=[BACK])), Status.UNKNOWN)
    assert found.missing[0].signal == "external_cache_hits"


def test_contents_that_go_with_the_hits_support_it() -> None:
    found = one(ask(ID, view(workers=WORKERS, series=lookups((60_000, 100), (50.0, 1.0)), events=[BACK])))
    assert groups(found) == {"restart", "hits", "contents"}


def test_report() -> None:
    more = {"prefill-0": {"queue_depth": (0.2, 12.0)}, "client": {"ttft_seconds.p95": (0.4, 3.0)}}
    report = golden(ID, view(workers=WORKERS, series=but(lookups((60_000, 300)), more), events=[BACK]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("kvstore-metadata-loss", ID)
    assert "disable-prefix-cache" in [d.action for d in report.top.do_not]


def test_a_line_about_it_stands_for_the_restart_that_nobody_saw() -> None:
    logs = [line("store-0", "OffloadObjectHeartbeat failed, error code is SEGMENT_NOT_FOUND")]
    found = one(ask(ID, view(workers=WORKERS, series=lookups((60_000, 500)), logs=logs)))
    assert [str(s) for s in found.scopes] == ["store-0"]
    assert ask(ID, view(workers=WORKERS, series=lookups((60_000, 30_000)), logs=logs)) == ()
