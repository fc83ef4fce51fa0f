"""What tests of alerts share: a scene that is set, a world double in which everything is known, bodies as Alertmanager's."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pdops.actuate.backend import Effect, Fence, Params
from pdops.clock import VirtualClock
from pdops.errors import PdopsError
from pdops.model.cluster import Cluster, Role, Slo, Worker
from pdops.model.report import Hypothesis, Layer, Report, Scope, Verdict
from pdops.model.series import Window
from pdops.model.view import Health, Presence, View
from pdops.respond.alerts import read_delivery
from pdops.respond.candidates import with_modes
from pdops.respond.episodes import Episode, Made
from pdops.respond.intake import Intake, Taken
from pdops.respond.planner import RETRY_S, Planner
from pdops.respond.runner import Runner
from pdops.respond.watchdog import Watchdog
from pdops.runbook.journal import Journal, Run
from pdops.runbook.load import parse_runbook
from pdops.runbook.model import Mode, Runbook
from tests.runbook.double_backend import DoubleBackend
from tests.runbook.engine_kit import T0
from tests.runbook.known import known

CLUSTER = "lab"
ADD = parse_runbook("""
schema: pdops/runbook/v1
id: add-prefill
version: 1
title: Add one prefill worker
risk: safe
scope: pool
triggers:
  alerts: [PDPrefillQueueing, PDTtftHigh]
  diagnosis: {causes: [prefill-undersized], min_confidence: 0.6}
guards:
  - {check: data-fresh, with: {least_ratio: 0.8}}
  - {check: no-rollout, with: {role: prefill}}
  - {check: own-replicas, with: {role: prefill}}
  - {check: room-for, with: {role: prefill}}
steps:
  - id: scale
    action: pool.scale-out
    with: {role: prefill, worker: {new: prefill}}
    verify: [{check: serving, with: {worker: {new: prefill}}}]
    timeout_s: 20
observe_s: 4
cooldown_s: 100
budget_per_hour: 2
will_not_fix: "-"
""")
RESTART = parse_runbook("""
schema: pdops/runbook/v1
id: restart-decode
version: 1
title: Restart one decode worker
risk: disruptive
scope: worker
triggers:
  alerts: [PDDecodeWorkerDown]
  diagnosis: {causes: [decode-down], min_confidence: 0.6}
parameters:
  worker: {type: worker, roles: [decode], help: who is restarted}
guards:
  - {check: data-fresh, with: {least_ratio: 0.5}}
  - {check: no-rollout, with: {worker: {param: worker}}}
steps:
  - id: restart
    action: worker.restart
    with: {worker: {param: worker}}
    verify: [{check: serving, with: {worker: {param: worker}}}]
    timeout_s: 20
observe_s: 4
cooldown_s: 100
budget_per_hour: 2
will_not_fix: "-"
""")
AUTO = {"add-prefill": Mode.AUTO, "restart-decode": Mode.APPROVE}


def hypothesis(
    cause: str = "prefill-undersized", confidence: float = 0.9, *scopes: Scope, fault: int = 1
) -> Hypothesis:
    return Hypothesis(
        fault=fault, cause=cause, check="any/thing", layer=Layer.PREFILL, confidence=confidence, scopes=scopes, for_=()
    )


class Scene:
    """What is seen; `fails` is raised instead of a look."""

    def __init__(self) -> None:
        workers = [Worker(id=f"{r}-{n}", role=r, pool=r.value) for r in (Role.PREFILL, Role.DECODE) for n in range(2)]
        self.cluster = Cluster(name=CLUSTER, workers=tuple(workers), slo=Slo(ttft_s=1.0, itl_s=0.05))
        self.presence = {w.id: Presence.UP for w in workers}
        self.verdict = Verdict.OVERLOAD
        self.found: tuple[Hypothesis, ...] = (hypothesis(),)
        self.fails: PdopsError | None = None

    def look(self) -> tuple[View, Report]:
        if self.fails is not None:
            raise self.fails
        return self.view(), Report(cluster=CLUSTER, at=None, at_s=0.0, verdict=self.verdict, hypotheses=self.found)

    def view(self) -> View:
        return View(
            cluster=self.cluster, at_s=0.0, start_s=-900.0, now=Window(-300.0, 0.0), base=None, series={},
            health={w: Health(p) for w, p in self.presence.items()},
        )  # fmt: skip

    def names(self, cause: str, worker: str) -> None:
        """Let the diagnosis be sure of a worker."""
        self.verdict, self.found = Verdict.FAULT, (hypothesis(cause, 0.9, Scope("worker", worker)),)

    def healthy(self) -> None:
        self.verdict, self.found = Verdict.HEALTHY, ()


class World(DoubleBackend):
    """The double of a backend in which everything is known, and workers that are started answer."""

    def __init__(self, path: Path, scene: Scene, on_effect: Callable[[str], None] = lambda _: None) -> None:
        there = path.exists()
        super().__init__(path, on_effect)
        if not there:
            values = {s: v.value for s, v in known(scene.view()).state.values.items()}
            self._write({"values": values, "effects": [], "fence": 0})

    def _write(self, world: dict[str, Any]) -> None:
        # Planner and runner have one each, in threads of one process.
        fresh = self.path.with_suffix(f".{threading.get_ident()}")
        fresh.write_text(json.dumps(world))
        fresh.replace(self.path)

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:
        done = super().apply(action, params, fence)
        if action == "pool.scale-out" and done.changed:
            worker = params["worker"]
            for part, value in (("role", params["role"]), ("serving", True), ("cordoned", False), ("routed", True)):
                self.move(f"worker/{worker}/{part}", value)
        return done


class Desk:
    """Intake, planner and runner over one journal, a step at a time; `again` is what a new process would have."""

    def __init__(
        self,
        folder: Path,
        *,
        modes: Mapping[str, Mode] | None = None,
        runbooks: tuple[Runbook, ...] = (ADD, RESTART),
        watchdog_s: float = 0.0,
    ) -> None:
        self.folder, self.scene, self.clock = folder, Scene(), VirtualClock(T0)
        self.world = World(folder / "world.json", self.scene)
        self.runbooks = with_modes(runbooks, AUTO if modes is None else modes)
        self.watchdog_s = watchdog_s
        self.reached: Callable[[str], None] = lambda _: None
        self.suppressed: frozenset[str] = frozenset()
        self._made()

    def _made(self) -> None:
        self.journal = Journal(self.folder / "journal.db", self.clock, synchronous="OFF")
        self.watchdog = Watchdog(self.watchdog_s, self.clock)
        self.intake = Intake(self.journal, self.watchdog, self.clock, CLUSTER, self._suppress)
        self.planner = Planner(
            self.journal, self.world, self.scene.look, self.runbooks, cluster=CLUSTER, clock=self.clock,
            watchdog=self.watchdog, suppressed=lambda: self.suppressed,
        )  # fmt: skip
        self.runner = Runner(
            self.journal, self.world, self.scene.look, cluster=CLUSTER, clock=self.clock, sleep=self.clock.advance,
            watchdog=self.watchdog, reached=lambda point: self.reached(point),
        )  # fmt: skip

    def _suppress(self, episodes: frozenset[str]) -> None:
        self.suppressed = episodes

    def again(self) -> None:
        """Begin anew with what is on disk."""
        self.journal.close()
        self._made()

    def deliver(self, *alerts: dict[str, Any], who: str = "alertmanager", **more: Any) -> Taken:
        return self.intake.take(read_delivery(body(*alerts, **more)), who)

    def step(self) -> None:
        """Plan what is due, then carry out."""
        self.planner.step()
        self.runner.step()

    def later(self, seconds: float = RETRY_S) -> None:
        """Let time pass, and step."""
        self.clock.advance(seconds)
        self.step()

    def episode(self, name: str = "PDPrefillQueueing") -> Episode:
        self.planner.episodes.follow()
        return next(e for e in reversed(self.planner.episodes.all()) if e.name == name)

    def made(self, name: str = "PDPrefillQueueing") -> Made | None:
        found = self.episode(name).decision
        return found.made if found is not None else None

    def why(self, name: str = "PDPrefillQueueing") -> str:
        found = self.episode(name).decision
        return found.why if found is not None else ""

    def runs(self) -> tuple[Run, ...]:
        return self.journal.runs()


def alert(
    name: str = "PDPrefillQueueing", status: str = "firing", *, starts_s: float = T0, **labels: str
) -> dict[str, Any]:
    """Return one alert of a body; the same name and labels have the same fingerprint."""
    told = {"alertname": name, **labels}
    fingerprint = f"{abs(hash(tuple(sorted(told.items())))) & (2**64 - 1):016x}"
    starts = dt.datetime.fromtimestamp(starts_s, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "status": status, "labels": told, "annotations": {"summary": "-"}, "startsAt": starts,
        "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://prometheus:9090", "fingerprint": fingerprint,
    }  # fmt: skip


def body(*alerts: dict[str, Any], truncated: int = 0) -> bytes:
    """Return a webhook body."""
    firing = any(a["status"] == "firing" for a in alerts)
    return json.dumps({
        "version": "4", "groupKey": "{}", "truncatedAlerts": truncated, "status": "firing" if firing else "resolved",
        "receiver": "pdops", "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "-",
        "alerts": list(alerts),
    }).encode()  # fmt: skip
