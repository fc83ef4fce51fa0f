"""Time one diagnosis of clusters of several sizes, in one run.

Run as `python tests/bench/bench_diagnose.py [--workers 3,16,64,512]`; prints a Markdown table. A quarter of the workers are
prefill. Each gives fifteen minutes of samples a second apart, buckets every ten seconds, under a load that comes and
goes; in the second line of each size TTFT is high and one decode worker is slow. CPU time of one call on a View that
nobody has asked before, the best and the worst of several.
"""

from __future__ import annotations

import argparse
import platform
import time
from importlib.metadata import version

import numpy as np

from pdops.diagnose.engine import diagnose
from pdops.model.cluster import Cluster, Role, Slo, Worker
from pdops.model.report import Report
from pdops.model.series import HistogramSeries, Kind, Series, Window
from pdops.model.view import AnySeries, Health, Presence, SeriesKey, View

SPAN_S = 900
T = np.arange(1.0, SPAN_S + 1)
FULL = T[9::10]
BOUNDS = np.array([0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, np.inf])
ROUNDS = 5
GAUGES = {
    Role.PREFILL: {"queue_depth": 0.3, "running_requests": 2.0, "kv_cache_usage": 0.3},
    Role.DECODE: {
        "queue_depth": 0.2,
        "running_requests": 7.6,
        "kv_cache_usage": 0.5,
        "queue_depth_capacity": 0.0,
        "queue_depth_deferred": 0.1,
        "decode_prealloc_queue_depth": 0.0,
        "transfer_queue_depth": 0.1,
        "kv_fetch_done_waiting": 0.0,
    },
}
COUNTERS = {
    Role.PREFILL: {
        "prompt_tokens": 4000.0,
        "prefix_cache_queries": 4000.0,
        "prefix_cache_hits": 1500.0,
        "kv_transfer_expired": 0.0,
        "kv_notifications_after_expiry": 0.0,
        "request_success": 4.0,
        "request_failure": 0.0,
        "preemptions": 0.0,
    },
    Role.DECODE: {
        "generated_tokens": 300.0,
        "external_kv_tokens": 1000.0,
        "local_prefill_tokens": 1.0,
        "kv_transfer_bytes": 1e8,
        "kv_transfer_failures": 0.0,
        "preemptions": 0.0,
        "request_success": 1.3,
        "request_failure": 0.0,
    },
}
HISTOGRAMS = {
    Role.PREFILL: {
        "queue_seconds": (0.05, 4.0),
        "prefill_seconds": (0.3, 4.0),
        "ttft_seconds": (0.35, 4.0),
        "e2e_seconds": (0.36, 4.0),
        "prompt_length": (900.0, 4.0),
    },
    Role.DECODE: {
        "queue_seconds": (0.06, 1.3),
        "ttft_seconds": (0.1, 1.3),
        "itl_seconds": (0.03, 300.0),
        "e2e_seconds": (6.0, 1.3),
        "kv_transfer_seconds": (0.02, 1.3),
        "output_length": (200.0, 1.3),
    },
}


def histogram(mean: np.ndarray, per_s: np.ndarray) -> HistogramSeries:
    """Return a histogram whose events lie around a mean that changes."""
    total, value = np.cumsum(per_s), np.cumsum(per_s * mean)
    below = 1.0 - np.exp(-BOUNDS[None, :] / np.maximum(mean[:, None], 1e-9))
    counts = np.cumsum(below * per_s[:, None], axis=0)
    return HistogramSeries(BOUNDS, FULL, counts[9::10], T, value, total)


def worker_series(role: Role, rng: np.random.Generator, slow: np.ndarray) -> dict[str, AnySeries]:
    load = 1.0 + 0.3 * np.sin(T / 60.0 + rng.uniform(0, 6)) + rng.normal(0, 0.05, len(T))
    found: dict[str, AnySeries] = {}
    for signal, level in GAUGES[role].items():
        found[signal] = Series(Kind.GAUGE, T, np.maximum(level * load, 0.0))
    for signal, rate in COUNTERS[role].items():
        found[signal] = Series(Kind.COUNTER, T, np.cumsum(rate * np.maximum(load, 0.0)))
    for signal, (mean, rate) in HISTOGRAMS[role].items():
        found[signal] = histogram(mean * load * slow, rate * np.maximum(load, 0.0))
    return found


def cluster(workers: int, troubled: bool) -> View:
    """Return a View of that many workers."""
    rng = np.random.default_rng(workers)
    prefill = max(1, workers // 4)
    known = [
        Worker(id=f"{role.value}-{i}", role=role, pool=role.value, engine="vllm", node=f"n{i // 8}", zone=f"z{i % 3}")
        for role, n in ((Role.PREFILL, prefill), (Role.DECODE, workers - prefill))
        for i in range(n)
    ]
    late = np.where(SPAN_S - 120 < T, 4.0, 1.0)
    series: dict[SeriesKey, tuple[AnySeries, ...]] = {}
    for index, worker in enumerate(known):
        slow = late if troubled and index == len(known) - 1 else np.ones(len(T))
        for signal, one in worker_series(worker.role, rng, slow).items():
            series[worker.id, signal] = (one,)
    client = late if troubled else np.ones(len(T))
    rate = np.full(len(T), 1.3 * (workers - prefill))
    series["client", "ttft_seconds"] = (histogram(0.45 * client, rate),)
    series["client", "itl_seconds"] = (histogram(0.03 * client, rate * 50),)
    series["client", "request_success"] = (Series(Kind.COUNTER, T, np.cumsum(rate)),)
    series["client", "request_failure"] = (Series(Kind.COUNTER, T, np.zeros(len(T))),)
    return View(
        cluster=Cluster(name="bench", workers=tuple(known), slo=Slo(ttft_s=2.0, itl_s=0.2)),
        at_s=float(SPAN_S),
        start_s=0.0,
        now=Window(SPAN_S - 60.0, float(SPAN_S)),
        base=Window(0.0, SPAN_S - 300.0),
        series=series,
        health={w.id: Health(Presence.UP, 1.0) for w in known},
    )


def timed(view: View) -> tuple[list[float], Report]:
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        report = diagnose(view)
        found.append(time.process_time() - start)
    return found, report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="3,16,64,512", help="sizes, with commas")
    sizes = [int(n) for n in parser.parse_args().workers.split(",")]
    print(f"pdops {version('pdops')}, Python {platform.python_version()}, numpy {np.__version__}\n")
    print("| workers | cluster | best, CPU ms | worst, CPU ms | answer |")
    print("|---|---|---|---|---|")
    for size in sizes:
        for troubled in (False, True):
            times, report = timed(cluster(size, troubled))
            top = report.top
            answer = str(report.verdict) + (f": {top.cause} {top.confidence:.2f} at {top.scopes[0]}" if top else "")
            name = "one slow worker" if troubled else "sound"
            print(f"| {size} | {name} | {min(times) * 1e3:.0f} | {max(times) * 1e3:.0f} | {answer} |")


if __name__ == "__main__":
    main()
