"""Small simulations and what is read from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, lru_cache

from pdops.catalog.names import split_series
from pdops.sim.records import Outcome, RequestRecord
from pdops.sim.run import Simulation
from pdops.sim.spec import Engine, Fault, Router, SimSpec, Store, Workload, Zone

BASE = SimSpec(
    seed=7,
    prefill=2,
    decode=4,
    duration_s=300.0,
    zones=(Zone(name="a"), Zone(name="b")),
    workload=Workload(rate_per_s=6.0, prompt_cv2=0.5, output_cv2=0.5),
    engine=Engine(kv_blocks=8000, prefill_kv_blocks=60_000, max_num_seqs=32),
    router=Router(policy="zone-aware"),
)
STORED = Store(enabled=True, capacity_bytes=4e10)
STOP_S, END_S = 200.0, 260.0


def run(spec: SimSpec, until_s: float, every_s: float = 5.0) -> Simulation:
    simulation = Simulation(spec)
    count = 1
    while count * every_s <= until_s:
        simulation.advance(count * every_s)
        simulation.frame()
        count += 1
    return simulation


def drained(spec: SimSpec) -> Simulation:
    """Run until no more requests come, and on until all have ended."""
    stop = Fault(kind="rate-scale", at_s=STOP_S, params={"factor": 0.0})
    simulation = run(replace(spec, faults=(*spec.faults, stop)), END_S)
    assert simulation.router.inflight == 0
    return simulation


@cache
def base_run() -> Simulation:
    return drained(BASE)


def value(simulation: Simulation, page: str, name: str, **labels: str) -> float:
    """Return the sum of a family's samples with these labels on a page; NaN where there are none."""
    found = []
    for line in _lines(simulation, page, simulation.loop.now):
        if line.startswith(name):
            series, _, number = line.rpartition(" ")
            family, given = split_series(series)
            if family == name and labels.items() <= given.items():
                found.append(float(number))
    return math.fsum(found) if found else math.nan


@lru_cache(maxsize=64)
def _lines(simulation: Simulation, page: str, now_s: float) -> list[str]:
    return simulation.instruments[page].page().splitlines()


def total(simulation: Simulation, role: str, name: str, **labels: str) -> float:
    """Return the sum over the pages of a pool."""
    pages = [p for p in simulation.instruments if p.startswith(f"{role}-") and not p.endswith("-node")]
    return math.fsum(value(simulation, page, name, **labels) for page in pages)


def well(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    return [r for r in records if r.outcome is Outcome.OK]


def mean(records: Iterable[RequestRecord], of: Callable[[RequestRecord], float]) -> float:
    found = [x for x in map(of, records) if not math.isnan(x)]
    return sum(found) / len(found) if found else math.nan
