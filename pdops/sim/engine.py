"""What prefill and decode workers have in common: a process that runs, hangs, ends and begins anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pdops.sim.cache import BlockPool
from pdops.sim.instruments import EPOCH_S, Instruments
from pdops.sim.loop import Factors, Loop
from pdops.sim.meters import Tally
from pdops.sim.nic import Fabric
from pdops.sim.records import Outcome, RequestRecord
from pdops.sim.spec import SimSpec, Zone
from pdops.sim.store import KvStore

if TYPE_CHECKING:
    from pdops.sim.decode import DecodeWorker
    from pdops.sim.prefill import PrefillWorker


class Answers(Protocol):
    """What engines tell whoever sent them a request."""

    def prefilled(self, record: RequestRecord) -> None:
        """Its KV is ready on prefill."""
        ...

    def first_token(self, record: RequestRecord) -> None:
        """Decode sent its first token."""
        ...

    def gaps(self, seconds: float, count: int) -> None:
        """`count` tokens came `seconds` after the one before."""
        ...

    def finished(self, record: RequestRecord) -> None:
        """Decode sent its last token."""
        ...

    def failed(self, record: RequestRecord, outcome: Outcome, reason: str) -> None:
        """It will not be served."""
        ...


@dataclass(slots=True)
class World:
    """What everything in a simulation shares."""

    spec: SimSpec
    loop: Loop
    fabric: Fabric
    rng: random.Random
    log: Callable[[str, str], None]
    store: KvStore | None = None
    prefills: dict[str, PrefillWorker] = field(default_factory=dict)
    decodes: dict[str, DecodeWorker] = field(default_factory=dict)


class EngineWorker:
    """One engine process.

    Args:
        world: the rest of the simulation.
        name: its worker id.
        zone: where it stands.
        blocks: blocks of KV it has.
        meter: its page.
        answers: who hears of its requests.
    """

    def __init__(self, world: World, name: str, zone: Zone, blocks: int, meter: Instruments, answers: Answers) -> None:
        engine = world.spec.engine
        self.world, self.name, self.zone, self.meter, self.answers = world, name, zone, meter, answers
        self.tally = Tally(meter)
        self.pool = BlockPool(blocks, engine.block_size_tokens)
        self.speed = Factors()
        self.max_num_seqs, self.max_num_batched_tokens = engine.max_num_seqs, engine.max_num_batched_tokens
        self.up, self.frozen = True, False
        self.down_s = 0.0
        self.epoch = 0
        self.extra_s = 0.0
        self.skew_s = 0.0

    @property
    def works(self) -> bool:
        """Whether it does anything now."""
        return self.up and not self.frozen

    def kill(self) -> list[RequestRecord]:
        """End the process; return the requests it had, which nobody answers any more."""
        lost = self.requests()
        self.up = self.frozen = False
        self.down_s = self.world.loop.now
        self.epoch += 1
        self.pool = BlockPool(self.pool.total, self.pool.block_size)
        self.meter.error, self.meter.silent = "connection refused", False
        self.tally.flush()
        self.forget()
        self.world.fabric.forget(self.name)
        return lost

    def start(self, labels: Mapping[str, str] | None = None) -> None:
        """Begin anew, cold."""
        self.up = True
        self.extra_s = self.world.spec.engine.warm_step_s
        self.meter.error = None
        self.meter.reset(EPOCH_S + self.world.loop.now + self.skew_s, labels=labels or {})
        self.seed()

    def seed(self) -> None:
        """Show the series that its page has from the start."""

    def requests(self) -> list[RequestRecord]:
        """Return all requests it knows."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop all it knows."""
        raise NotImplementedError

    def freeze(self) -> None:
        """Hang: nothing moves, nothing answers."""
        self.frozen = True
        self.down_s = self.world.loop.now
        self.meter.error, self.meter.silent = "no answer in time", True

    def thaw(self) -> None:
        """Go on where it hung."""
        self.frozen = False
        self.meter.error, self.meter.silent = None, False

    def replan(self) -> None:
        """Take over a changed speed or limit as soon as the current step ends."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Bring gauges, and counters of work in progress, up to date."""
        raise NotImplementedError
