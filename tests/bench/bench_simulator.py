"""Measure how fast clusters of several sizes are simulated, frames every 5 virtual seconds included.

Run as `python tests/bench/bench_simulator.py`; prints a Markdown table. Times are CPU time of one process.
"""

from __future__ import annotations

import platform
import time

from pdops.sim.run import Simulation
from pdops.sim.spec import SimSpec, Workload

SIZES = ((1, 1, 3600.0), (8, 32, 900.0), (64, 256, 900.0))
RATE_PER_PREFILL = 2.0
INTERVAL_S = 5.0


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    print("| cluster | virtual time | requests | events | scrapes | CPU time | of virtual time |")
    print("|---|---|---|---|---|---|---|")
    for prefill, decode, span_s in SIZES:
        spec = SimSpec(
            prefill=prefill,
            decode=decode,
            duration_s=span_s,
            workload=Workload(rate_per_s=RATE_PER_PREFILL * prefill),
        )
        begin, scrapes = time.process_time(), 0
        simulation = Simulation(spec)
        for count in range(1, int(span_s / INTERVAL_S) + 1):
            simulation.advance(count * INTERVAL_S)
            scrapes += len(simulation.frame().scrapes)
        took_s = time.process_time() - begin
        print(
            f"| {prefill}P{decode}D | {span_s:g} s | {len(simulation.records):,} | {simulation.loop.events:,} | "
            f"{scrapes:,} | {took_s:.1f} s | 1/{span_s / took_s:.0f} |"
        )


if __name__ == "__main__":
    main()
