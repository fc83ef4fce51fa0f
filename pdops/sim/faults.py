"""Faults: who is hit, when one begins and ends. What each kind does stands beside this, by subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pdops.errors import SimError
from pdops.model.cluster import Role
from pdops.model.frame import Scrape
from pdops.sim.engine import EngineWorker
from pdops.sim.nic import Link, Nic
from pdops.sim.parameters import taken
from pdops.sim.spec import POLICIES, Fault

if TYPE_CHECKING:
    from pdops.sim.instruments import Instruments
    from pdops.sim.run import Simulation

Undo = Callable[[], None]
STORE = "store-0"
_OTHERS = ("router-0", "all", "prefill", "decode")
_STORE_FAULTS = ("store-down", "store-slow", "store-small", "store-hollow")
_JOINS = ("scale-out", "ratio", "scaler-swing")
_ROLES = ("prefill", "decode")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "restart_after_s": ("never",),
    "name": POLICIES,
    "mode": ("drop-params", "no-prefill"),
    "role": _ROLES,
    "to": _ROLES,
    "families": (),
    "revision": (),
}
"""Parameters that are words, and which ones; none where any will do."""


@dataclass(frozen=True, slots=True, eq=False)
class Blow:
    """One fault as it hits. Its identity is the key under which it changes things, so that it can be taken back."""

    sim: Simulation
    fault: Fault

    def number(self, name: str, default: float) -> float:
        """Return a parameter as a number."""
        return self.fault.number(name, default)

    def text(self, name: str, default: str) -> str:
        """Return a parameter as text."""
        return str(self.fault.params.get(name, default))

    def workers(self, role: Role | None = None) -> list[EngineWorker]:
        """Return the engine workers that are hit: those targeted, else those of a role, else all."""
        engines = self.sim.engines
        if not self.fault.target:
            return [w for w in engines.values() if role is None or w.name.startswith(role.value)]
        named: dict[str, EngineWorker] = {}
        for target in self.fault.target:
            for part in target.split(">"):
                named |= {name: engines[name] for name in self._named(part)}
        return [w for w in named.values() if role is None or self.explicit(w) or w.name.startswith(role.value)]

    def victims(self, role: Role) -> list[EngineWorker]:
        """Return the engine workers that are hit where nobody means a whole pool unsaid: the first of a role."""
        return self.workers() if self.fault.target else self.workers(role)[:1]

    def explicit(self, worker: EngineWorker) -> bool:
        """Say whether a worker is named itself."""
        return worker.name in self.fault.target

    def sides(self) -> list[Nic | Link]:
        """Return the NICs and links that are hit: links for pairs (of workers or zones), else NICs."""
        fabric, found = self.sim.fabric, list[Nic | Link]()
        pairs = [t for t in self.fault.target if ">" in t]
        for target in pairs:
            src, dst = target.split(">", 1)
            found += [fabric.link(p, d) for p in self._named(src) for d in self._named(dst) if p != d]
        if len(pairs) < len(self.fault.target) or not pairs:
            only = replace(self.fault, target=tuple(t for t in self.fault.target if ">" not in t))
            found += [fabric.nics[w.name] for w in Blow(self.sim, only).workers()]
        return found

    def first_pair(self) -> list[Nic | Link]:
        """Return the sides that are hit, the link of the first pair where none is targeted."""
        if self.fault.target:
            return self.sides()
        world = self.sim.world
        return [self.sim.fabric.link(next(iter(world.prefills)), next(iter(world.decodes)))]

    def links(self) -> list[Link]:
        """Return the links that are hit: of the pairs targeted, else of the workers targeted, else the first."""
        if not self.fault.target:
            return [side for side in self.first_pair() if isinstance(side, Link)]
        found = [side for side in self.sides() if isinstance(side, Link)]
        if found:
            return found
        names = {w.name for w in self.workers()}
        ends = [(p, d) for p in self.sim.world.prefills for d in self.sim.world.decodes]
        return [self.sim.fabric.link(p, d) for p, d in ends if p in names or d in names]

    def pages(self) -> list[Instruments]:
        """Return the pages that are hit: of the workers targeted, else all."""
        if not self.fault.target or "all" in self.fault.target:
            return list(self.sim.instruments.values())
        names = {w.name for w in self.workers()} | set(self.fault.target)
        return [i for i in self.sim.instruments.values() if i.worker in names]

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call something `seconds` from now."""
        self.sim.loop.at(self.sim.loop.now + seconds, call)

    def swing(self, put: Callable[[bool], None], period_s: float) -> Undo:
        """Do something; with a period (seconds) take it back after half of it and begin again, until it is undone."""
        over = list[bool]()

        def flip(on: bool) -> None:
            if not over:
                put(on)
                if period_s > 0:
                    self.later(period_s / 2, lambda: flip(not on))

        def undo() -> None:
            over.append(True)
            put(False)

        flip(True)
        return undo

    def _named(self, part: str) -> list[str]:
        engines = self.sim.engines
        return [n for n, w in engines.items() if part in (n, "all", w.zone.name) or n.startswith(f"{part}-")]


Strike = Callable[[Blow], Undo | None]


class Faults:
    """All faults of a run.

    Args:
        sim: what they hit.

    Raises:
        SimError: a kind, target or parameter is not known.
    """

    def __init__(self, sim: Simulation) -> None:
        from pdops.sim import strikes_engine, strikes_life, strikes_link, strikes_other, strikes_router

        self._sim = sim
        self.gone: dict[str, set[object]] = {}
        self._strikes: dict[str, Strike] = {
            **strikes_engine.STRIKES,
            **strikes_life.STRIKES,
            **strikes_link.STRIKES,
            **strikes_other.STRIKES,
            **strikes_router.STRIKES,
        }
        for fault in sim.spec.faults:
            self._check(fault)
            sim.loop.at(fault.at_s, self._begin, Blow(sim, fault))

    def scrape(self, page: Instruments, at_s: float) -> Scrape:
        """Return what the reader of pages gets of one."""
        if self.gone.get(page.worker):
            error = "no answer in time"
            return Scrape(worker=page.worker, engine=page.engine, at_s=at_s, endpoint=page.endpoint, error=error)
        return page.scrape(at_s)

    def _begin(self, blow: Blow) -> None:
        undo = self._strikes[blow.fault.kind](blow)
        end_s = blow.fault.end_s()
        if undo is not None and end_s is not None:
            self._sim.loop.at(end_s, undo)

    def _check(self, fault: Fault) -> None:
        if fault.kind not in self._strikes:
            raise _refused(fault, "no such fault", "see pdops.sim.spec.KINDS")
        if fault.kind in _STORE_FAULTS and not self._sim.spec.store.enabled:
            raise _refused(fault, "there is no store", "add `store: {enabled: true}`, or --kv-store")
        end_s = fault.end_s()
        if end_s is not None and end_s <= fault.at_s:
            raise _refused(
                fault, f"it ends at {end_s:g} s and begins at {fault.at_s:g} s", "let it end after it begins"
            )
        for target in fault.target:
            for part in target.split(">"):
                if not self._may_be(part):
                    hint = "name workers, pools, zones, pairs P>D, router-0, store-0 or all"
                    raise _refused(fault, f"nothing is called {part!r}", hint)
        strange = sorted(set(fault.params) - set(taken(fault.kind)))
        if strange:
            raise _refused(fault, f"it has no parameter {strange[0]!r}", f"known: {', '.join(taken(fault.kind))}")
        for name, value in fault.params.items():
            words = _WORDS.get(name, ())
            if isinstance(value, str) and name not in _WORDS:
                fault.number(name, 0.0)
            elif words and str(value) not in words and (isinstance(value, str) or name != "restart_after_s"):
                raise _refused(fault, f"{name} is {value!r}", f"known: {', '.join(words)}")

    def _may_be(self, part: str) -> bool:
        """Say whether anything is called so, or may be once workers have joined."""
        spec = self._sim.spec
        known = {*self._sim.engines, *_OTHERS, *(z.name for z in spec.zones), *((STORE,) if spec.store.enabled else ())}
        pool, _, number = part.rpartition("-")
        joins = any(f.kind in _JOINS for f in spec.faults)
        return part in known or (joins and pool in _ROLES and number.isdecimal())


def _refused(fault: Fault, why: str, hint: str) -> SimError:
    return SimError("simulation cannot be run", where=f"fault {fault.kind}", why=why, hint=hint)
