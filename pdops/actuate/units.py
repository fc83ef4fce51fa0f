"""Engines that systemd or Compose keeps running, as a deployment that runbooks change.

Which unit or service is which worker stands in the inventory; nothing else is started or stopped. Adding a worker starts one of
the spares that are listed there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pdops.actuate.engine_page import Answered, EnginePage
from pdops.actuate.fences import FenceFile
from pdops.actuate.local import Part
from pdops.actuate.supervisors import Supervisor, Unit
from pdops.errors import ActionError
from pdops.model.frame import Probe

_AT_ONCE = 16
"""Engines asked at the same time."""
_LIFE = ("pool.scale-out", "pool.scale-in", "worker.start", "worker.stop", "worker.restart", "store.start", "store.stop",
         "store.restart")  # fmt: skip
_NO = {
    "worker.reconfigure": "options of a unit are its administrator's: change the unit or the Compose file, then restart-worker",
    "autoscaler.pause": "no autoscaler is known",
    "autoscaler.resume": "no autoscaler is known",
    "store.bypass": "whether a unit's engine uses a store is its administrator's to say",
    "store.use": "whether a unit's engine uses a store is its administrator's to say",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """A worker or store, and the unit or service it is; a `spare` one is no part of its pool while it does not run."""

    id: str
    role: str
    unit: str
    url: str
    spare: bool = False


class UnitDeployment:
    """See `pdops.actuate.local.Deployment`.

    Args:
        supervisor: who starts and stops.
        managed: who is known.
        memory: a folder where starts are counted and the fence is kept.
        lease_s: how long prefill keeps KV that nobody pulled, in seconds.
        canary: sends a request through every pair of a worker; None where the inventory cannot be asked.
        look: asks an engine at an address.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        managed: Sequence[Managed],
        memory: Path,
        lease_s: float,
        canary: Callable[[str], tuple[Probe, ...]] | None,
        look: Callable[[str], Answered] = lambda url: EnginePage(url).look(),
    ) -> None:
        self._supervisor, self._managed = supervisor, {m.id: m for m in managed}
        self._memory, self._lease_s, self._canary, self._look = memory, lease_s, canary, look

    @property
    def name(self) -> str:
        """What people call it."""
        return self._supervisor.name

    @property
    def lease_s(self) -> float:
        """How long prefill keeps KV that nobody pulled, in seconds."""
        return self._lease_s

    def refusals(self) -> Mapping[str, str]:
        """Return what cannot be done here."""
        missing = dict(_NO)
        if (why := self._supervisor.missing()) is not None:
            missing |= dict.fromkeys(_LIFE, why)
        if not any(m.spare for m in self._managed.values()):
            missing.setdefault("pool.scale-out", "the inventory lists no spare worker")
        if self._canary is None:
            missing["pair.canary"] = "nobody can be asked"
        return missing

    def bypass(self, *, bypassed: bool) -> str:  # noqa: ARG002  the protocol's
        """Refuse: it is not offered."""
        raise ActionError("not offered", why=_NO["store.bypass"], hint="change the unit, then restart-worker")

    def parts(self) -> tuple[Part, ...]:
        """Return who is known, without spares that surely do not run."""
        units = self._units()
        starts = self._starts({w: u for w, u in units.items() if u.incarnation})
        there = [m for m in self._managed.values() if not (m.spare and units[m.id].process == "stopped")]
        if not there:
            return ()
        # Engines that do not answer are waited for side by side, not one after the other.
        with ThreadPoolExecutor(min(_AT_ONCE, len(there))) as pool:
            counted = [None if starts is None else starts.get(m.id, 0) for m in there]
            return tuple(pool.map(self._part, there, [units[m.id] for m in there], counted))

    def room(self, role: str) -> int | None:
        """Return how many spares of a role do not run."""
        units = self._units()
        spares = [units[m.id] for m in self._managed.values() if m.spare and m.role == role]
        if any(u.process is None for u in spares):
            return None
        return sum(u.process == "stopped" for u in spares)

    def url(self, worker: str) -> str:
        """Return where a worker serves."""
        return self._known(worker).url

    def add(self, role: str, worker: str) -> None:
        """Check that it is a spare of that role."""
        found = self._managed.get(worker)
        if found is None or not found.spare or found.role != role:
            spares = ", ".join(m.id for m in self._managed.values() if m.spare and m.role == role) or "none"
            raise ActionError(
                f"{worker} is no spare {role} worker", where=self.name, why=f"spares are: {spares}",
                hint="list it under operate.spare of the inventory",
            )  # fmt: skip

    def start(self, worker: str) -> None:
        """Start a part unless it runs."""
        if self._unit(worker).process == "stopped":
            self._supervisor.start(self._known(worker).unit)

    def stop(self, worker: str) -> None:
        """Stop a part unless it is stopped."""
        if self._unit(worker).process != "stopped":
            self._supervisor.stop(self._known(worker).unit)
            if self._unit(worker).process != "stopped":
                raise ActionError("it cannot be ended", where=worker, hint=f"look at {self._known(worker).unit}")

    def forget(self, worker: str) -> None:
        """Leave it: units stay where they are, and a spare that is stopped is a spare."""

    def canary(self, worker: str) -> tuple[Probe, ...]:
        """Send a request with a known answer through every pair of a worker."""
        if self._canary is None:
            raise ActionError("no canary can be sent", where=worker, hint="list both roles in the inventory")
        return self._canary(worker)

    def alone(self, fence: int) -> AbstractContextManager[bool]:
        """Keep other commands of this host away; False when a higher fence has been here."""
        return FenceFile(self._memory / "fence").alone(fence)

    def _known(self, worker: str) -> Managed:
        if worker not in self._managed:
            raise ActionError("no such worker", where=worker, hint="name its unit under operate of the inventory")
        return self._managed[worker]

    def _units(self) -> dict[str, Unit]:
        names = {m.id: m.unit for m in self._managed.values()}
        if (why := self._supervisor.missing()) is not None:
            return {worker: Unit(None, why=why) for worker in names}
        found = self._supervisor.units(tuple(names.values()))
        return {worker: found[unit] for worker, unit in names.items()}

    def _unit(self, worker: str) -> Unit:
        found = self._supervisor.units((self._known(worker).unit,))[self._known(worker).unit]
        if found.process is None:
            raise ActionError(f"how {worker} is cannot be read", where=self.name, why=found.why, hint="look by hand")
        return found

    def _part(self, m: Managed, unit: Unit, starts: int | None) -> Part:
        said = Answered(False, 0, unit.why)
        if unit.process is None:
            said = Answered(None, None, unit.why)
        elif unit.process == "frozen":
            said = Answered(False, None, unit.why)
        elif unit.process == "running" and m.role == "kvstore":
            said = Answered(None, None, "a store is asked by its own backend")
        elif unit.process == "running":
            said = self._look(m.url)
        return Part(
            id=m.id, role=m.role, process=unit.process, starts=starts, serving=said.serving, inflight=said.inflight,
            why=said.why,
        )  # fmt: skip

    def _starts(self, running: Mapping[str, Unit]) -> dict[str, int] | None:
        """Count starts: one more whenever a worker runs as another incarnation than the one that was seen last.

        None when that cannot be kept: a restart could not be told from none then.
        """
        file = self._memory / "starts.json"
        kept: dict[str, list[object]] = {}
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            kept = {k: v for k, v in told.items() if isinstance(v, list) and len(v) == 2 and isinstance(v[1], int)}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, AttributeError):
            return None
        fresh = dict(kept)
        for worker, unit in running.items():
            last = kept.get(worker, ["", 0])
            if last[0] != unit.incarnation:
                fresh[worker] = [unit.incarnation, int(str(last[1])) + 1]
        if fresh != kept:
            try:
                self._memory.mkdir(mode=0o700, parents=True, exist_ok=True)
                new = file.with_suffix(f".{os.getpid()}.new")
                new.write_text(json.dumps(fresh), encoding="utf-8")
                new.replace(file)
            except OSError:
                return None
        return {worker: int(str(count)) for worker, (_, count) in fresh.items()}
