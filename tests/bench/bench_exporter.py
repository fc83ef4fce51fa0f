"""What `pdops exporter` costs for each worker and scrape, beside what an engine spends on the same page.

Run as `python tests/bench/bench_exporter.py [--workers 64,512] [--rounds 5]`; prints a Markdown table of CPU times, which
other work on the machine changes little. Pages are a recorded one whose values grow; half of the workers are prefill.
Reading and parsing pages is not in it: see bench_scrape.py and bench_parser.py.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from pdops.model.cluster import Cluster, Role, Slo, Worker
from pdops.model.frame import Frame, Scrape
from pdops.sources.exposition import Parser
from pdops_exporters.collector import ClusterCollector
from pdops_exporters.page import write
from pdops_exporters.watched import Snapshot, Watched

FOLDER = Path(__file__).resolve().parents[2] / "fixtures/expositions/vllm-0.32.0-nixl"
PAGES = {Role.PREFILL: "prefill-load-c4.prom", Role.DECODE: "decode-load-c4.prom"}
WARM = 30
"""Frames taken in before anything is measured: half a minute of history."""


class Kept(Collector):
    """Families of a recorded page, for an engine's registry."""

    def __init__(self, body: bytes) -> None:
        self.families = list(text_string_to_metric_families(body.decode()))

    def collect(self) -> Iterator[Metric]:
        """Yield them as they are."""
        return iter(self.families)


def page(role: Role) -> bytes:
    path = FOLDER / PAGES[role]
    return path.read_bytes() if path.exists() else gzip.decompress(path.with_suffix(".prom.gz").read_bytes())


def cpu(function: Callable[[], object]) -> float:
    """Return seconds of CPU of this process that a call takes."""
    begin = time.process_time()
    function()
    return time.process_time() - begin


def engine_s(body: bytes, rounds: int) -> float:
    """Return seconds in which an engine's own library writes the page, without making the values."""
    registry = CollectorRegistry()
    registry.register(Kept(body))
    return statistics.median(cpu(lambda: generate_latest(registry)) for _ in range(rounds * 4))


def cluster(count: int) -> Cluster:
    roles = [Role.PREFILL if at < count // 2 else Role.DECODE for at in range(count)]
    workers = tuple(
        Worker(id=f"{r}-{at}", role=r, pool=r.value, url=f"http://h{at}:8000") for at, r in enumerate(roles)
    )
    return Cluster(name="bench", model="m", workers=workers, slo=Slo(ttft_s=1.0, itl_s=0.05))


def frames(watched: Cluster) -> Iterator[Frame]:
    """Yield frames without end, one a second, in which every value grows."""
    parsed = {role: Parser().parse(page(role)) for role in PAGES}
    still = {
        role: np.array([s.startswith("process_start") for s in p.layout.series], dtype=bool)
        for role, p in parsed.items()
    }
    step = 0
    while True:
        at_s = 1_700_000_000.0 + step
        values = {role: np.where(still[role], p.values, p.values * (1.0 + step * 0.01)) for role, p in parsed.items()}
        yield Frame(
            at_s=at_s,
            scrapes=tuple(
                Scrape(
                    worker=w.id,
                    engine="vllm",
                    at_s=at_s,
                    layout=parsed[w.role].layout,
                    values=values[w.role],
                    endpoint=f"{w.url}/metrics",
                    unread=parsed[w.role].skipped,
                )
                for w in watched.workers
            ),
        )
        step += 1


def measure(count: int, rounds: int) -> str:
    watched_cluster = cluster(count)
    watched = Watched(watched_cluster, interval_s=1.0, monotonic=time.monotonic)
    source = frames(watched_cluster)
    for _ in range(WARM):
        watched.add(next(source))
    held: list[Snapshot | None] = []
    registry = CollectorRegistry()
    ClusterCollector(watched.snapshot, registry)
    write(registry)
    costs: dict[str, list[float]] = {"add": [], "judge": [], "write": []}
    body = b""
    for _ in range(rounds):
        frame = next(source)
        costs["add"].append(cpu(lambda frame=frame: watched.add(frame)))  # type: ignore[misc]
        costs["judge"].append(cpu(lambda: held.append(watched.snapshot())))
        made: list[bytes] = []
        costs["write"].append(cpu(lambda made=made: made.append(write(registry))))  # type: ignore[misc]
        body = made[0]
        held.clear()
    each = {name: statistics.median(found) / count * 1e3 for name, found in costs.items()}
    samples = sum(1 for line in body.splitlines() if line and not line.startswith(b"#"))
    return (
        f"| {count} | {each['add']:.2f} | {each['judge']:.2f} | {each['write']:.2f} | {sum(each.values()):.2f} | "
        f"{len(body) / 1e6:.2f} | {len(body) / count / 1e3:.1f} | {len(gzip.compress(body, 6)) / 1e6:.2f} | {samples} | "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} |"
    )


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--workers", default="64,512")
    asked.add_argument("--rounds", type=int, default=5)
    given = asked.parse_args()
    print(
        f"pdops {version('pdops')}, prometheus-client {version('prometheus-client')}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores\n"
    )
    print("| engine page | size, kB | ms of CPU to write it |\n|---|---|---|")
    for role, name in PAGES.items():
        body = page(role)
        print(f"| {name} | {len(body) / 1e3:.1f} | {engine_s(body, given.rounds) * 1e3:.2f} |")
    print(
        "\n| workers | taking a page in, ms | diagnosis, ms | writing, ms | all, ms a worker and scrape | page, MB | "
        "kB a worker | gzip, MB | samples | RSS, MB |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for count in (int(n) for n in given.workers.split(",")):
        print(measure(count, given.rounds), flush=True)


if __name__ == "__main__":
    main()
