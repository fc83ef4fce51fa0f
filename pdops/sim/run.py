"""A simulated cluster: made from a spec, moved through virtual time, looked at as Frames."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import Event, EventKind, Frame, LogLine
from pdops.sim.decode import DecodeWorker
from pdops.sim.engine import EngineWorker, World
from pdops.sim.faults import STORE, Faults
from pdops.sim.instruments import EPOCH_S, Instruments
from pdops.sim.loop import Loop
from pdops.sim.nic import Fabric, packets, segments
from pdops.sim.prefill import PrefillWorker
from pdops.sim.records import Outcome, RequestRecord
from pdops.sim.router import Router
from pdops.sim.spec import SimSpec, checked
from pdops.sim.store import KvStore
from pdops.sim.workload import Arrivals

ROUTER = "router-0"
UP_BEFORE_S = 86_400.0
"""How long the processes of the first workers have been there when virtual time begins."""
_MOST_LOGS = 200
"""Log lines kept between two frames."""


class Simulation:
    """A cluster on a virtual clock that begins at 0.

    `cluster` and `instruments` change when a worker joins or leaves. `records` are the requests that have ended, in order
    of their end.

    Args:
        spec: what is simulated.

    Raises:
        SimError: the spec, or a fault's target or parameters, cannot be used.
    """

    def __init__(self, spec: SimSpec) -> None:
        self.spec = checked(spec)
        self.loop = Loop()
        self.instruments: dict[str, Instruments] = {}
        self.engines: dict[str, EngineWorker] = {}
        rng = random.Random(spec.seed)  # noqa: S311  it plays chance, it keeps no secret
        self.fabric = Fabric(spec.network, self.loop, rng)
        self.world = World(spec, self.loop, self.fabric, rng, self.log)
        self._workers: dict[str, Worker] = {}
        self._events: list[Event] = []
        self._logs: list[LogLine] = []
        self._facts: dict[str, dict[str, str]] = {}
        self._counted: dict[str, tuple[float, float, float]] = {}
        self.router = Router(self.world, Instruments(ROUTER, "pdops_router", start_s=EPOCH_S - UP_BEFORE_S))
        self.numbers = {Role.PREFILL: 0, Role.DECODE: 0}
        for role, count in ((Role.PREFILL, spec.prefill), (Role.DECODE, spec.decode)):
            for _ in range(count):
                self.add(role)
        self._add_other(ROUTER, Role.ROUTER, "pdops_router", self.router.meter)
        if spec.store.enabled:
            self._add_store()
        self._workload = np.random.default_rng(spec.seed)
        self.arrivals = Arrivals(spec.workload, spec.zones, self._workload)
        self.patience_s: float | None = spec.workload.patience_s
        self.impatient = 1.0
        self.faults = Faults(self)
        self.loop.at(0.0, self._next)
        self.regroup()

    @property
    def records(self) -> Sequence[RequestRecord]:
        """The requests that have ended."""
        return self.router.records

    @property
    def gaps(self) -> Mapping[int, tuple[int, int]]:
        """By virtual second, how many gaps between tokens were longer than the spec promises, and how many there were."""
        return self.router.gap_counts

    def advance(self, to_s: float) -> None:
        """Let everything happen up to a virtual second; what lies in the past does nothing."""
        self.loop.run(to_s)
        self.refresh()

    def frame(self) -> Frame:
        """Return all pages now, and what happened since the last frame."""
        at_s = EPOCH_S + self.loop.now
        scrapes = tuple(self.faults.scrape(i, at_s) for i in self.instruments.values())
        frame = Frame(
            at_s=at_s,
            scrapes=scrapes,
            events=tuple(self._events),
            logs=tuple(self._logs),
            facts={name: dict(found) for name, found in self._facts.items()},
        )
        self._events, self._logs, self._facts = [], [], {}
        return frame

    def refresh(self) -> None:
        """Bring gauges, and counters of work in progress, up to date."""
        for engine in self.engines.values():
            engine.refresh()
        self.router.refresh()
        if self.world.store is not None:
            self.world.store.refresh()
        self.fabric.refresh()
        self._nodes()

    def log(self, worker: str, line: str) -> None:
        """Have a worker log a line; beyond a bound between two frames they are lost, as a log reader's are."""
        if len(self._logs) < _MOST_LOGS:
            engine = self.engines.get(worker)
            at_s = EPOCH_S + self.loop.now + (engine.skew_s if engine is not None else 0.0)
            self._logs.append(LogLine(t_s=at_s, worker=worker, line=line))

    def happened(self, kind: EventKind, worker: str, detail: str | None = None, revision: str | None = None) -> None:
        """Note what an orchestrator would tell."""
        at_s = EPOCH_S + self.loop.now
        # Whoever joins or leaves is not in the cluster of before, or of after: its pool is told with it.
        pool = worker.rpartition("-")[0] if kind in (EventKind.SCALE_IN, EventKind.SCALE_OUT) else None
        self._events.append(Event(t_s=at_s, kind=kind, worker=worker, pool=pool, detail=detail, revision=revision))

    def fact(self, worker: str, **options: str) -> None:
        """Show options of a worker in the next frame."""
        self._facts.setdefault(worker, {}).update(options)

    def add(self, role: Role, *, cold: bool = False) -> EngineWorker:
        """Take in one more engine worker; return it."""
        number = self.numbers[role]
        self.numbers[role] += 1
        name = f"{role.value}-{number}"
        zone = self.spec.zones[number % len(self.spec.zones)]
        engine, prefill = self.spec.engine, role is Role.PREFILL
        blocks = engine.prefill_kv_blocks if prefill and engine.prefill_kv_blocks else engine.kv_blocks
        start_s = EPOCH_S + self.loop.now if cold else EPOCH_S - UP_BEFORE_S
        meter = Instruments(name, "vllm", labels=self._labels(blocks), start_s=start_s)
        self.fabric.add(name, zone)
        worker: EngineWorker
        if prefill:
            worker = self.world.prefills[name] = PrefillWorker(self.world, name, zone, blocks, meter, self.router)
        else:
            worker = self.world.decodes[name] = DecodeWorker(self.world, name, zone, blocks, meter, self.router)
        if cold:
            worker.extra_s = engine.warm_step_s
        self.engines[name] = worker
        self.router.join(name, role, zone.name)
        self.instruments[name] = meter
        self._add_node(name)
        self._workers[name] = Worker(
            id=name,
            role=role,
            pool=role.value,
            engine="vllm",
            version=engine.version,
            node=f"node-{name}",
            zone=zone.name,
        )
        self.fact(name, **self._options(role, blocks))
        return worker

    def remove(self, name: str) -> None:
        """Take an engine worker out; what it works on fails."""
        self.kill(name)
        self.router.leave(name)
        del self.engines[name], self._workers[name], self.instruments[name], self.instruments[f"{name}-node"]
        self.world.prefills.pop(name, None)
        self.world.decodes.pop(name, None)
        self.regroup()

    def kill(self, name: str) -> None:
        """End an engine's process: its requests fail, and so do pulls from it."""
        worker = self.engines[name]
        if not worker.up:
            return
        lost = worker.kill()
        for decode in self.world.decodes.values():
            decode.puller.peer_died(name)
        for record in lost:
            self.router.failed(record, Outcome.ERROR, f"{name} ended")
        self.loop.at(self.loop.now + self.spec.router.health_every_s, self._health, name)

    def start(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Begin an engine's process anew."""
        worker = self.engines[name]
        if not worker.up:
            worker.start(labels)
            self.loop.at(self.loop.now + self.spec.router.health_every_s / 2, self._health, name)

    def _health(self, name: str) -> None:
        worker = self.engines.get(name)
        if worker is not None:
            self.router.mark(name, up=worker.works)

    def _arrive(self) -> None:
        now = self.loop.now
        record = self.arrivals.request(now)
        self.router.arrive(record)
        if self.patience_s is not None and self.world.rng.random() < self.impatient:
            left_s = now + self.world.rng.expovariate(1.0 / self.patience_s)
            self.loop.at(left_s, self.router.client_left, record)
        self._next()

    def _next(self) -> None:
        due_s, comes = self.arrivals.next_s(self.loop.now)
        self.loop.at(due_s, self._arrive if comes else self._next)

    def _nodes(self) -> None:
        """Show what the NICs did on the node pages; over TCP it goes through the Ethernet device."""
        for name, nic in list(self.fabric.nics.items()):
            meter = self.instruments.get(f"{name}-node")
            if meter is None:
                continue
            sent, received, waits = self._counted.get(name, (0.0, 0.0, 0.0))
            out, into, wait = nic.sent_bytes - sent, nic.received_bytes - received, nic.wait_ticks - waits
            self._counted[name] = (nic.sent_bytes, nic.received_bytes, nic.wait_ticks)
            lost = self.fabric.lost_share(nic)
            meter.set("node_time_seconds", EPOCH_S + self.loop.now + self.engines[name].skew_s)
            if nic.tcp:
                meter.inc("node_network_transmit_bytes", out)
                meter.inc("node_network_receive_bytes", into)
                meter.inc("node_netstat_Tcp_OutSegs", segments(out + into))
                meter.inc("node_netstat_Tcp_RetransSegs", segments(out + into) * lost)
            else:
                meter.inc("node_infiniband_port_data_transmitted_bytes", out)
                meter.inc("node_infiniband_port_data_received_bytes", into)
                meter.inc("node_infiniband_port_transmit_wait", wait)
                meter.inc("node_infiniband_symbol_error", packets(out + into) * lost)

    def _labels(self, blocks: int) -> dict[str, str]:
        engine = self.spec.engine
        size = engine.block_size_tokens
        return {
            "model_name": engine.model,
            "block_size": str(size),
            "effective_attention_block_size": str(size),
            "num_gpu_blocks": str(blocks),
            "num_gpu_blocks_override": "None",
            "kv_cache_size_tokens": str(blocks * size),
        }

    def _options(self, role: Role, blocks: int) -> dict[str, str]:
        engine = self.spec.engine
        return {
            "version": engine.version,
            "model": engine.model,
            "block_size": str(engine.block_size_tokens),
            "num_gpu_blocks": str(blocks),
            "max_num_seqs": str(engine.max_num_seqs),
            "max_num_batched_tokens": str(engine.max_num_batched_tokens),
            "kv_cache_dtype": "auto",
            "tensor_parallel_size": "1",
            "kv_connector": "NixlConnector",
            "kv_role": "kv_producer" if role is Role.PREFILL else "kv_consumer",
        }

    def _add_node(self, name: str) -> None:
        self.instruments[f"{name}-node"] = Instruments(name, "node", endpoint="node", start_s=EPOCH_S - UP_BEFORE_S)

    def _add_other(self, name: str, role: Role, engine: str, meter: Instruments) -> None:
        self.instruments[name] = meter
        zone = self.spec.zones[0].name
        self._workers[name] = Worker(id=name, role=role, pool=role.value, engine=engine, node=f"node-{name}", zone=zone)

    def _add_store(self) -> None:
        engine, meter = self.spec.engine, Instruments(STORE, "mooncake", start_s=EPOCH_S - UP_BEFORE_S)
        block_bytes = engine.block_size_tokens * engine.kv_bytes_per_token
        self.world.store = KvStore(self.spec.store, self.loop, meter, block_bytes, engine.block_size_tokens)
        meter.set("master_active_clients", float(self.spec.prefill))
        self._add_other(STORE, Role.KVSTORE, "mooncake", meter)

    def regroup(self) -> None:
        """Take over who is there."""
        self.cluster = Cluster(
            name="simulated",
            workers=tuple(self._workers.values()),
            slo=self.spec.slo,
            model=self.spec.engine.model,
            kv_bytes_per_token=self.spec.engine.kv_bytes_per_token,
        )


def frames(spec: SimSpec, interval_s: float = 5.0) -> Iterator[Frame]:
    """Yield the frames of a run after its warm-up, `interval_s` virtual seconds apart, up to its end.

    Raises:
        SimError: the spec cannot be used.
    """
    simulation = Simulation(spec)
    simulation.advance(spec.warmup_s)
    for name, options in simulation.frame().facts.items():
        simulation.fact(name, **options)
    count = 1
    while (to_s := spec.warmup_s + count * interval_s) <= spec.duration_s:
        simulation.advance(to_s)
        yield simulation.frame()
        count += 1
