"""What single screens say, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pdops.model.frame import LogLine
from pdops.model.view import View
from pdops_tui import places as at
from pdops_tui.desk import Desk
from pdops_tui.draw.line import plain
from pdops_tui.draw.plot import LEVELS
from pdops_tui.draw.sheet import Sheet
from pdops_tui.models.ask import Ask
from pdops_tui.models.screen import build
from pdops_tui.places import Place
from pdops_tui.screens import KINDS, sheet
from pdops_tui.screens.pool import MOST
from pdops_tui.screens.scene import Scene
from pdops_tui.snapshot import Snapshot
from tests.tui import build as b
from tests.tui.states import STATES


def made(snapshot: Snapshot | None, kind: str, about: str = "", width: int = 120, **desk: Any) -> Sheet:
    data = build(snapshot) if snapshot is not None else None
    return sheet(Scene(place=Place(kind, about), width=width, height=36, data=data, desk=Desk(**desk)))


def text(found: Sheet) -> str:
    return plain(found.lines)


@pytest.mark.parametrize("kind", KINDS)
def test_without_data_a_screen_says_so(kind: str) -> None:
    said = text(made(None, kind))
    assert "no data yet" in said or kind == at.START


def test_a_worker_beside_its_pool() -> None:
    said = text(made(STATES["degraded"](), at.WORKER, "decode-1"))
    assert "10x the pool's median" in said
    assert "transport-fallback-slow (transfer), confidence 0.91" in said
    assert "<=2.5s" in said
    assert "vllm:nixl_xfer_time_seconds" in said


def test_a_worker_that_fell_silent_is_dated() -> None:
    said = text(made(STATES["unknown"](), at.WORKER, "decode-7"))
    assert "VITALS, as last heard 21s ago" in said
    assert "DOWN 21s" in said


def test_peers_that_nobody_tells_are_not_guessed() -> None:
    view = b.view(b.cluster(2, 2, router=False), seconds=30)
    said = text(made(b.snapshot(view, None), at.WORKER, "decode-1"))
    assert "? engines name no peer, and no router or plugin tells of pairs" in said


def test_a_pool_names_what_it_does_not_tell() -> None:
    view = b.view(seconds=30)
    series = {k: v for k, v in view.series.items() if k[1] != "kv_transfer_seconds"}
    said = text(made(b.snapshot(dataclasses.replace(view, series=series), None), at.POOL, "decode"))
    assert "NOT KNOWN OF THIS POOL" in said
    assert "? XFER99" in said
    assert "kv_transfer_seconds is not given for pool:decode" in said


def test_a_pool_leads_to_its_workers_and_a_large_one_says_how_many_are_left_out() -> None:
    small = made(STATES["healthy"](), at.POOL, "decode")
    assert [t.place for t in small.targets] == [Place(at.WORKER, "decode-0"), Place(at.WORKER, "decode-1")]
    large = made(b.snapshot(b.view(b.cluster(1, MOST + 7), seconds=3), None), at.POOL, "decode")
    assert len(large.targets) == MOST
    assert "7 more are not shown here" in text(large)


def test_the_diagnosis_leads_to_places_and_plans() -> None:
    found = made(STATES["degraded"](), at.DIAGNOSIS)
    places = [t.place for t in found.targets]
    assert Place(at.PAIR, "prefill-0>decode-1") in places
    assert Place(at.WORKER, "decode-1") in places
    assert Place(at.RUNBOOK, "kv-transfer-relief") in places
    assert "EVIDENCE OVER TIME" in text(found)


def test_a_plan_without_a_judgement_is_not_made() -> None:
    view = b.view(seconds=10)
    assert "not judged yet" in text(made(b.snapshot(view, None), at.RUNBOOK, "kv-transfer-relief"))


def test_a_runbook_that_does_not_exist_is_said_with_a_hint() -> None:
    said = text(made(STATES["degraded"](), at.RUNBOOK, "no-such"))
    assert "no-such" in said
    assert "pdops runbook list" in said


def test_events_lead_to_workers_and_count_over_time() -> None:
    snapshot = STATES["degraded"]()
    view: View = dataclasses.replace(
        snapshot.view, logs=(LogLine(t_s=snapshot.view.at_s - 1, worker="decode-1", line="released expired KV"),)
    )
    found = made(dataclasses.replace(snapshot, view=view), at.EVENTS)
    lines = text(found).splitlines()
    first = next(i for i, line in enumerate(lines) if "NEWEST FIRST" in line) + 1
    assert "released expired KV" in lines[first]
    assert found.targets[0].place == Place(at.WORKER, "decode-1")
    assert any(line.startswith(" restart") and line.endswith(" 1") for line in lines[:first])


def test_the_router_is_asked_about_each_worker() -> None:
    def life(page: b.Page, worker: b.Worker, second: int) -> bool:
        answers = b.healthy(page, worker, second)
        if worker.id == "router-0":
            for who, up in (("decode-0", 1), ("decode-1", 0)):
                page.gauge("worker_health", up, who)
                page.count("worker_selection", 3 * up + 1, who)
        return answers

    said = text(made(b.snapshot(b.view(seconds=60, life=life), None), at.FLEET))
    rows = {
        line.split()[0]: line.split()[1:] for line in said.splitlines() if line.startswith((" decode-", " prefill-"))
    }
    assert rows["decode-0"][:2] == ["yes", "80%"]
    assert rows["decode-1"][:2] == ["no", "20%"]
    assert rows["prefill-0"][:2] == ["?", "?"]


def test_pairs_are_put_on_the_end_that_most_of_them_share() -> None:
    snapshot = STATES["degraded"]()
    assert snapshot.report is not None
    pairs = tuple(
        dataclasses.replace(snapshot.report.hypotheses[0].scopes[0], kind="pair", id=f"prefill-{i}>decode-1")
        for i in (0, 1)
    )
    first = dataclasses.replace(snapshot.report.hypotheses[0], scopes=pairs)
    report = dataclasses.replace(snapshot.report, hypotheses=(first,))
    assert set(Ask(snapshot.view, report).named) == {"decode-1"}


@pytest.mark.parametrize("store", [False, True])
def test_hits_in_a_shared_cache_need_a_store(store: bool) -> None:
    def life(page: b.Page, worker: b.Worker, second: int) -> bool:
        answers = b.healthy(page, worker, second)
        if worker.id == "decode-0":
            page.count("external_cache_queries", 100)
            page.count("external_cache_hits", 100)
        return answers

    said = text(made(b.snapshot(b.view(b.cluster(store=store), seconds=60, life=life), None), at.FLEET))
    assert ("HITS IN THE SHARED CACHE" in said) is store


def test_a_store_that_tells_no_capacity_has_none_on_its_screen() -> None:
    def life(page: b.Page, worker: b.Worker, second: int) -> bool:
        answers = b.healthy(page, worker, second)
        if worker.id == "store-0":
            page.gauge("kvstore_total_bytes", 0.0)
        return answers

    said = text(made(b.snapshot(b.view(b.cluster(store=True), seconds=60, life=life), None), at.FLEET))
    (line,) = (x for x in said.splitlines() if x.startswith(" capacity "))
    assert line.split()[1] == "?"
    assert "kvstore_total_bytes is 0: it tells no capacity" in line
    assert not set(line) & set(LEVELS)
