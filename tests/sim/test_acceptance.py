"""What a simulation must hold to be believed: conservation, queueing theory, its own records, its seed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from pdops.sim.records import attainment, attainment_by_zones
from pdops.sim.run import Simulation, frames
from pdops.sim.spec import Engine, Fault, Router, SimSpec, Workload
from tests.sim.runs import BASE, STORED, base_run, drained, mean, run, total, value, well

QUIET = Engine(kv_blocks=200_000, prefill_step_s=0.0)


def test_prompt_and_output_tokens_on_the_pages_are_those_of_the_requests() -> None:
    sim = base_run()
    prompts = sum(r.prompt_tokens for r in sim.records)
    assert total(sim, "prefill", "vllm:prompt_tokens_total") == prompts
    assert total(sim, "decode", "vllm:prompt_tokens_total") == prompts
    assert total(sim, "decode", "vllm:prompt_tokens_by_source_total") == prompts
    assert total(sim, "decode", "vllm:generation_tokens_total") == sum(r.output_tokens for r in sim.records)
    assert total(sim, "prefill", "vllm:generation_tokens_total") == len(sim.records)
    assert all(r.generated_tokens == r.output_tokens for r in well(sim.records))


def test_every_byte_that_decode_pulled_was_sent_and_belongs_to_a_request() -> None:
    sim = base_run()
    moved = sum(r.moved_bytes for r in sim.records)
    assert moved > 0
    assert total(sim, "decode", "vllm:nixl_bytes_transferred_sum") == pytest.approx(moved, rel=1e-12)
    nics = sim.fabric.nics
    assert sum(n.sent_bytes for n in nics.values()) == pytest.approx(moved, rel=1e-9)
    assert sum(n.received_bytes for n in nics.values()) == pytest.approx(moved, rel=1e-9)
    sent = sum(value(sim, f"{n}-node", "node_infiniband_port_data_transmitted_bytes_total") for n in nics)
    assert sent == pytest.approx(moved, rel=1e-9)
    block = BASE.engine.block_size_tokens
    whole = sum(-(-r.prompt_tokens // block) * block - r.decode_cached_tokens for r in sim.records)
    assert moved == whole * BASE.engine.kv_bytes_per_token


@pytest.mark.parametrize("blocks", [8000, 1500], ids=["ample", "tight"])
def test_no_block_is_held_once_all_requests_have_ended(blocks: int) -> None:
    sim = drained(replace(BASE, engine=replace(BASE.engine, kv_blocks=blocks)))
    assert {e.name: e.pool.used for e in sim.engines.values()} == dict.fromkeys(sim.engines, 0)
    assert (total(sim, "decode", "vllm:num_preemptions_total") > 0) is (blocks == 1500)


@pytest.mark.parametrize(
    "kind",
    ["admission-reject", "step-stall", "scaler-swing", "idle-drop", "store-hollow", "hop-delay", "pull-limit"],
)
def test_a_fault_neither_makes_nor_loses_tokens_bytes_or_blocks(kind: str) -> None:
    sim = drained(replace(BASE, store=STORED, faults=(Fault(kind=kind, at_s=60.0, until_s=150.0),)))
    assert all(r.generated_tokens == r.output_tokens for r in well(sim.records))
    moved = sum(r.moved_bytes for r in sim.records)
    nics = sim.fabric.nics.values()
    assert sum(n.sent_bytes for n in nics) == pytest.approx(moved, rel=1e-9)
    assert sum(n.received_bytes for n in nics) == pytest.approx(moved, rel=1e-9)
    assert {e.name: e.pool.used for e in sim.engines.values()} == dict.fromkeys(sim.engines, 0)
    assert len(sim.records) == len({r.id for r in sim.records}) == max(r.id for r in sim.records)
    if kind != "scaler-swing":
        # The pages of workers that left are gone.
        made = sum(r.generated_tokens for r in sim.records)
        assert total(sim, "decode", "vllm:generation_tokens_total") == made


def test_waiting_and_running_requests_obey_littles_law() -> None:
    spec = replace(BASE, duration_s=1200.0)
    sim = Simulation(spec)
    seen: dict[str, float] = {"all": 0.0, "prefill": 0.0, "decode": 0.0}
    step_s, steps = 0.1, 12_000
    for count in range(1, steps + 1):
        sim.loop.run(count * step_s)
        seen["all"] += sim.router.inflight
        seen["prefill"] += sum(len(w.requests()) for w in sim.world.prefills.values())
        seen["decode"] += sum(len(w.batch) for w in sim.world.decodes.values())
    sim.refresh()
    done, span_s = sim.records, step_s * steps
    stay = {
        "all": sum(r.finished_s - r.arrival_s for r in done),
        "prefill": sum(r.prefilled_s - r.prefill_arrived_s for r in done),
        "decode": sum(r.finished_s - r.decode_started_s for r in done),
    }
    for what, residence_s in stay.items():
        assert seen[what] / steps == pytest.approx(residence_s / span_s, rel=0.02), what


def test_mean_time_to_first_token_is_that_of_a_queue_with_k_servers() -> None:
    servers, load = 4, 0.8
    engine = replace(QUIET, prefill_tokens_per_s=10_000.0)
    rate = load * servers * engine.prefill_tokens_per_s / 3000.0
    spec = SimSpec(
        seed=5,
        prefill=servers,
        decode=8,
        duration_s=1800.0,
        workload=Workload(rate_per_s=rate, prefix_share=0.0, output_mean_tokens=20.0),
        engine=engine,
        router=Router(max_inflight_prefill=1, max_inflight_decode=100_000, queue_limit=1_000_000),
    )
    sim = run(spec, 1800.0, every_s=30.0)
    done = [r for r in sim.records if r.arrival_s > 60.0]
    service = [r.prefilled_s - r.prefill_started_s for r in done]
    mean_s = sum(service) / len(service)
    cv2 = sum((s - mean_s) ** 2 for s in service) / len(service) / mean_s**2
    offered = len(done) / (1800.0 - 60.0) * mean_s
    wait_s = _erlang_c(servers, offered) * (1 + cv2) / 2 * mean_s / (servers - offered)
    rest_s = mean(done, lambda r: r.first_token_s - r.prefilled_s)
    assert mean(done, lambda r: r.ttft_s) == pytest.approx(wait_s + mean_s + rest_s, rel=0.10)
    assert mean(done, lambda r: r.prefill_started_s - r.arrival_s) == pytest.approx(wait_s, rel=0.20)


def _erlang_c(servers: int, offered: float) -> float:
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) * servers / (servers - offered)
    return last / (sum(terms) + last)


def test_a_queue_above_capacity_grows_by_what_comes_too_much() -> None:
    engine = replace(QUIET, prefill_tokens_per_s=10_000.0)
    capacity = engine.prefill_tokens_per_s / 3000.0
    spec = SimSpec(
        seed=2,
        decode=4,
        duration_s=900.0,
        workload=Workload(rate_per_s=2 * capacity, prompt_cv2=0.1, prefix_share=0.0, output_mean_tokens=20.0),
        engine=engine,
        router=Router(max_inflight_prefill=1, max_inflight_decode=100_000, queue_limit=1_000_000, deadline_s=None),
    )
    sim = run(spec, 300.0)
    before = len(sim.router.waiting)
    for count in range(61, 181):
        sim.advance(count * 5.0)
    assert (len(sim.router.waiting) - before) / 600.0 == pytest.approx(capacity, rel=0.10)


def test_histograms_of_the_router_count_exactly_what_the_records_say() -> None:
    sim = base_run()
    times = sorted(r.ttft_s for r in sim.records)
    for edge in ("0.1", "0.2", "0.35", "0.5", "1.0", "2.0"):
        counted = value(sim, "router-0", "pdops_router_ttft_seconds_bucket", le=edge)
        assert counted == sum(t <= float(edge) for t in times)
    assert value(sim, "router-0", "pdops_router_ttft_seconds_sum") == pytest.approx(sum(times))


def test_engine_times_are_those_of_the_records() -> None:
    sim = base_run()
    done = sim.records
    waits = {
        ("prefill", "request_queue_time_seconds"): sum(r.prefill_started_s - r.prefill_arrived_s for r in done),
        ("prefill", "request_prefill_time_seconds"): sum(r.prefilled_s - r.prefill_started_s for r in done),
        ("decode", "time_to_first_token_seconds"): sum(r.first_token_s - r.decode_arrived_s for r in done),
        ("decode", "request_queue_time_seconds"): sum(r.decode_started_s - r.decode_arrived_s for r in done),
        ("decode", "request_decode_time_seconds"): sum(r.finished_s - r.first_token_s for r in done),
    }
    for (role, name), wanted in waits.items():
        assert total(sim, role, f"vllm:{name}_sum") == pytest.approx(wanted), name
    gaps = total(sim, "decode", "vllm:inter_token_latency_seconds_sum")
    assert gaps == pytest.approx(sum(r.finished_s - r.first_token_s for r in done), rel=1e-6)
    assert total(sim, "decode", "vllm:inter_token_latency_seconds_count") == sum(r.output_tokens - 1 for r in done)


def test_a_run_looked_at_often_is_the_same_run() -> None:
    often, seldom = run(BASE, 60.0, every_s=1.0), run(BASE, 60.0, every_s=60.0)
    assert [r.id for r in often.records] == [r.id for r in seldom.records]
    for a, b in zip(often.records, seldom.records, strict=True):
        assert a.finished_s == pytest.approx(b.finished_s, rel=1e-9)


_PRINT = """
import hashlib
from dataclasses import replace
from pdops.sim.run import Simulation
from pdops.sim.spec import Fault
from tests.sim.runs import BASE, STORED
kinds = ("link-loss", "worker-kill", "output-scale", "abort-storm")
kinds += ("admission-reject", "step-stall", "scaler-swing", "idle-drop", "store-hollow", "hop-delay", "pull-limit")
faults = tuple(Fault(kind=k, at_s=20.0, until_s=60.0) for k in kinds)
sim = Simulation(replace(BASE, store=STORED, faults=faults, engine=replace(BASE.engine, service_cv2=0.2)))
digest = hashlib.sha256()
for count in range(1, 19):
    sim.advance(count * 5.0)
    frame = sim.frame()
    digest.update(repr([(s.worker, s.error, None if s.values is None else s.values.tobytes()) for s in frame.scrapes]).encode())
    digest.update(repr((frame.events, frame.logs)).encode())
for page in sim.instruments.values():
    digest.update(page.page().encode())
print(digest.hexdigest(), len(sim.records))
"""


def test_one_seed_gives_the_same_bytes_in_two_processes() -> None:
    found = []
    for salt in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", _PRINT], env=env, capture_output=True, text=True, check=True)
        found.append(done.stdout)
    assert found[0] == found[1]
    assert int(found[0].split()[1]) > 300


def test_another_seed_gives_another_run() -> None:
    assert run(BASE, 30.0).records[0].prompt_tokens != run(replace(BASE, seed=8), 30.0).records[0].prompt_tokens


def test_frames_begin_after_the_warm_up_and_end_with_the_run() -> None:
    found = list(frames(replace(BASE, warmup_s=20.0, duration_s=40.0, store=STORED), interval_s=5.0))
    assert [f.at_s - found[0].at_s for f in found] == [0.0, 5.0, 10.0, 15.0]
    workers = {s.worker for s in found[0].scrapes}
    assert workers == {"prefill-0", "prefill-1", *(f"decode-{n}" for n in range(4)), "router-0", "store-0"}
    assert all(s.error is None for s in found[0].scrapes)
    assert found[0].facts["decode-0"]["max_num_seqs"] == "32"


def test_layouts_are_kept_from_frame_to_frame() -> None:
    sim = run(BASE, 100.0)
    first, second = sim.frame(), sim.frame()
    for a, b in zip(first.scrapes, second.scrapes, strict=True):
        assert a.layout is b.layout


def test_attainment_is_told_by_zones_and_counts_failures() -> None:
    sim = base_run()
    zones = {name: e.zone.name for name, e in sim.engines.items()}
    by_zones = attainment_by_zones(sim.records, BASE.slo, zones)
    assert set(by_zones) == {("a", "a"), ("b", "b")}
    assert 0.9 < attainment(sim.records, BASE.slo) <= 1.0
