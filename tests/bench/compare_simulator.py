"""Compare a simulated pair with recordings of a real one: families, relations between counters, and what each fault moves.

Run as `python tests/bench/compare_simulator.py`; prints Markdown tables. The simulated pair has the sizes of the real one and
speeds of its order; what is compared are meanings, not milliseconds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pdops.catalog.names import split_series
from pdops.model.frame import Frame
from pdops.sim.run import Simulation
from pdops.sim.spec import Engine, Fault, Network, Router, SimSpec, Workload
from pdops.sources.recording import open_recording

ROOT = Path(__file__).resolve().parents[2] / "fixtures" / "recordings"
ENGINE = Engine(
    prefill_tokens_per_s=25_000.0,
    prefill_step_s=0.003,
    step_base_s=0.0075,
    step_per_seq_s=0.0004,
    kv_blocks=400,
    prefill_kv_blocks=1000,
    block_size_tokens=32,
    kv_bytes_per_token=1024.0,
)
NETWORK = Network(nic_bytes_per_s=8.5e8, setup_s=0.012, descriptors_per_block=2, descriptor_s=2e-4)
LOAD = Workload(
    rate_per_s=0.9, prompt_mean_tokens=300.0, prompt_cv2=0.0, output_mean_tokens=22.0, output_cv2=0.3, prefix_share=0.52
)
PAIR = SimSpec(
    seed=1, duration_s=240.0, workload=LOAD, engine=ENGINE, network=NETWORK, router=Router(policy="round-robin")
)
SLOW_LINK = 1.53e6 / 8 / NETWORK.nic_bytes_per_s
FAULTS: dict[str, tuple[Fault, ...]] = {
    "healthy-load": (),
    "link-slow": (
        Fault(kind="link-rate", at_s=75.0, until_s=146.0, target=("decode-0",), params={"factor": SLOW_LINK}),
    ),
    "link-cut-above-lease": (Fault(kind="link-cut", at_s=71.0, until_s=153.0),),
    "router-drops-kv-params": (Fault(kind="decode-only", at_s=80.0, until_s=155.0),),
    "decode-kv-exhaustion": (
        Fault(kind="output-scale", at_s=80.0, until_s=155.0, params={"factor": 18.0}),
        Fault(kind="rate-scale", at_s=80.0, until_s=155.0, params={"factor": 4.0}),
    ),
    "prefill-frozen": (Fault(kind="worker-freeze", at_s=70.0, until_s=135.0, target=("prefill-0",)),),
    "prefill-killed": (
        Fault(kind="link-rate", at_s=80.0, until_s=84.2, params={"factor": 1e-5}),
        Fault(kind="worker-kill", at_s=84.0, target=("prefill-0",), params={"restart_after_s": 70}),
    ),
    "decode-killed-replaced": (
        Fault(kind="worker-kill", at_s=80.0, target=("decode-0",), params={"restart_after_s": 140}),
    ),
}


class Totals:
    """What moved over a run: increases of counters over restarts, the largest value of gauges, and pages that failed."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        self.moved: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.peak: dict[str, dict[str, float]] = defaultdict(dict)
        self.families: dict[str, set[str]] = defaultdict(set)
        self.failed: dict[str, int] = defaultdict(int)
        self.negative = False
        last: dict[tuple[str, str], float] = {}
        for frame in frames:
            for scrape in frame.scrapes:
                if scrape.layout is None or scrape.values is None:
                    self.failed[scrape.worker] += scrape.error is not None
                    continue
                for series, value in zip(scrape.layout.series, scrape.values.tolist(), strict=True):
                    self._take(scrape.worker, series, value, last)

    def _take(self, worker: str, series: str, value: float, last: dict[tuple[str, str], float]) -> None:
        name, labels = split_series(series)
        before = last.get((worker, series))
        last[worker, series] = value
        if name.startswith(("vllm:", "pdops_router_")) and not name.endswith("_bucket"):
            self.families[worker].add(name)
        inner = ",".join(v for k, v in sorted(labels.items()) if k not in ("engine", "model_name", "le"))
        key = f"{name}{{{inner}}}" if inner else name
        if name.endswith("_bucket"):
            return
        self.peak[worker][key] = max(self.peak[worker].get(key, -math.inf), value)
        if name == "vllm:request_queue_time_seconds_sum" and before is not None and value < before and value < 0:
            self.negative = True
        if before is not None:
            self.moved[worker][key] += value - before if value >= before else max(0.0, value)


def recorded(name: str) -> Totals:
    return Totals(open_recording(str(ROOT / f"{name}.pdrec")).iter_frames())


def simulated(name: str) -> Totals:
    simulation = Simulation(replace(PAIR, faults=FAULTS[name]))

    def seen() -> Iterator[Frame]:
        for second in range(1, 241):
            simulation.advance(float(second))
            yield simulation.frame()

    return Totals(seen())


RELATIONS: list[tuple[str, Callable[[Totals], float]]] = [
    ("prefill: output tokens a request", lambda t: _p(t, "generation_tokens_total") / _p(t, "request_success_total{length}")),
    ("prefill: e2e over TTFT", lambda t: _p(t, "e2e_request_latency_seconds_sum") / _p(t, "time_to_first_token_seconds_sum")),
    ("prefill: decode time a request, s", lambda t: _p(t, "request_decode_time_seconds_sum") / _p(t, "request_decode_time_seconds_count")),
    ("prefill: own cache hits over prompt tokens", lambda t: _p(t, "prefix_cache_hits_total") / _p(t, "prompt_tokens_total")),
    ("prefill: external queries over prompt tokens without own hits", lambda t: _p(t, "external_prefix_cache_queries_total") / (_p(t, "prompt_tokens_total") - _p(t, "prefix_cache_hits_total"))),
    ("prefill: external hits", lambda t: _p(t, "external_prefix_cache_hits_total")),
    ("prefill: pulls counted", lambda t: _p(t, "nixl_xfer_time_seconds_count")),
    ("prefill: local_compute over prompt tokens without own hits", lambda t: _p(t, "prompt_tokens_by_source_total{local_compute}") / (_p(t, "prompt_tokens_total") - _p(t, "prefix_cache_hits_total"))),
    ("decode: pulls a request", lambda t: _d(t, "nixl_xfer_time_seconds_count") / _d(t, "request_success_total{length}")),
    ("decode: external hits over prompt tokens without own hits", lambda t: _d(t, "external_prefix_cache_hits_total") / (_d(t, "prompt_tokens_total") - _d(t, "prefix_cache_hits_total"))),
    ("decode: tokens computed here", lambda t: _d(t, "prompt_tokens_by_source_total{local_compute}")),
    ("decode: bytes over external tokens and bytes a token (whole blocks: above 1)", lambda t: _d(t, "nixl_bytes_transferred_sum") / 1024.0 / _d(t, "external_prefix_cache_hits_total")),
    ("decode: queue time over pull time (holds it: above 1)", lambda t: _d(t, "request_queue_time_seconds_sum") / _d(t, "nixl_xfer_time_seconds_sum")),
    ("decode: TTFT over queue and prefill time (at least 1)", lambda t: _d(t, "time_to_first_token_seconds_sum") / (_d(t, "request_queue_time_seconds_sum") + _d(t, "request_prefill_time_seconds_sum"))),
    ("decode: prefill time over a token's gap (about one step)", lambda t: _d(t, "request_prefill_time_seconds_sum") / _d(t, "request_prefill_time_seconds_count") / (_d(t, "inter_token_latency_seconds_sum") / _d(t, "inter_token_latency_seconds_count"))),
    ("decode: gaps over output tokens but the first", lambda t: _d(t, "inter_token_latency_seconds_count") / (_d(t, "generation_tokens_total") - _d(t, "time_to_first_token_seconds_count"))),
    ("decode: decode time over the sum of gaps", lambda t: _d(t, "request_decode_time_seconds_sum") / _d(t, "inter_token_latency_seconds_sum")),
    ("router: TTFT over prefill TTFT and decode TTFT (at least 1)", lambda t: _r(t, "ttft_seconds_sum") / (_p(t, "time_to_first_token_seconds_sum") + _d(t, "time_to_first_token_seconds_sum"))),
    ("router: hand-off over decode TTFT (at least 1)", lambda t: _r(t, "handoff_seconds_sum{decode-0,prefill-0}") / _d(t, "time_to_first_token_seconds_sum")),
    ("router: gaps over decode's gaps (text pieces may hold several tokens)", lambda t: _r(t, "itl_seconds_count") / _d(t, "inter_token_latency_seconds_count")),
]  # fmt: skip
SIGNS: list[tuple[str, Callable[[Totals], float]]] = [
    ("D failed transfers", lambda t: _d(t, "nixl_num_failed_transfers_total")),
    ("D errors", lambda t: _d(t, "request_success_total{error}")),
    ("D queue-time sum falls below 0", lambda t: float(t.negative)),
    ("P leases expired", lambda t: _p(t, "nixl_num_kv_expired_reqs_total")),
    ("P notified after expiry", lambda t: _p(t, "nixl_num_notifications_after_expiry_total")),
    ("D preemptions", lambda t: _d(t, "num_preemptions_total")),
    ("D computed here", lambda t: _d(t, "prompt_tokens_by_source_total{local_compute}")),
    ("D pulls at once", lambda t: t.peak["decode-0"].get("vllm:num_requests_kv_fetch_by_stage{in_progress}", 0.0)),
    ("D waits for room", lambda t: t.peak["decode-0"].get("vllm:num_requests_waiting_by_reason{capacity}", 0.0)),
    ("client errors", lambda t: _r(t, "requests_total{error}")),
    ("client timeouts", lambda t: _r(t, "requests_total{timeout}")),
    ("P page fails", lambda t: float(t.failed["prefill-0"])),
    ("D page fails", lambda t: float(t.failed["decode-0"])),
]
"""What a fault may move, as an increase, a peak or a number of frames."""


def _p(totals: Totals, name: str) -> float:
    return totals.moved["prefill-0"].get(f"vllm:{name}", 0.0)


def _d(totals: Totals, name: str) -> float:
    return totals.moved["decode-0"].get(f"vllm:{name}", 0.0)


def _r(totals: Totals, name: str) -> float:
    return totals.moved["router-0"].get(f"pdops_router_{name}", 0.0)


def main() -> None:
    real, made = recorded("healthy-load"), simulated("healthy-load")
    print("## Families that the catalog reads\n\n| page | only on the real one | only on the simulated one | on both |")
    print("|---|---|---|---|")
    for worker in ("prefill-0", "decode-0", "router-0"):
        a, b = real.families[worker], made.families[worker]
        print(f"| {worker} | {_names(a - b)} | {_names(b - a)} | {len(a & b)} |")
    print("\n## Relations under healthy load\n\n| relation | real | simulated |\n|---|---|---|")
    for name, of in RELATIONS:
        print(f"| {name} | {_of(of, real)} | {_of(of, made)} |")
    print("\n## What each fault moves\n")
    print("Real then simulated: an increase, a peak or a number of 1 s frames over the whole run.\n")
    found = {name: (recorded(name), simulated(name)) for name in FAULTS}
    print(f"| | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for sign, of in SIGNS:
        cells = [f"{of(a):g} / {of(b):g}" for a, b in found.values()]
        print(f"| {sign} | {' | '.join(cells)} |")


def _names(names: set[str]) -> str:
    return ", ".join(f"`{n}`" for n in sorted(names)) or "-"


def _of(of: Callable[[Totals], float], totals: Totals) -> str:
    try:
        return f"{of(totals):.3g}"
    except ZeroDivisionError:
        return "-"


if __name__ == "__main__":
    main()
