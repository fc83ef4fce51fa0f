"""What `pdops respond` says of itself: one frozen picture, as JSON and as metrics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector
from pydantic import TypeAdapter

from pdops.model.times import rfc3339
from pdops.respond.episodes import Episode, Made
from pdops.respond.watchdog import Heard
from pdops.runbook.journal import Run
from pdops.runbook.states import ENDED, RunState
from pdops.sources.schemas import DIALECT

SCHEMA = "pdops/respond/v1"
UNDECIDED = "undecided"
"""What is said of an alert of which nothing was made yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogStatus:
    """The dead-man's switch; `age_s` is null when it was never heard."""

    state: Heard
    age_s: float | None
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerStatus:
    """Alertmanager's API; `age_s` is seconds since it answered last, null when it never did."""

    state: Literal["off", "waiting", "ok", "failing"]
    age_s: float | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """Alerts since the start: new, told before, not readable, and left out by Alertmanager's own limit."""

    new: int = 0
    known: int = 0
    invalid: int = 0
    truncated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStatus:
    """One alert from its begin to its end, and what was made of it; `made` is null before anything was."""

    id: str
    alert: str
    labels: dict[str, str]
    starts_at: str
    firing: bool
    requester: str
    made: Made | None
    why: str
    runbook: str
    run: str
    plan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run that has not ended, or was asked for."""

    id: str
    runbook: str
    state: RunState
    why: str
    risk: str
    requester: str
    approver: str | None
    opened_at: str
    approve_before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The whole. `ok` is false while anything is listed under `problems`.

    `firing` counts all alerts that fire by what was made of them. `episodes` are the first `episodes_shown`, at most 200, of
    `episodes_total`: those that fire before the newest thousand that are over.
    """

    schema: Literal["pdops/respond/v1"] = "pdops/respond/v1"
    cluster: str
    at: str
    ok: bool
    problems: tuple[str, ...]
    frozen: str | None
    watchdog: WatchdogStatus
    alertmanager: ManagerStatus
    deliveries: Deliveries
    modes: dict[str, str]
    firing: dict[str, int]
    episodes: tuple[EpisodeStatus, ...]
    episodes_shown: int
    episodes_total: int
    runs: tuple[RunStatus, ...]


def episode_status(episode: Episode) -> EpisodeStatus:
    """Return an episode as it is published."""
    made = episode.decision
    return EpisodeStatus(
        id=episode.id, alert=episode.name, labels=dict(episode.labels), starts_at=_time(episode.starts_ms / 1000.0),
        firing=episode.firing, requester=episode.requester, made=made.made if made else None,
        why=made.why if made else "", runbook=made.runbook if made else "", run=made.run if made else "",
        plan=made.plan if made else "",
    )  # fmt: skip


def counted(episodes: Iterable[Episode]) -> dict[str, int]:
    """Return how many of them fire, by what was made of them."""
    found = Counter(e.decision.made if e.decision else UNDECIDED for e in episodes if e.firing)
    return {name: found[name] for name in (UNDECIDED, *Made)}


def run_status(run: Run) -> RunStatus:
    """Return a run as it is published."""
    return RunStatus(
        id=run.id, runbook=run.runbook, state=run.state, why=run.why, risk=run.risk, requester=run.requester,
        approver=run.approver, opened_at=rfc3339(run.opened_at_s), approve_before=rfc3339(run.plan["expires_at_s"]),
    )  # fmt: skip


def to_json(status: Status) -> str:
    """Return a status as JSON."""
    return json.dumps(asdict(status), ensure_ascii=False, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a status."""
    return {"$schema": DIALECT, "title": "pdops respond, GET /status", **TypeAdapter(Status).json_schema()}


def page(status: Status, answers: dict[int, int]) -> bytes:
    """Return a status as metrics in Prometheus' text format, with answers by HTTP status."""
    registry = CollectorRegistry()
    registry.register(_Page(status, answers))
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, status: Status, answers: dict[int, int]) -> None:
        self._status, self._answers = status, answers

    def collect(self) -> Iterator[Metric]:
        status = self._status
        told = CounterMetricFamily("pdops_respond_alerts", "Alerts delivered, by what they were.", labels=["result"])
        for result, count in asdict(status.deliveries).items():
            told.add_metric([result], count)
        yield told
        answers = CounterMetricFamily("pdops_respond_requests", "Requests answered, by HTTP status.", labels=["code"])
        for code, count in sorted(self._answers.items()):
            answers.add_metric([str(code)], count)
        yield answers
        made = GaugeMetricFamily("pdops_respond_episodes", "Alerts that fire, by what was made.", labels=["made"])
        for name, count in status.firing.items():
            made.add_metric([name], count)
        yield made
        runs = GaugeMetricFamily("pdops_respond_runs", "Runs of alerts that have not ended.", labels=["state"])
        for state in (s for s in RunState if s not in ENDED):
            runs.add_metric([state], sum(r.state is state for r in status.runs))
        yield runs
        yield _gauge("pdops_respond_frozen", "Whether this cluster is frozen.", status.frozen is not None)
        yield _gauge("pdops_respond_problems", "Things that are wrong with answering alerts.", len(status.problems))
        if status.watchdog.state is not Heard.OFF:
            heard = status.watchdog.state is Heard.HEARD
            yield _gauge("pdops_respond_watchdog_up", "Whether the Watchdog alert comes in its time.", heard)
        if status.watchdog.age_s is not None:
            yield _gauge("pdops_respond_watchdog_age_seconds", "Since the Watchdog was heard.", status.watchdog.age_s)
        if status.alertmanager.state in ("ok", "failing"):
            up = status.alertmanager.state == "ok"
            yield _gauge("pdops_respond_alertmanager_up", "Whether Alertmanager's API answers.", up)


def _gauge(name: str, told: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, told)
    family.add_metric([], float(value))
    return family


def _time(at_s: float) -> str:
    try:
        return rfc3339(at_s)
    except (ValueError, OverflowError, OSError):
        return ""
