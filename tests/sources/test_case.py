"""Case files: the View they become, what is kept aside, and what is said about a bad one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.catalog.load import catalog
from pdops.errors import CaseError
from pdops.history.readings import Readings
from pdops.model.report import Layer, Scope, Verdict
from pdops.model.series import Kind, Series, Window
from pdops.model.view import Presence
from pdops.sources.case import case_view, load_case, parse_case, scaled, series_keys, without

HEAD = """\
schema: pdops/case/v1
id: inc-004
source: https://example.org/issues/4
basis: mixed
cluster:
  slo: {ttft_s: 1.0, itl_s: 0.05}
  workers:
    - {id: prefill-0, role: prefill, engine: vllm, version: 0.32.0}
    - {id: decode-0, role: decode, engine: vllm}
    - {id: decode-1, role: decode, pool: long, engine: vllm}
"""
GOOD = (
    HEAD
    + """\
at_s: 0
signals:
  ttft_seconds.p99: {client: {before: 0.6, now: 5.2}}
  kv_cache_usage: {decode-0: {before: 0.55, now: 0.84}, "pool:prefill": [[-300, 0.31], [0, 0.93]]}
  kv_transfer_bandwidth.mean: {"pair:prefill-0>decode-1": {before: 75e8, now: 1.0e+9}}
  kv_transfer_expired: {prefill-0: [[-300, 0], [-60, 4], [0, 11]]}
events:  [{t_s: -480, kind: restart, worker: decode-0}]
logs:    [{t_s: -30, worker: prefill-0, line: "Releasing expired KV blocks for request …"}]
facts:   {prefill-0: {tensor_parallel_size: 1, gpu_memory_utilization: 0.90, nested: {a: [1, 2], b: true}}, "pool:long": {dtype: auto}}
probes:  [{kind: canary, pair: prefill-0>decode-0, ok: false, detail: "first token differs"}]
inferred: [kv_cache_usage, ttft_seconds.p99@client]
expect:  {verdict: fault, layers_ok: [transfer], causes: [kv-strand-prefill], not: [scale-out-prefill], next_any: [lease]}
"""
)


def one(text: str, key: str, signal: str) -> Series:
    view, aside = case_view(parse_case(text))
    assert aside == ()
    (series,) = view.series[key, signal]
    assert isinstance(series, Series)
    return series


def test_a_case_becomes_a_view() -> None:
    case = parse_case(GOOD)
    view, aside = case_view(case)
    assert aside == ()
    assert (view.at_s, view.start_s, view.now, view.base) == (0, -900, Window(-300, 0), Window(-900, -300))
    assert view.relative
    assert (view.cluster.name, view.cluster.slo.ttft_s) == ("inc-004", 1.0)
    assert [(w.pool, w.version) for w in view.cluster.workers] == [
        ("prefill", "0.32.0"),
        ("decode", None),
        ("long", None),
    ]
    assert set(view.series) == {
        ("client", "ttft_seconds.p99"),
        ("decode-0", "kv_cache_usage"),
        ("pool:prefill", "kv_cache_usage"),
        ("pair:prefill-0>decode-1", "kv_transfer_bandwidth.mean"),
        ("prefill-0", "kv_transfer_expired"),
    }
    assert [(e.t_s, e.kind, e.worker) for e in view.events] == [(-480, "restart", "decode-0")]
    assert view.logs[0].line.startswith("Releasing")
    assert view.facts == {
        "prefill-0": {
            "tensor_parallel_size": "1",
            "gpu_memory_utilization": "0.90",
            "nested.a": "[1, 2]",
            "nested.b": "True",
        },
        "decode-1": {"dtype": "auto"},
    }
    assert (view.probes[0].pair, view.probes[0].ok, view.probes[0].t_s) == ("prefill-0>decode-0", False, 0)
    assert case.expect is not None
    assert (case.expect.verdict, case.expect.layers_ok) == (Verdict.FAULT, (Layer.TRANSFER,))
    assert (case.expect.not_, case.expect.next_any) == (("scale-out-prefill",), ("lease",))


def test_before_and_now_are_constants_that_do_not_mix() -> None:
    series = one(GOOD, "decode-0", "kv_cache_usage")
    assert series.kind is Kind.GAUGE
    assert (series.t[0], series.t[-1]) == (-900, 0)
    assert set(np.diff(series.t)) == {15.0, 30.0}
    assert set(series.v[series.t < -300]) == {0.55}
    assert set(series.v[series.t > -300]) == {0.84}
    ask = Readings(case_view(parse_case(GOOD))[0])
    assert ask.view.base is not None
    assert ask.level("decode-0", "kv_cache_usage", ask.view.base).value == pytest.approx(0.55)
    assert ask.quantile("client", "ttft_seconds", 0.99, ask.view.base).value == pytest.approx(0.6)
    assert ask.quantile("client", "ttft_seconds", 0.99).value == pytest.approx(5.2)
    assert ask.increase("prefill-0", "kv_transfer_expired").value == 11


def test_now_alone_says_nothing_about_before() -> None:
    series = one(HEAD + "signals: {queue_depth: {decode-0: {now: 3}}}", "decode-0", "queue_depth")
    assert series.t[0] > -300
    series = one(
        HEAD + "signals: {queue_depth: {decode-0: [[-20, .nan], [-10, null], [0, 3]]}}", "decode-0", "queue_depth"
    )
    assert series.t.tolist() == [0]


def test_times_are_relative_to_at_s() -> None:
    text = (
        HEAD + "at_s: 1000\nsignals: {queue_depth: {decode-0: [[-20, 1], [0, 3]]}}\nevents: [{t_s: -5, kind: rollout}]"
    )
    view, _ = case_view(parse_case(text))
    assert (view.now, view.events[0].t_s) == (Window(700, 1000), 995)
    (series,) = view.series["decode-0", "queue_depth"]
    assert isinstance(series, Series)
    assert series.t.tolist() == [980, 1000]


@pytest.mark.parametrize(
    ("signals", "name", "why", "scope"),
    [
        (
            "ttft_second.p99: {client: {now: 1}}",
            "ttft_second.p99",
            "unknown signal name, did you mean ttft_seconds.p99?",
            None,
        ),
        ("frobs: {client: {now: 1}}", "frobs", "unknown signal name", None),
        (
            "ttft_seconds: {client: {now: 1}}",
            "ttft_seconds",
            "a histogram takes one of .p50 .p95 .p99 .mean .rate",
            None,
        ),
        (
            "ttft_seconds.p90: {client: {now: 1}}",
            "ttft_seconds.p90",
            "a histogram takes one of .p50 .p95 .p99 .mean .rate",
            None,
        ),
        ("queue_depth.p99: {decode-0: {now: 1}}", "queue_depth.p99", "a gauge takes one of no suffix", None),
        (
            "preemptions: {decode-0: {before: 0, now: 1}}",
            "preemptions",
            "a counter needs cumulative samples [[t_s, value], …]",
            Scope("worker", "decode-0"),
        ),
        ("queue_depth: {decode-9: {now: 1}}", "queue_depth", "unknown key 'decode-9', did you mean decode-1?", None),
        (
            "queue_depth: {'pool:longer': {now: 1}}",
            "queue_depth",
            "no such pool: 'pool:longer', did you mean long?",
            None,
        ),
        ("queue_depth: {'pair:a': {now: 1}}", "queue_depth", "not a pair: 'pair:a'; expected PREFILL>DECODE", None),
        (
            "queue_depth: {'pair:a>decode-0': {now: 1}}",
            "queue_depth",
            "no such worker in 'pair:a>decode-0': a",
            None,
        ),
        (
            "queue_depth: {'prefill-0>decode-0': {now: 1}}",
            "queue_depth",
            "unknown key 'prefill-0>decode-0', did you mean pair:prefill-0>decode-0?",
            None,
        ),
    ],
)
def test_what_nobody_knows_is_kept_aside(signals: str, name: str, why: str, scope: Scope | None) -> None:
    view, aside = case_view(parse_case(HEAD + f"signals: {{{signals}}}"))
    assert not view.series
    assert [(m.signal, m.why, m.scope) for m in aside] == [(name, why, scope)]
    assert aside[0].fix


@pytest.mark.parametrize(
    ("more", "name", "why"),
    [
        ("events: [{t_s: 0, kind: kaboom}]", "events[0]", "unknown event kind 'kaboom'"),
        (
            "events: [{t_s: 0, kind: restrat, worker: decode-0}]",
            "events[0]",
            "unknown event kind 'restrat', did you mean restart?",
        ),
        ("events: [{t_s: 0, kind: down, worker: x}]", "events[0]", "no such worker: 'x'"),
        ("events: [{t_s: 0, kind: down, pool: x}]", "events[0]", "no such pool: 'x'"),
        ("events: [{t_s: 5, kind: rollout}]", "events[0]", "it lies after now"),
        ("events: [{t_s: 0, kind: rollout, by: me}]", "events[0].by", "unknown key, kept aside"),
        ("logs: [{worker: decode0, line: x}]", "logs[0]", "no such worker: 'decode0', did you mean decode-0?"),
        ("probes: [{kind: ping, ok: true}]", "probes[0]", "unknown probe kind 'ping'"),
        ("probes: [{kind: canary, pair: a>b}]", "probes[0]", "no such worker in 'a>b': a, b"),
        ("facts: {decode-9: {a: 1}}", "facts.decode-9", "no such worker: 'decode-9', did you mean decode-1?"),
        ("facts: {'pool:x': {a: 1}}", "facts.pool:x", "no such worker: 'pool:x'"),
        ("inferred: [queue_depth]", "inferred: queue_depth", "no such series"),
        ("expect: {verdict: fault, why: x}", "expect.why", "unknown key, kept aside"),
    ],
)
def test_other_things_nobody_knows_are_kept_aside(more: str, name: str, why: str) -> None:
    _, aside = case_view(parse_case(HEAD + more))
    assert [(m.signal, m.why) for m in aside] == [(name, why)]


def test_an_unknown_engine_is_told_and_kept() -> None:
    view, aside = case_view(parse_case(HEAD.replace("vllm}", "vlm}", 1)))
    assert [(m.signal, m.why) for m in aside] == [("decode-0", "unknown engine 'vlm', did you mean vllm?")]
    assert view.cluster.workers[1].engine == "vlm"


@pytest.mark.parametrize(
    ("more", "presence"),
    [
        ("", Presence.GIVEN),
        ("events: [{t_s: -50, kind: down, worker: decode-0}]", Presence.DOWN),
        ("events: [{t_s: -50, kind: down, pool: decode}]", Presence.DOWN),
        ("events: [{t_s: -50, kind: down, pool: long}]", Presence.GIVEN),
        (
            "events: [{t_s: -10, kind: restart, worker: decode-0}, {t_s: -50, kind: down, worker: decode-0}]",
            Presence.GIVEN,
        ),
        (
            "events: [{t_s: -60, kind: restart, worker: decode-0}, {t_s: -50, kind: down, worker: decode-0}]",
            Presence.DOWN,
        ),
        ("signals: {queue_depth: {decode-0: [[-300, 0], [-61, 1]]}}", Presence.STALE),
        ("signals: {queue_depth: {decode-0: [[-300, 0], [-60, 1]]}}", Presence.GIVEN),
        (
            "signals: {queue_depth: {decode-0: [[-300, 0]]}, running_requests: {decode-0: [[0, 1]]}}",
            Presence.GIVEN,
        ),
    ],
)
def test_presence_of_a_worker(more: str, presence: Presence) -> None:
    view, _ = case_view(parse_case(HEAD + more))
    assert view.health["decode-0"].presence is presence


@pytest.mark.parametrize(
    ("old", "new", "line", "why", "hint"),
    [
        ("signals:", "signal:", 12, "unknown key 'signal'", "did you mean 'signals'?"),
        (
            "schema: pdops/case/v1",
            "schema: pdops/case/v2",
            1,
            "schema: expected pdops/case/v1; got 'pdops/case/v2'",
            "did you mean 'pdops/case/v1'?",
        ),
        (
            "basis: mixed",
            "basis: rumour",
            4,
            "basis: expected one of reported, inferred, mixed, recorded; got 'rumour'",
            "choose from: reported, inferred, mixed, recorded",
        ),
        ("id: decode-1", "id: decode-0", 10, "worker 'decode-0' is given twice", "keep one of them"),
        (
            "[-60, 4]",
            "[-300, 4]",
            16,
            "signals.kv_transfer_expired.prefill-0: time -300 does not come after -300",
            "sort the samples by time, one for each moment",
        ),
        (
            "[-60, 4]",
            "[-60, many]",
            16,
            "signals.kv_transfer_expired.prefill-0[1][1]: expected a number, got 'many'",
            "`pdops schema` prints the format",
        ),
        (
            "[-60, 4]",
            "[-60]",
            16,
            "entry 2 is missing in signals.kv_transfer_expired.prefill-0[1]",
            "add it",
        ),
        (
            "now: 5.2",
            "after: 5.2",
            13,
            "unknown key 'after' in signals.ttft_seconds.p99.client",
            "known: before, now",
        ),
        (
            "verdict: fault",
            "verdict: broken",
            22,
            "expect.verdict: expected one of fault, overload, healthy, unknown; got 'broken'",
            "choose from: fault, overload, healthy, unknown",
        ),
        ("t_s: -480, ", "", 17, "key 't_s' is missing in events[0]", "add it"),
    ],
)
def test_a_bad_case_says_where_what_and_what_to_do(old: str, new: str, line: int, why: str, hint: str) -> None:
    assert old in GOOD
    with pytest.raises(CaseError) as caught:
        parse_case(GOOD.replace(old, new, 1))
    assert str(caught.value) == f"case cannot be used: case.yaml:{line}: {why}"
    assert caught.value.hint == hint


def test_a_case_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(GOOD)
    assert load_case(file) == parse_case(GOOD)


def test_numbers_made_up_for_a_report_are_marked() -> None:
    case = parse_case(GOOD)
    assert case.is_inferred("kv_cache_usage", "decode-0")
    assert case.is_inferred("ttft_seconds.p99", "client")
    assert not case.is_inferred("kv_transfer_expired", "prefill-0")


def test_a_scaled_case_is_the_same_fault_in_a_slower_cluster() -> None:
    case = parse_case(GOOD)
    slower = scaled(case, 2.0)
    assert slower.cluster.slo.ttft_s == 2.0
    assert slower.cluster.slo.percentile == case.cluster.slo.percentile
    before, after = case_view(case)[0], case_view(slower)[0]
    for (key, name), (old,) in before.series.items():
        (new,) = after.series[key, name]
        assert isinstance(old, Series)
        assert isinstance(new, Series)
        ratio = catalog().signals[name.partition(".")[0]].unit == "ratio"
        assert new.v.tolist() == (old.v * (1 if ratio else 2)).tolist()
        assert new.t.tolist() == old.t.tolist()
    assert scaled(case, 1.0) == case


def test_a_series_can_be_left_out() -> None:
    case = parse_case(GOOD)
    for key in series_keys(case):
        less = without(case, key)
        assert set(series_keys(case)) - set(series_keys(less)) == {key}
    assert "kv_cache_usage" not in without(case, "kv_cache_usage").signals
    with pytest.raises(KeyError):
        without(case, "queue_depth")


def _problem(text: str) -> CaseError | None:
    try:
        case_view(parse_case(text))
    except CaseError as error:
        return error
    return None


@given(st.integers(0, len(GOOD) - 1), st.sampled_from(["", "\n", "\t", "{", "'", "*a", "&a ", "\x00", "- ", "9", "e"]))
def test_no_damage_makes_anything_but_a_view_or_an_error(at: int, put: str) -> None:
    problem = _problem(GOOD[:at] + put + GOOD[at + 1 :])
    assert problem is None or problem.hint
