"""Every fault primitive moves what it should and leaves the other pool alone."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from pdops.errors import SimError
from pdops.model.frame import EventKind, Frame
from pdops.sim.loop import Loop
from pdops.sim.nic import Fabric
from pdops.sim.records import Outcome, RequestRecord
from pdops.sim.run import UP_BEFORE_S, Simulation
from pdops.sim.spec import KINDS, Fault, Network, SimSpec, Zone
from tests.sim.runs import BASE, STORED, mean, run, total, value, well

FROM_S, TO_S, WINDOW_S = 100.0, 220.0, 10.0
STORE = replace(BASE, store=STORED, engine=replace(BASE.engine, prefill_kv_blocks=4000))
AFFINE = replace(BASE, router=replace(BASE.router, policy="prefix-affinity"))
FEW_BLOCKS = replace(BASE.engine, prefill_kv_blocks=1500)
LONG_SHARED = replace(AFFINE, workload=replace(BASE.workload, prefix_share=0.9, prefix_groups=8, zipf_skew=0.0))


def prefill_wait(r: RequestRecord) -> float:
    return r.prefill_started_s - r.granted_s


def prefill_time(r: RequestRecord) -> float:
    return r.prefilled_s - r.prefill_started_s


def pull_time(r: RequestRecord) -> float:
    return r.pulled_s - r.pull_started_s


def decode_wait(r: RequestRecord) -> float:
    return r.first_token_s - r.decode_arrived_s


def tpot(r: RequestRecord) -> float:
    return r.tpot_s


def ttft(r: RequestRecord) -> float:
    return r.ttft_s


def prompt(r: RequestRecord) -> float:
    return float(r.prompt_tokens)


def output(r: RequestRecord) -> float:
    return float(r.output_tokens)


def cached(r: RequestRecord) -> float:
    return r.cached_tokens / r.prompt_tokens


def stored(r: RequestRecord) -> float:
    return float(r.stored_tokens)


def crosses(r: RequestRecord) -> float:
    assert r.prefill is not None
    assert r.decode is not None
    return float(int(r.prefill[-1]) % 2 != int(r.decode[-1]) % 2)


def hottest(r: RequestRecord) -> float:
    return float(r.group == 0)


def uneven(r: RequestRecord) -> float:
    return float(r.decode in ("decode-0", "decode-1"))


@dataclass(frozen=True, slots=True)
class Case:
    """A fault, what it moves (up or down), and what of the other pool stays within 10 %."""

    kind: str
    moved: Callable[[RequestRecord], float]
    up: bool = True
    params: Mapping[str, float | str] = field(default_factory=dict)
    target: tuple[str, ...] = ()
    same: tuple[Callable[[RequestRecord], float], ...] = ()
    spec: SimSpec = BASE
    also: tuple[Fault, ...] = ()


CASES = [
    Case("prefill-speed", prefill_time, params={"factor": 0.4}, same=(tpot,)),
    Case("decode-speed", tpot, params={"factor": 0.5}, same=(prefill_time,)),
    Case("rank-imbalance", tpot, params={"factor": 1.8}, same=(prefill_time, pull_time)),
    Case("prefill-workers-lost", prefill_wait, same=(output,)),
    Case("kv-blocks", decode_wait, params={"factor": 0.1}, same=(prefill_time,)),
    Case("max-num-seqs", decode_wait, params={"value": 3}, same=(prefill_time,)),
    Case("max-num-batched-tokens", prefill_time, params={"value": 128}, same=(tpot,)),
    Case("link-rate", pull_time, params={"factor": 0.05}, same=(prefill_time, tpot)),
    Case("link-latency", pull_time, params={"add_s": 0.2}, same=(prefill_time, tpot)),
    Case("link-loss", pull_time, params={"ratio": 0.05}, same=(prefill_time, tpot)),
    Case("nic-background", pull_time, params={"share": 0.95}, same=(prefill_time, tpot)),
    Case("transport-tcp", pull_time, params={"factor": 0.05}, same=(prefill_time, tpot)),
    Case("descriptor-jump", pull_time, params={"factor": 100}, same=(prefill_time, tpot)),
    Case("zone-placement", crosses, params={"rate_factor": 0.05}, same=(prefill_time,)),
    Case("router-zone-blind", crosses, params={"rate_factor": 0.05}, same=(tpot,)),
    Case("output-scale", output, params={"factor": 3}, same=(prefill_time,)),
    Case("prompt-scale", prefill_time, params={"factor": 2.5}, same=(output,)),
    Case("prompt-mix", prompt, params={"share": 0.3, "scale": 6}, same=(output,)),
    Case("prefix-mix", cached, up=False, params={"factor": 0.0}, same=(tpot,), spec=LONG_SHARED),
    Case("prefix-hotspot", hottest, params={"share": 0.9}, same=(tpot,), spec=LONG_SHARED),
    Case("cache-wipe", cached, up=False, params={"every_s": 0.2}, same=(tpot,), spec=LONG_SHARED),
    Case("cache-disable", cached, up=False, same=(tpot,), spec=LONG_SHARED),
    Case("store-slow", ttft, params={"factor": 0.01}, same=(tpot,), spec=STORE),
    Case("store-down", stored, up=False, same=(tpot,), spec=STORE),
    Case("store-small", stored, up=False, params={"factor": 0.001}, same=(tpot,), spec=STORE),
    Case(
        "router-policy",
        cached,
        up=False,
        params={"name": "round-robin"},
        spec=replace(LONG_SHARED, prefill=6, engine=FEW_BLOCKS),
    ),
    Case("health-eject", uneven, target=("decode-2", "decode-3"), same=(prefill_time,)),
    Case("drain", uneven, target=("decode-2", "decode-3"), same=(prefill_time,)),
    Case("decode-only", tpot, params={"share": 0.5}, same=(prefill_time,)),
    Case("step-stall", tpot, params={"stall_s": 6, "every_s": 20}, same=(prefill_time, output)),
    Case("idle-drop", pull_time, params={"idle_s": 0.5, "stall_s": 2}, same=(prefill_time, tpot)),
    Case("hop-delay", ttft, params={"ratio": 0.5, "wait_s": 2}, same=(prefill_time, pull_time, tpot)),
    Case("store-hollow", ttft, params={"share": 1.0, "wait_s": 2}, same=(tpot,), spec=STORE),
    Case("ratio", tpot, params={"to": "prefill", "move": 2, "restart_s": 10}, same=(prompt,)),
]


def blow(case: Case) -> Fault:
    return Fault(kind=case.kind, at_s=FROM_S, until_s=TO_S, target=case.target, params=case.params)


def windows(sim: Simulation, of: Callable[[RequestRecord], float]) -> list[float]:
    found = []
    for count in range(int((TO_S - FROM_S) / WINDOW_S) - 2):
        begin = FROM_S + 10.0 + count * WINDOW_S
        seen = [r for r in well(sim.records) if begin <= r.arrival_s < begin + WINDOW_S]
        if not math.isnan(number := mean(seen, of)):
            found.append(number)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.kind)
def test_a_fault_moves_its_signal_by_three_sigma_and_leaves_the_other_pool(case: Case) -> None:
    hit = run(replace(case.spec, faults=(blow(case), *case.also)), TO_S + 20.0)
    before = windows(run_of(case), case.moved)
    after = windows(hit, case.moved)
    moved = statistics.fmean(after) - statistics.fmean(before)
    sigma = statistics.stdev(before) / math.sqrt(len(after))
    assert (moved if case.up else -moved) > 3 * sigma
    for of in case.same:
        assert statistics.fmean(windows(hit, of)) == pytest.approx(
            statistics.fmean(windows(run_of(case), of)), rel=0.10
        ), of.__name__


def run_of(case: Case) -> Simulation:
    return _sound(repr(case.spec), case)


_RUNS: dict[str, Simulation] = {}


def _sound(key: str, case: Case) -> Simulation:
    if key not in _RUNS:
        _RUNS[key] = run(case.spec, TO_S + 20.0)
    return _RUNS[key]


def struck(kind: str, spec: SimSpec = BASE, until_s: float = TO_S, *target: str, **params: float | str) -> Simulation:
    fault = Fault(kind=kind, at_s=FROM_S, until_s=until_s, target=target, params=params)
    return Simulation(replace(spec, faults=(fault,)))


def watched(sim: Simulation, to_s: float) -> list[Frame]:
    found = []
    while sim.loop.now < to_s:
        sim.advance(sim.loop.now + 5.0)
        found.append(sim.frame())
    return found


def events(seen: list[Frame]) -> list[tuple[EventKind, str | None]]:
    return [(e.kind, e.worker) for f in seen for e in f.events]


def outcomes(sim: Simulation) -> set[Outcome | None]:
    return {r.outcome for r in sim.records}


def test_a_killed_decode_worker_fails_its_requests_and_comes_back_empty() -> None:
    sim = struck("worker-kill", BASE, 200.0, "decode-1", restart_after_s=60)
    watched(sim, 150.0)
    assert sim.instruments["decode-1"].error == "connection refused"
    assert value(sim, "router-0", "pdops_router_worker_up", worker="decode-1") == 0
    seen = watched(sim, 300.0)
    assert (EventKind.RESTART, "decode-1") in events(seen)
    assert value(sim, "router-0", "pdops_router_worker_up", worker="decode-1") == 1
    assert value(sim, "decode-1", "process_start_time_seconds") == pytest.approx(1_700_000_160.0)
    failed = [r for r in sim.records if r.outcome is Outcome.ERROR]
    assert failed
    assert all(r.decode == "decode-1" and 80 < r.finished_s < 110 for r in failed)


def test_a_worker_killed_for_good_stays_away() -> None:
    sim = Simulation(replace(BASE, faults=(Fault(kind="worker-kill", at_s=50.0, params={"restart_after_s": "never"}),)))
    watched(sim, 250.0)
    assert not sim.engines["decode-0"].up


def test_a_killed_prefill_worker_fails_pulls_as_vllm_counts_them() -> None:
    slow = Fault(kind="link-rate", at_s=90.0, params={"factor": 0.02})
    kill = Fault(kind="worker-kill", at_s=FROM_S, target=("prefill-0",))
    sim = Simulation(replace(BASE, faults=(slow, kill)))
    watched(sim, 130.0)
    assert total(sim, "decode", "vllm:nixl_num_failed_transfers_total") > 0
    assert total(sim, "decode", "vllm:request_success_total", finished_reason="error") > 0
    assert total(sim, "decode", "vllm:request_queue_time_seconds_sum") < 0


def test_a_frozen_worker_answers_nothing_and_goes_on_later() -> None:
    sim = struck("worker-freeze", BASE, 140.0, "decode-1")
    watched(sim, 130.0)
    tokens = value(sim, "decode-1", "vllm:generation_tokens_total")
    assert sim.instruments["decode-1"].silent
    assert value(sim, "router-0", "pdops_router_worker_up", worker="decode-1") == 0
    watched(sim, 200.0)
    assert value(sim, "decode-1", "vllm:generation_tokens_total") > tokens
    assert value(sim, "decode-1", "vllm:inter_token_latency_seconds_count") > value(
        sim, "decode-1", "vllm:inter_token_latency_seconds_bucket", le="20.0"
    )


def test_a_cut_link_shows_no_failure_but_a_pull_that_does_not_move() -> None:
    sim = struck("link-cut", BASE, 120.0, "prefill-0>decode-0")
    watched(sim, 115.0)
    assert value(sim, "decode-0", "vllm:num_requests_kv_fetch_by_stage", stage="in_progress") > 0
    assert value(sim, "decode-0", "vllm:num_requests_waiting_by_reason", reason="deferred") > 0
    watched(sim, 150.0)
    assert total(sim, "decode", "vllm:nixl_num_failed_transfers_total") == 0
    assert total(sim, "prefill", "vllm:nixl_num_kv_expired_reqs_total") == 0
    assert outcomes(sim) == {Outcome.OK}


def test_a_cut_above_the_lease_lets_kv_expire_and_answers_go_wrong() -> None:
    spec = replace(BASE, router=replace(BASE.router, first_token_timeout_s=300.0))
    sim = struck("link-cut", spec, 160.0, "prefill-0>decode-0")
    seen = watched(sim, 200.0)
    expired = value(sim, "prefill-0", "vllm:nixl_num_kv_expired_reqs_total")
    late = value(sim, "prefill-0", "vllm:nixl_num_notifications_after_expiry_total")
    stale = [r for r in sim.records if r.stale]
    assert expired > 0
    assert late == len(stale) > 0
    assert {r.outcome for r in stale} == {Outcome.OK}
    assert any("Releasing expired KV blocks" in line.line for f in seen for line in f.logs)


def test_a_pair_that_cannot_meet_fails_its_requests_after_five_seconds() -> None:
    sim = struck("handshake-fail", BASE, TO_S, "prefill-0>decode-0")
    watched(sim, 150.0)
    failed = [r for r in sim.records if r.outcome is Outcome.ERROR]
    assert {(r.prefill, r.decode) for r in failed} == {("prefill-0", "decode-0")}
    assert mean(failed, lambda r: r.finished_s - r.pull_started_s) == pytest.approx(5.05)


def test_a_lease_shorter_than_the_pull_runs_out_during_it() -> None:
    slow = Fault(kind="link-rate", at_s=50.0, params={"factor": 0.05})
    short = Fault(kind="lease-short", at_s=FROM_S, params={"lease_s": 0.2})
    sim = Simulation(replace(BASE, faults=(slow, short)))
    watched(sim, 95.0)
    assert total(sim, "prefill", "vllm:nixl_num_kv_expired_reqs_total") == 0
    watched(sim, 150.0)
    assert total(sim, "prefill", "vllm:nixl_num_kv_expired_reqs_total") > 0
    assert any(r.stale for r in sim.records)


def test_silent_local_prefill_lets_kv_expire_on_prefill_and_moves_no_bytes() -> None:
    sim = struck("decode-only", BASE)
    watched(sim, 105.0)
    moved = total(sim, "decode", "vllm:nixl_bytes_transferred_count")
    watched(sim, 160.0)
    assert total(sim, "decode", "vllm:nixl_bytes_transferred_count") - moved < 5
    assert total(sim, "decode", "vllm:prompt_tokens_by_source_total", source="local_compute") > 0
    assert total(sim, "prefill", "vllm:nixl_num_kv_expired_reqs_total") > 0


@pytest.mark.parametrize(("kind", "factor"), [("rate-scale", 2.0), ("rate-burst", 3.0)])
def test_the_rate_follows_its_factor(kind: str, factor: float) -> None:
    sim = struck(kind, BASE, TO_S, factor=factor)
    watched(sim, 260.0)
    during = sum(FROM_S <= r.arrival_s < TO_S for r in sim.records)
    assert during / (TO_S - FROM_S) == pytest.approx(6.0 * factor, rel=0.12)


def test_impatient_clients_leave_and_nothing_of_theirs_is_kept() -> None:
    storm = Fault(kind="abort-storm", at_s=FROM_S, until_s=150.0, params={"share": 0.5, "patience_s": 1.0})
    stop = Fault(kind="rate-scale", at_s=170.0, params={"factor": 0.0})
    sim = Simulation(replace(BASE, faults=(storm, stop)))
    watched(sim, 300.0)
    assert value(sim, "router-0", "pdops_router_requests_total", outcome="aborted") > 50
    assert total(sim, "decode", "vllm:request_success_total", finished_reason="abort") > 0
    assert {e.name: e.pool.used for e in sim.engines.values()} == dict.fromkeys(sim.engines, 0)


def test_leaked_blocks_are_used_by_nobody() -> None:
    sim = struck("kv-leak", BASE, 400.0, "decode-0", blocks_per_s=70)
    watched(sim, 200.0)
    assert value(sim, "decode-0", "vllm:kv_cache_usage_perc") > 0.8
    assert value(sim, "decode-1", "vllm:kv_cache_usage_perc") < 0.5


def test_without_back_pressure_requests_wait_in_engines_and_not_in_the_router() -> None:
    spec = replace(BASE, router=replace(BASE.router, max_inflight_prefill=1))
    full = replace(spec, workload=replace(BASE.workload, rate_per_s=40.0))
    sim = struck("router-no-backpressure", full)
    watched(sim, 95.0)
    held = value(sim, "router-0", "pdops_router_queue_depth"), total(sim, "prefill", "vllm:num_requests_waiting")
    watched(sim, 110.0)
    passed = value(sim, "router-0", "pdops_router_queue_depth"), total(sim, "prefill", "vllm:num_requests_waiting")
    assert held[0] > 5
    assert held[1] == 0
    assert passed[0] == 0
    assert passed[1] > 5


def test_decisions_on_old_load_send_many_requests_to_one_worker() -> None:
    spec = replace(BASE, router=replace(BASE.router, policy="least-loaded"))
    peaks = []
    for sim in (Simulation(spec), struck("router-stale", spec, TO_S, age_s=40)):
        peak = 0.0
        while sim.loop.now < TO_S:
            sim.advance(sim.loop.now + 5.0)
            loads = [s.inflight for s in sim.router.seats.values() if s.id.startswith("decode")]
            peak = max(peak, max(loads) - min(loads)) if sim.loop.now > FROM_S else peak
        peaks.append(peak)
    assert peaks[1] > 2 * peaks[0]


def test_dropped_families_are_not_seen_and_come_back_with_all_they_counted() -> None:
    sim = struck("telemetry-drop", BASE, 150.0, "decode-0", families="vllm:nixl_xfer_time_seconds")
    watched(sim, 140.0)
    assert math.isnan(value(sim, "decode-0", "vllm:nixl_xfer_time_seconds_count"))
    assert value(sim, "decode-1", "vllm:nixl_xfer_time_seconds_count") > 0
    watched(sim, 160.0)
    pulls = value(sim, "decode-0", "vllm:nixl_xfer_time_seconds_count")
    assert pulls == value(sim, "decode-0", "vllm:nixl_bytes_transferred_count") > 0


def test_frozen_telemetry_repeats_what_it_said() -> None:
    sim = struck("telemetry-freeze", BASE, 150.0, "decode-0")
    seen = watched(sim, 160.0)
    pages = [s.values for f in seen for s in f.scrapes if s.worker == "decode-0" and s.engine == "vllm"]
    same = [
        a is not None and b is not None and len(a) == len(b) and (a == b).all() for a, b in itertools.pairwise(pages)
    ]
    assert sum(same) == 9


def test_reset_counters_fall_without_a_restart() -> None:
    sim = struck("counter-reset", BASE, TO_S, "decode-0")
    watched(sim, 95.0)
    before = value(sim, "decode-0", "vllm:generation_tokens_total")
    seen = watched(sim, 105.0)
    assert value(sim, "decode-0", "vllm:generation_tokens_total") < before
    assert value(sim, "decode-0", "process_start_time_seconds") == 1_700_000_000.0 - UP_BEFORE_S
    assert not events(seen)


def test_a_skewed_clock_shows_in_its_log_and_its_node() -> None:
    drop = Fault(kind="decode-only", at_s=10.0)
    skew = Fault(kind="clock-skew", at_s=5.0, params={"skew_s": 500.0})
    sim = Simulation(replace(BASE, faults=(skew, drop)))
    seen = watched(sim, 60.0)
    lines = [line for f in seen for line in f.logs]
    assert lines
    assert all(line.t_s > 1_700_000_500.0 for line in lines)
    assert value(sim, "decode-0-node", "node_time_seconds") == 1_700_000_560.0


def test_a_scrape_gap_is_an_answer_that_does_not_come() -> None:
    sim = struck("scrape-gap", BASE, 130.0, "all")
    seen = watched(sim, 150.0)
    missing = [f.at_s - 1_700_000_000.0 for f in seen if all(s.error for s in f.scrapes)]
    assert missing == [100.0, 105.0, 110.0, 115.0, 120.0, 125.0]


def test_a_worker_that_joins_is_in_the_cluster_from_then_on() -> None:
    sim = struck("scale-out", BASE, TO_S, role="decode", count=2)
    watched(sim, 95.0)
    assert sim.cluster.get("decode-5") is None
    seen = watched(sim, 150.0)
    assert sim.cluster.get("decode-5") is not None
    assert (EventKind.SCALE_OUT, "decode-5") in events(seen)
    assert value(sim, "decode-5", "vllm:request_success_total") > 0


def test_a_rolling_deploy_replaces_every_worker_and_fails_no_request() -> None:
    sim = struck("rolling-deploy", BASE)
    seen = watched(sim, 320.0)
    assert [w for k, w in events(seen) if k is EventKind.ROLLOUT] == [f"decode-{n}" for n in range(4)]
    assert outcomes(sim) == {Outcome.OK}


def test_a_rolling_deploy_of_several_at_a_time_gives_cold_workers_requests_that_wait() -> None:
    sim = struck("rolling-deploy", BASE, TO_S, share=0.5, warm_s=25, every_s=60)
    seen = watched(sim, 300.0)
    replaced = [(e.t_s - 1_700_000_000.0, e.worker) for f in seen for e in f.events if e.kind is EventKind.ROLLOUT]
    assert {w for _, w in replaced[:2]} == {"decode-0", "decode-1"}
    assert len(replaced) == 4
    for gone_s, worker in replaced:
        first = min((r for r in sim.records if r.decode == worker and r.granted_s > gone_s), key=lambda r: r.granted_s)
        assert first.outcome is Outcome.OK
        assert 24.9 < decode_wait(first) < 27.0


def test_a_drained_worker_ends_what_it_has_and_gets_nothing_new() -> None:
    sim = struck("drain", BASE, TO_S, "decode-0")
    watched(sim, 140.0)
    assert value(sim, "router-0", "pdops_router_worker_cordoned", worker="decode-0") == 1
    assert value(sim, "decode-0", "vllm:num_requests_running") == 0
    assert outcomes(sim) == {Outcome.OK}


def test_a_request_rejected_before_admission_leaves_its_kv_on_prefill_until_the_lease_ends() -> None:
    sim = struck("admission-reject", BASE, TO_S, "decode-0", ratio=1.0)
    watched(sim, 100.0)
    known = value(sim, "decode-0", "vllm:prompt_tokens_total")
    watched(sim, 215.0)
    refused = [r for r in sim.records if r.reason == "rejected before admission"]
    assert refused
    assert {(r.decode, r.outcome, r.moved_bytes) for r in refused} == {("decode-0", Outcome.ERROR, 0.0)}
    assert all(r.prefilled_s <= r.decode_arrived_s == r.finished_s for r in refused)
    late = sum(r.decode == "decode-0" and r.first_token_s > FROM_S for r in well(sim.records))
    queued = sum(r.prompt_tokens for r in well(sim.records) if r.decode == "decode-0" and r.first_token_s > FROM_S)
    assert value(sim, "decode-0", "vllm:prompt_tokens_total") - known == queued
    assert late < 10
    ran_out = sum(r.prefilled_s + BASE.engine.lease_s < 215.0 for r in refused)
    assert total(sim, "prefill", "vllm:nixl_num_kv_expired_reqs_total") == ran_out


def test_a_worker_that_rejects_at_once_is_given_more_than_its_share() -> None:
    spec = replace(BASE, router=replace(BASE.router, policy="least-loaded"))
    sim = struck("admission-reject", spec, TO_S, "decode-0", ratio=1.0)
    watched(sim, TO_S)
    during = [r for r in sim.records if r.arrival_s >= FROM_S]
    assert sum(r.decode == "decode-0" for r in during) > 0.5 * len(during)


def test_a_pool_that_swings_comes_back_under_other_names_and_no_smaller() -> None:
    sim = struck("scaler-swing", BASE, 180.0, share=0.5, period_s=60)
    seen, sizes = watched(sim, 300.0), set[int]()
    gone, come = ({w for k, w in events(seen) if k is kind} for kind in (EventKind.SCALE_IN, EventKind.SCALE_OUT))
    assert gone >= {"decode-2", "decode-3"}
    assert len(gone) == len(come) == 4
    assert len(sim.world.decodes) == BASE.decode
    sizes.add(len([w for w in sim.cluster.workers if w.id.startswith("decode")]))
    assert sizes == {BASE.decode}
    assert sim.records[-1].arrival_s > 250.0


def test_a_request_whose_worker_left_while_it_was_prefilled_fails() -> None:
    hung = Fault(kind="worker-freeze", at_s=99.0, until_s=160.52, target=("prefill",))
    left = Fault(kind="scaler-swing", at_s=100.5, params={"share": 0.75, "period_s": 400})
    short = replace(BASE.workload, rate_per_s=20.0, prompt_mean_tokens=100.0)
    sim = Simulation(replace(BASE, workload=short, faults=(hung, left)))
    watched(sim, 200.0)
    refused = [r for r in sim.records if "refused" in r.reason and 160.0 < r.finished_s < 161.5]
    assert refused
    assert not {r.decode for r in refused} & set(sim.world.decodes)


def test_kv_of_a_prefill_worker_that_left_cannot_be_pulled() -> None:
    spec = replace(BASE, engine=replace(BASE.engine, max_num_seqs=4))
    sim = struck("scaler-swing", spec, TO_S, role="prefill", share=0.5, period_s=400)
    watched(sim, 180.0)
    assert [r for r in sim.records if r.prefill == "prefill-1" and r.reason == "prefill is gone"]


def test_a_connection_lost_while_idle_holds_up_all_that_wait_for_it_once() -> None:
    rare = replace(BASE, prefill=1, decode=1, workload=replace(BASE.workload, rate_per_s=0.2, output_mean_tokens=20.0))
    sim = struck("idle-drop", rare, 1000.0, idle_s=1, stall_s=20)
    sim.advance(600.0)
    pulls = [r.pulled_s - r.pull_started_s for r in well(sim.records) if r.arrival_s > FROM_S]
    assert sum(s > 19.9 for s in pulls) > 5
    assert sum(1.0 < s < 19.0 for s in pulls) > 5
    assert max(pulls) < 21.0


def test_pairs_that_are_always_busy_lose_no_connection() -> None:
    busy = replace(BASE, prefill=1, decode=1, workload=replace(BASE.workload, rate_per_s=1.5, output_mean_tokens=20.0))
    calm = [r.pulled_s for r in run(busy, 200.0).records]
    hit = struck("idle-drop", busy, TO_S, idle_s=60, stall_s=5)
    watched(hit, 200.0)
    assert [r.pulled_s for r in hit.records] == calm


def test_a_hollow_object_counts_as_a_hit_and_gives_no_token() -> None:
    roomy = replace(STORE, store=replace(STORED, capacity_bytes=1e13))
    sim = struck("store-hollow", roomy, TO_S, share=1.0, wait_s=1.0)
    watched(sim, FROM_S)
    hits = value(sim, "store-0", "mem_cache_hit_nums_")
    watched(sim, TO_S)
    asked = [r for r in well(sim.records) if FROM_S < r.prefill_arrived_s < TO_S - 10.0]
    assert sum(r.prefill_started_s - r.prefill_arrived_s >= 1.0 for r in asked) > 50
    assert sum(r.stored_tokens > 0 for r in asked) < 0.1 * len(asked)
    assert value(sim, "store-0", "mem_cache_hit_nums_") > hits + 50


def test_speed_comes_and_goes_with_its_period_on_every_worker_that_is_named() -> None:
    named = ("prefill-0", "decode-0")
    sim = struck("decode-speed", BASE, 190.0, *named, factor=0.25, period_s=60)
    for at_s, factor in ((99.0, 1.0), (115.0, 0.25), (145.0, 1.0), (175.0, 0.25), (250.0, 1.0)):
        sim.advance(at_s)
        assert {w.name: w.speed.value for w in sim.engines.values()} == {
            name: factor if name in named else 1.0 for name in sim.engines
        }


def test_a_share_of_all_pairs_is_slow_and_no_worker_is_without_a_fast_one() -> None:
    spec = replace(BASE, prefill=4, decode=8, router=replace(BASE.router, policy="round-robin"))
    sim = struck("link-rate", spec, TO_S, pairs=0.25, factor=0.01)
    watched(sim, 150.0)
    slow = [ends for ends, link in sim.fabric.links() if link.rate.value < 1.0]
    assert len(slow) == 8
    pulls = [r for r in well(sim.records) if r.pull_started_s > FROM_S and r.moved_bytes]
    hit, others = ([r for r in pulls if ((r.prefill, r.decode) in slow) is wanted] for wanted in (True, False))
    full = BASE.network.nic_bytes_per_s
    assert min(pull_time(r) / (r.moved_bytes / full) for r in hit) > 99.9
    assert statistics.median(pull_time(r) / (r.moved_bytes / full) for r in others) < 10.0
    assert {p for p, _ in slow} <= {r.prefill for r in others}
    watched(sim, TO_S + 5.0)
    assert all(link.rate.value == 1.0 for _, link in sim.fabric.links())


def test_pulls_above_a_limit_fail_at_once_and_others_do_not() -> None:
    sim = struck("pull-limit", BASE, TO_S, "decode-0", "decode-1", tokens=3000)
    seen = watched(sim, TO_S)
    failed = [r for r in sim.records if r.outcome is Outcome.ERROR]
    assert failed
    assert {r.decode for r in failed} == {"decode-0", "decode-1"}
    assert all(r.prompt_tokens - r.decode_cached_tokens > 3000 - 16 and r.moved_bytes == 0 for r in failed)
    assert max(r.finished_s - r.pull_started_s for r in failed) < 0.01
    taken = [r for r in well(sim.records) if r.decode in ("decode-0", "decode-1") and r.pull_started_s > FROM_S]
    assert max(r.prompt_tokens - r.decode_cached_tokens for r in taken) <= 3000
    assert total(sim, "decode", "vllm:nixl_num_failed_transfers_total") == len(failed)
    assert sum("transfer_setup_failed" in line.line for f in seen for line in f.logs) == len(failed)


def test_every_hop_to_an_engine_may_be_late_and_a_client_that_leaves_meanwhile_leaves_nothing() -> None:
    sim = struck("hop-delay", BASE, 150.0, ratio=1.0, wait_s=3)
    sim.advance(200.0)
    during = [r for r in well(sim.records) if 101.0 < r.arrival_s < 140.0]
    assert min(r.prefill_arrived_s - r.granted_s for r in during) > 2.999
    assert min(r.decode_arrived_s - r.prefilled_s for r in during) > 2.999
    storm = Fault(kind="abort-storm", at_s=FROM_S, until_s=150.0, params={"share": 1.0, "patience_s": 1.0})
    late = Fault(kind="hop-delay", at_s=90.0, params={"ratio": 1.0, "wait_s": 3})
    stop = Fault(kind="rate-scale", at_s=150.0, params={"factor": 0.0})
    sim = Simulation(replace(BASE, faults=(storm, late, stop)))
    sim.advance(300.0)
    assert Outcome.ABORTED in outcomes(sim)
    assert {e.name: e.pool.used for e in sim.engines.values()} == dict.fromkeys(sim.engines, 0)


def test_every_kind_is_known_to_the_simulator_and_hits_without_parameters() -> None:
    faults = tuple(Fault(kind=kind, at_s=10.0, until_s=20.0) for kind in KINDS)
    sim = Simulation(replace(STORE, faults=faults))
    watched(sim, 60.0)
    assert sim.router.records


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault(kind="gremlins", at_s=1.0), "gremlins"),
        (Fault(kind="drain", at_s=1.0, target=("gpu-3",)), "gpu-3"),
        (Fault(kind="drain", at_s=1.0, target=("decode-4",)), "decode-4"),
        (Fault(kind="scrape-gap", at_s=1.0, target=("store-0",)), "store-0"),
        (Fault(kind="store-down", at_s=1.0), "no store"),
        (Fault(kind="drain", at_s=9.0, until_s=9.0), "ends at 9 s"),
        (Fault(kind="link-rate", at_s=1.0, params={"factor": "slow"}), "slow"),
        (Fault(kind="ratio", at_s=1.0, params={"to": "router"}), "to is 'router'"),
        (Fault(kind="router-policy", at_s=1.0, params={"name": "best"}), "name is 'best'"),
        (Fault(kind="decode-only", at_s=1.0, params={"mode": 1.0}), "mode is 1.0"),
        (Fault(kind="worker-kill", at_s=1.0, params={"restart_after_s": "soon"}), "restart_after_s is 'soon'"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault: Fault, why: str) -> None:
    with pytest.raises(SimError, match=why):
        Simulation(replace(BASE, faults=(fault,)))


def test_a_worker_that_joins_later_may_be_hit() -> None:
    joins, leaves = (
        Fault(kind="scale-out", at_s=5.0),
        Fault(kind="worker-kill", at_s=20.0, target=("decode-4",), params={"restart_after_s": "never"}),
    )
    sim = Simulation(replace(BASE, faults=(joins, leaves)))
    watched(sim, 30.0)
    assert not sim.engines["decode-4"].up


@pytest.mark.parametrize("kind", ["prefill-speed", "decode-speed", "rank-imbalance"])
def test_an_engine_without_any_speed_does_nothing_more(kind: str) -> None:
    sim = Simulation(replace(BASE, faults=(Fault(kind=kind, at_s=20.0, params={"factor": 0.0}),)))
    watched(sim, 40.0)
    assert sim.router.records


def test_a_worker_that_begins_anew_has_no_connection_that_is_dead() -> None:
    loop, done = Loop(), dict[str, float]()
    fabric = Fabric(Network(), loop, random.Random(1))
    for worker in ("prefill-0", "decode-0"):
        fabric.add(worker, Zone(name="zone-0"))
    fabric.drops["strike"] = (1.0, 20.0)
    for at_s, name in ((0.0, "first"), (5.0, "dead"), (6.0, "anew")):
        loop.run(at_s)
        if name == "anew":
            fabric.forget("decode-0")
        fabric.pull("prefill-0", "decode-0", 1e6, 1, lambda name=name: done.setdefault(name, loop.now))  # type: ignore[misc]
    loop.run(60.0)
    assert done["dead"] > 25.0
    assert done["anew"] < 10.0
