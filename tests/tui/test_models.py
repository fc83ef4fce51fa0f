"""The screen as data: healthy, degraded, unknown and empty clusters say what they are."""

from __future__ import annotations

import dataclasses

import pytest

from pdops.history.ring import Ring
from pdops.model.cluster import Cluster, Role
from pdops.model.frame import Event, EventKind, LogLine, Probe, ProbeKind
from pdops.model.report import Bound, Missing, Report, Scope, TtftStage, Verdict
from pdops.model.view import View
from pdops_tui.models import trend
from pdops_tui.models.diagnosis import brief, trace
from pdops_tui.models.format import Cell
from pdops_tui.models.pools import Order, Table, mistaken
from pdops_tui.models.screen import Screen, build
from pdops_tui.session import Session
from tests.tui import build as b


def screen(view: View, report: Report | None, session: Session | None = None, **more: object) -> Screen:
    return build(b.snapshot(view, report, **more), session)


def cells(table: Table, name: str) -> dict[str, Cell]:
    index = table.ids.index(name) if name in table.ids else len(table.ids) + table.pools.index(name)
    row = table.row(index)
    return {"state": row.state, **{c.key: v for c, v in zip(table.columns, row.cells, strict=True)}}


@pytest.fixture(scope="module")
def sound() -> View:
    return b.view(b.cluster(store=True), seconds=90)


@pytest.fixture(scope="module")
def slow() -> View:
    return b.view(seconds=160, life=b.slow_link(90))


@pytest.fixture(scope="module")
def broken() -> View:
    return b.view(seconds=100, life=b.down(80))


# healthy


def test_a_healthy_cluster_reads_ok(sound: View) -> None:
    seen = screen(sound, b.healthy_report(sound))
    assert seen.header.verdict.text == "ok HEALTHY"
    assert (seen.header.shape, seen.header.up.text, seen.header.age.text) == ("2P+2D+1R+1S", "up 6/6", "age 0.0s")
    assert seen.header.engines == "vllm 0.32.0"
    assert [p.state.text for p in seen.header.promises] == ["ok", "ok"]
    assert [t.role for t in seen.tables] == [Role.PREFILL, Role.DECODE]
    assert {r.state.text for t in seen.tables for r in t.rows(0, 2)} == {"ok"}


def test_prefill_row(sound: View) -> None:
    row = cells(screen(sound, b.healthy_report(sound)).tables[0], "prefill-1")
    assert {k: c.text for k, c in row.items()} == {
        "state": "ok", "run": "4", "wait": "1", "reason": "1/0", "queue": "88ms", "prompt": "24k", "hit": "50", "kv": "23",
        "expired": "0", "held": "1",
    }  # fmt: skip
    assert "the oldest waits 0.2s" in row["held"].why


def test_decode_row_and_pool_row(sound: View) -> None:
    table = screen(sound, b.healthy_report(sound)).tables[1]
    row, pool = cells(table, "decode-0"), cells(table, "decode")
    assert (row["fetch"].text, row["kvin"].text, row["local"].text, row["preempt"].text) == (
        "0/1/0",
        "1.6GB",
        "1.0",
        "0",
    )
    assert (pool["run"].text, pool["kv"].text, pool["kvin"].text, pool["state"].text) == ("61", "56", "3.2GB", "2/2")


def test_flow_counts_a_request_once(sound: View) -> None:
    flows = {f.label or f.unit: f.value.text for f in screen(sound, b.healthy_report(sound)).header.flows}
    assert flows == {"req/s": "12", "err": "0", "prompt": "48k", "gen": "3.6k", "KV": "3.2GB"}


def test_router_and_store_lines(sound: View) -> None:
    router, store = screen(sound, b.healthy_report(sound)).others
    assert dict(router.values)["ok/s"].text == "12"
    assert dict(router.values)["sees healthy"].text == "?"
    assert [(k, c.text) for k, c in store.values][:3] == [("serves", "yes"), ("used", "41%"), ("of", "2TB")]


# degraded


def test_what_is_over_the_slo_is_marked_without_colour(slow: View) -> None:
    seen = screen(slow, b.fault_report(slow))
    assert seen.header.promises[0].state.text == "[X]"
    bad = cells(seen.tables[1], "decode-1")
    assert {k for k, c in bad.items() if c.mark == "X"} == {"ttft", "failed"}
    assert bad["kv"].mark == "!"
    assert bad["state"].text == "[X]"
    assert "transport-fallback-slow" in bad["state"].why
    assert cells(seen.tables[1], "decode-0")["state"].text == "ok"


def test_beside_healthy_a_promise_that_is_passed_is_a_warning_with_the_reason(slow: View) -> None:
    fault, healthy = screen(slow, b.fault_report(slow)), screen(slow, b.healthy_report(slow))
    assert [s.kept.attained[0][1].mark for s in (fault, healthy)] == ["X", "!"]
    state = healthy.header.promises[0].state
    assert (state.text, state.style, state.mark) == ("[!]", "warn", "!")
    assert "no further than chance" in state.why
    assert "no further than chance" in healthy.kept.attained[0][1].why
    legs = [cells(s.tables[1], "decode-1")["ttft"] for s in (fault, healthy)]
    assert [leg.mark for leg in legs] == ["X", "!"]
    assert "which the diagnosis does not count" in legs[1].why


def test_a_healthy_verdict_of_long_before_excuses_nothing_that_is_seen_now(slow: View) -> None:
    dated = screen(slow, dataclasses.replace(b.healthy_report(slow), at_s=slow.at_s - 6.0))
    assert dated.header.promises[0].state.text == "[X]"
    assert cells(dated.tables[1], "decode-1")["ttft"].mark == "X"
    assert "judged 6.0s ago" in dated.header.cause


def test_while_workers_are_asked_for_the_first_time_nothing_is_known_and_nothing_is_wrong() -> None:
    who = b.cluster(1, 2, router=False)
    seen = screen(Ring(who).view(b.START_S), None, asking=True)
    assert (seen.header.verdict.style, seen.header.cause) == ("unknown", "asking 3 workers, nothing is known yet")
    assert seen.header.trouble == ""
    assert seen.header.up.style == "unknown"
    for table in seen.tables:
        for name in (*table.ids, *table.pools):
            found = cells(table, name)
            assert {c.style for c in found.values()} <= {"unknown", "dim"}, name
            assert {c.text for key, c in found.items() if key != "state"} == {"?"}, name


def test_a_leg_that_is_slower_than_what_clients_are_promised_and_get_is_a_warning() -> None:
    def life(page: b.Page, worker: b.Worker, second: int) -> bool:
        answers = b.healthy(page, worker, second)
        if worker.id == "decode-1":
            page.observe("ttft_seconds", 4.0, 2)
        return answers

    view = b.view(seconds=90, life=life)
    made = cells(screen(view, b.unknown_report(view)).tables[1], "decode-1")["ttft"]
    assert (made.mark, made.style) == ("!", "warn")
    assert "which clients do not feel" in made.why


def test_a_pair_marks_its_workers_only_when_no_worker_is_named(slow: View) -> None:
    report = b.fault_report(slow)
    only_pair = dataclasses.replace(report.hypotheses[0], scopes=report.hypotheses[0].scopes[:1])
    seen = screen(slow, dataclasses.replace(report, hypotheses=(only_pair,)))
    assert cells(seen.tables[0], "prefill-0")["state"].text == "[X]"
    assert cells(screen(slow, report).tables[0], "prefill-0")["state"].text == "ok"


def test_the_cause_line_names_cause_layer_place_and_confidence(slow: View) -> None:
    seen = screen(slow, b.fault_report(slow))
    assert seen.header.verdict.text == "[X] FAULT"
    assert seen.header.cause == "0.91 transport-fallback-slow in transfer at prefill-0>decode-1, decode-1"


def test_diagnosis_in_short_puts_next_before_more_evidence(slow: View) -> None:
    entries = brief(b.fault_report(slow)).entries
    assert entries[0].label == "1 [X] 0.91"
    by_need = sorted(entries, key=lambda e: e.drop)
    assert [e.label for e in by_need[:4]] == ["1 [X] 0.91", "next", "+", "do not"]
    assert "kv_transfer_bandwidth.mean prefill-0>decode-1: 1GB/s, expected 7.5GB/s (peer, 60 s)" in {
        e.text for e in entries
    }
    assert any(">=5s, expected 0.2s" in e.text for e in entries)


def test_what_many_workers_lack_for_one_reason_is_one_short_entry(slow: View) -> None:
    gaps = tuple(Missing(signal="all signals", why="silent", scope=Scope("worker", f"decode-{n}")) for n in range(512))
    report = b.fault_report(slow)
    top = dataclasses.replace(report.hypotheses[0], missing=gaps)
    entries = brief(dataclasses.replace(report, missing=gaps, hypotheses=(top,))).entries
    assert [e.text for e in entries if "all signals" in e.text] == [
        "512 missing: 512 x all signals",
        "all signals (512: decode-0, decode-1, decode-2 and 509 more): silent",
    ]


def test_the_full_trace_leaves_nothing_out(slow: View) -> None:
    report = b.fault_report(slow)
    text = "\n".join(f"{e.label} {e.text}" for e in trace(report))
    for item in report.hypotheses:
        assert item.cause in text
        assert all(step in text for step in item.next)
    for said in (
        "prefill-undersized: queue p95",
        "no node exporter on decode-1 -> start one there",
        "how it was found",
    ):
        assert said in text


def test_a_worker_that_is_down_is_dim_and_dated(broken: View) -> None:
    seen = screen(broken, b.fault_report(broken))
    table = seen.tables[1]
    row = table.row(0)
    assert (row.id, row.dim, row.state.text, row.state.mark) == ("decode-0", True, "DOWN 21s", "X")
    assert "connection refused" in row.state.why
    assert (seen.header.up.text, seen.header.up.mark) == ("up 4/5", "X")


def test_the_last_words_of_a_dead_worker_are_not_in_the_pools_gauges(broken: View) -> None:
    pool = cells(screen(broken, b.fault_report(broken)).tables[1], "decode")
    assert pool["run"].text == ">=31"
    assert pool["itl"].text.startswith("~")
    assert "without decode-0" in pool["run"].why
    assert pool["state"].text == "1/2"


def test_old_verdicts_are_dated(slow: View) -> None:
    old = dataclasses.replace(b.fault_report(slow), at_s=slow.at_s - 30)
    assert screen(slow, old).header.cause.endswith("(judged 30s ago)")


# unknown and empty


def test_nobody_judged_is_unknown_not_healthy(sound: View) -> None:
    seen = screen(sound, None)
    assert seen.header.verdict.text == "[?] UNKNOWN"
    assert {r.state.text for t in seen.tables for r in t.rows(0, 2)} == {"?"}
    assert seen.split.total.text == "?"


def test_without_a_router_ttft_is_a_lower_bound_that_is_never_ok() -> None:
    view = b.view(b.cluster(router=False))
    ttft, itl = screen(view, b.unknown_report(view)).header.promises
    assert (ttft.value.text, ttft.state.text) == (">=394ms", "?")
    assert "lower bound of what clients see; at clients: ttft_seconds is not given" in ttft.value.why
    assert itl.state.text == "ok"


def test_when_no_request_of_clients_ends_the_engines_do_not_stand_in_for_them() -> None:
    def stalled(page: b.Page, worker: b.Worker, second: int) -> bool:
        if worker.role is Role.ROUTER and second > 5:
            return True
        return b.healthy(page, worker, second)

    view = b.view(seconds=90, life=stalled)
    ttft = screen(view, b.unknown_report(view)).header.promises[0]
    assert (ttft.value.text, ttft.state.text) == (">=394ms", "?")
    assert "no events in the window" in ttft.value.why


def given_view(values: dict[str, float]) -> View:
    def life(page: b.Page, worker: b.Worker, second: int) -> bool:
        for signal, value in values.items():
            page.gauge(signal, value, b.CLIENT)
        return True

    return b.view(seconds=20, life=life)


@pytest.mark.parametrize(
    ("values", "label", "state"),
    [
        ({"ttft_seconds.p99": 0.6}, "TTFT p99", "ok"),
        ({"ttft_seconds.p99": 5.2}, "TTFT p99", "?"),
        ({"ttft_seconds.p50": 5.2}, "TTFT p50", "[X]"),
        ({"ttft_seconds.p50": 0.2}, "TTFT p50", "?"),
        ({"ttft_seconds.p95": 0.9, "ttft_seconds.p99": 5.2}, "TTFT p95", "ok"),
    ],
)
def test_another_percentile_is_named_and_judged_for_what_it_says(
    values: dict[str, float], label: str, state: str
) -> None:
    view = given_view(values)
    ttft = screen(view, b.unknown_report(view)).header.promises[0]
    assert (ttft.label, ttft.state.text) == (label, state)


def test_a_stage_that_is_not_known_keeps_its_reason_and_makes_the_total_a_bound(sound: View) -> None:
    split = screen(sound, b.unknown_report(sound)).split
    assert split.total.text.startswith(">=")
    assert {s.label: s.time.text for s in split.stages}["handoff"] == "?"
    assert split.reason == "handoff: no router gives handoff_seconds"


def test_a_bound_among_the_stages_is_shown_as_one(sound: View) -> None:
    stage = TtftStage(stage="kv_transfer", seconds=Bound(60.0, "ge"), share=None, why=None)
    split = screen(sound, b.report(sound, Verdict.FAULT, ttft=(stage,))).split
    assert (split.stages[0].time.text, split.total.text) == (">=60s", ">=60s")


def test_a_worker_without_vital_signals_is_not_ok() -> None:
    def silent(page: b.Page, worker: object, second: int) -> bool:
        page.gauge("kv_cache_usage", 0.5)
        return True

    view = b.view(b.cluster(1, 1, router=False), life=silent)
    row = cells(screen(view, b.unknown_report(view)).tables[0], "prefill-0")
    assert (row["state"].text, row["run"].text) == ("?", "?")
    assert "no value is known of running_requests, queue_depth" in row["state"].why


def test_stale_and_never() -> None:
    who = b.cluster(1, 2, router=False)
    ring = b.Ring(who)
    for frame in b.frames(who, 80):
        ring.add(
            dataclasses.replace(frame, scrapes=frame.scrapes[:2] if frame.at_s < b.START_S + 60 else frame.scrapes[:1])
        )
    view = ring.view()
    seen = screen(view, b.unknown_report(view))
    states = {r.id: r.state for r in seen.tables[1].rows(0, 2)}
    assert (states["decode-0"].text, states["decode-0"].mark) == ("STALE 21s", "!")
    assert (states["decode-1"].text, states["decode-1"].style, states["decode-1"].mark) == ("NEVER", "unknown", "")


@pytest.mark.parametrize(("events", "style"), [((), "unknown"), ((EventKind.DOWN,), "bad")])
def test_who_never_answered_is_unknown_until_it_is_called_down(events: tuple[EventKind, ...], style: str) -> None:
    told = tuple(Event(t_s=b.START_S + 1, kind=kind, worker="decode-0") for kind in events)
    view = b.view(b.cluster(1, 1, router=False), seconds=20, life=b.down(0), events=told)
    seen = screen(view, b.unknown_report(view))
    state = seen.tables[1].row(0).state
    assert (state.text, state.style) == ("NEVER 20s", style)
    assert (seen.header.up.text, seen.header.up.style) == ("up 1/2", style)


def test_no_slo_is_said() -> None:
    who = b.cluster()
    view = b.view(Cluster(name="x", workers=who.workers), seconds=20)
    assert [p.state.text for p in screen(view, None).header.promises] == ["no SLO", "no SLO"]


def test_an_empty_cluster() -> None:
    view = b.view(Cluster(name="empty", workers=()), seconds=0)
    seen = screen(view, b.unknown_report(view))
    assert (seen.header.shape, seen.header.up.text, seen.header.age.text) == ("empty", "up 0/0", "age ?")
    assert (seen.tables, seen.others, seen.events) == ((), (), ())


# rows


def test_order_cycles_and_puts_unknown_last() -> None:
    def life(page: b.Page, worker: b.Worker, second: int) -> bool:
        b.healthy(page, worker, second)
        if worker.id == "decode-2":
            del page.values[b.Column("", "running_requests")]
        return True

    view = b.view(b.cluster(1, 4, router=False), seconds=20, life=life)

    def ids(order: Order) -> tuple[str, ...]:
        return screen(view, None, Session(orders={Role.DECODE: order})).tables[1].ids

    first = Order().next("run")
    assert ids(first) == ("decode-3", "decode-1", "decode-0", "decode-2")
    assert ids(first.next("run")) == ("decode-0", "decode-1", "decode-3", "decode-2")
    assert first.next("run").next("run") == Order()
    assert ids(Order("worker")) == ("decode-0", "decode-1", "decode-2", "decode-3")


def test_in_a_large_table_trouble_comes_first() -> None:
    view = b.view(b.cluster(1, 12, router=False), seconds=70, life=b.down(60, "decode-9"))
    report = b.fault_report(view)
    assert screen(view, report).tables[1].ids[:3] == ("decode-9", "decode-1", "decode-0")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("decode-1", ["decode-1"]), ("M0", ["decode-0"]), ("decode !m0", ["decode-1"]), ("down", ["decode-0"]), ("!ok", ["decode-0"]),
        ("role:decode", ["decode-0", "decode-1"]), ("role:prefill", []), ("pool:dec !state:ok", ["decode-0"]), ("node:m1", ["decode-1"]),
        ("run>30", ["decode-1"]), ("run>=30 m0", ["decode-0"]), ("RUN<30", []), ("kv%>55.5", ["decode-1"]), ("kv>0.5%", ["decode-0", "decode-1"]),
        ("!run>30", ["decode-0"]), ("ttft95>1ms", ["decode-0", "decode-1"]), ("kvin>1G", ["decode-0", "decode-1"]),
        ("held>0", []), ("!held>0", []), ("nothing>0", []), ("kv>", []),
        ("nothing", []), ("", ["decode-0", "decode-1"]), ("!", ["decode-0", "decode-1"]),
    ],
)  # fmt: skip
def test_filter(broken: View, words: str, shown: list[str]) -> None:
    report = b.healthy_report(broken)
    table = screen(broken, report, Session(filter=words)).tables[1]
    assert list(table.ids) == shown
    assert len(table) == len(shown) + 1


def test_rows_are_made_only_when_asked_for() -> None:
    view = b.view(b.cluster(2, 64, router=False), seconds=5)
    table = screen(view, None).tables[1]
    made = table.rows(10, 20)
    assert [r.id for r in made] == [f"decode-{i}" for i in range(10, 20)]
    assert len(table._rows) == 10
    with pytest.raises(IndexError):
        table.row(len(table))


def test_colocated_workers_have_a_table_of_their_own() -> None:
    worker = b.Worker(id="both-0", role=Role.COLOCATED, pool="both", engine="vllm")
    view = b.view(Cluster(name="c", workers=(worker,)), seconds=5, life=lambda *_: True)
    (table,) = screen(view, None).tables
    assert table.role is Role.COLOCATED
    assert {"queue", "itl"} <= {c.key for c in table.columns}


# events


def test_events_come_newest_first_then_log_lines() -> None:
    events = (
        Event(t_s=b.START_S + 5, kind=EventKind.RESTART, worker="decode-1", detail="start time changed", revision="r2"),
        Event(t_s=b.START_S + 9, kind=EventKind.ROLLOUT, pool="decode"),
    )
    view = dataclasses.replace(
        b.view(seconds=10, events=events),
        logs=(LogLine(t_s=b.START_S + 7, worker="prefill-0", line="Releasing\x1b[31m expired"),),
        probes=(
            Probe(t_s=b.START_S + 6, kind=ProbeKind.CANARY, ok=False, pair="prefill-0>decode-0", detail="differs"),
        ),
    )
    seen = screen(view, None).events
    assert [(e.kind, e.who) for e in seen] == [
        ("rollout", "pool decode"),
        ("canary failed", "prefill-0>decode-0"),
        ("restart", "decode-1"),
        ("log", "prefill-0"),
    ]
    assert seen[2].detail == "start time changed r2"
    assert "\x1b" not in seen[3].detail


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("kvv>80", "did you mean 'kv'?"), ("!nothing>0", "columns: "), ("ttft95>x", "compare a column with a number"),
        ("decode nod:n1", "did you mean 'node'?"), ("!zon:a", "did you mean 'zone'?"),
    ],
)  # fmt: skip
def test_a_filter_that_can_match_nobody_is_told(words: str, hint: str) -> None:
    found = mistaken(words)
    assert found is not None
    assert hint in found[1]


@pytest.mark.parametrize("words", ["", "!", "decode-1 !m0", "role:decode", "kv%>55.5", "RUN<30", "!held>0", "kvin>1G"])
def test_a_filter_that_may_match_is_taken(words: str) -> None:
    assert mistaken(words) is None


# what cannot be, and what is only said of some


def changed(gauges: dict[str, dict[str, float]], counts: dict[str, dict[str, float]] | None = None) -> b.Life:
    """Let workers live in health, but for what a worker's page says of some scope."""

    def life(page: b.Page, worker: b.Worker, second: int) -> bool:
        answers = b.healthy(page, worker, second)
        for signal, value in gauges.get(worker.id, {}).items():
            name, _, scope = signal.partition("@")
            page.gauge(name, value, scope)
        for signal, by in (counts or {}).get(worker.id, {}).items():
            page.count(signal, by)
        return answers

    return life


def test_more_than_all_of_the_kv_pool_is_impossible_and_no_number() -> None:
    view = b.view(seconds=30, life=changed({"decode-0": {"kv_cache_usage": 17.0}}))
    seen = screen(view, b.healthy_report(view))
    kv = cells(seen.tables[1], "decode-0")["kv"]
    assert (kv.text, kv.mark, kv.sort) == ("?", "", None)
    assert "17 of a whole is impossible" in kv.why
    state = cells(seen.tables[1], "decode-0")["state"]
    assert (state.text, state.style) == ("?", "unknown")
    assert state.why == "no value is known of kv_cache_usage"
    assert cells(seen.tables[1], "decode")["kv"].text == "?"
    assert cells(seen.tables[1], "decode-1")["kv"].text == "56"
    assert trend.gauge(seen.ask, "decode-0", "kv_cache_usage", 5).known is False
    assert trend.gauge(seen.ask, "pool:decode", "kv_cache_usage", 5).top == pytest.approx(0.56)


def test_a_pool_that_is_full_is_no_impossible_one() -> None:
    view = b.view(seconds=30, life=changed({"decode-0": {"kv_cache_usage": 1.0}}))
    kv = cells(screen(view, b.healthy_report(view)).tables[1], "decode-0")["kv"]
    assert (kv.text, kv.mark) == ("100", "!")


def line_of(seen: Screen, name: str) -> dict[str, Cell]:
    return dict(next(o.values for o in seen.others if o.id == name))


@pytest.mark.parametrize(
    ("said", "text", "mark"),
    [
        ({}, "?", ""),
        ({"decode-0": 1}, "1 of 1 it speaks of", ""),
        ({"decode-0": 1, "decode-1": 0}, "1 of 2 it speaks of", "X"),
        ({"decode-0": 1, "decode-1": 1, "prefill-0": 1, "prefill-1": 1}, "4 of 4", ""),
    ],
)
def test_a_router_counts_those_it_speaks_of(said: dict[str, float], text: str, mark: str) -> None:
    told = {f"worker_health@{who}": up for who, up in said.items()}
    view = b.view(seconds=30, life=changed({"router-0": told}))
    healthy = line_of(screen(view, None), "router-0")["sees healthy"]
    assert (healthy.text, healthy.mark) == (text, mark)


def test_of_several_routers_none_is_given_the_words_of_another() -> None:
    one = b.cluster()
    who = dataclasses.replace(one, workers=(*one.workers, dataclasses.replace(one.workers[-1], id="router-1")))
    view = b.view(who, seconds=30, life=changed({"router-0": {"worker_health@decode-0": 1}}))
    seen = screen(view, None)
    assert [line_of(seen, name)["sees healthy"].text for name in ("router-0", "router-1")] == ["?", "?"]


@pytest.mark.parametrize(
    ("told", "used", "of", "why"),
    [
        ({"kvstore_total_bytes": 0.0}, "?", "?", "tells no capacity"),
        ({"kvstore_used_bytes": 3.0e12}, "?", "2TB", "impossible"),
        ({}, "41%", "2TB", ""),
    ],
)
def test_a_store_without_a_capacity_is_not_empty(told: dict[str, float], used: str, of: str, why: str) -> None:
    view = b.view(b.cluster(store=True), seconds=30, life=changed({"store-0": told}))
    values = line_of(screen(view, None), "store-0")
    assert (values["used"].text, values["of"].text) == (used, of)
    assert why in values["used"].why
