"""Build small Views for tests of the diagnosis, and ask checks and the whole diagnosis about them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pdops.catalog.load import catalog
from pdops.diagnose.checks import ALL, CHECKS, PREFLIGHT
from pdops.diagnose.context import Context
from pdops.diagnose.encode import to_json
from pdops.diagnose.engine import diagnose
from pdops.diagnose.finding import Finding, Status
from pdops.diagnose.preflight import outcome, overall
from pdops.diagnose.preflight_run import run_preflight
from pdops.model.cluster import Cluster, Role, Slo, Worker
from pdops.model.frame import Event, EventKind, LogLine, Probe, ProbeKind
from pdops.model.report import Report
from pdops.model.series import HistogramSeries, Kind, Series, Window
from pdops.model.view import AnySeries, Health, Note, SeriesKey, View

GOLDEN = Path(__file__).parent / "checks" / "golden"
UPDATE = "PDOPS_UPDATE"
NOW_S = 300.0
BASE_S = 900.0
STEP_S = 15.0
SLO = Slo(ttft_s=1.0, itl_s=0.05)
ROLES = {"prefill": Role.PREFILL, "decode": Role.DECODE, "router": Role.ROUTER, "store": Role.KVSTORE}

Samples = Sequence[tuple[float, float]]
Points = float | tuple[float, float] | list[tuple[float, float]] | AnySeries | None
Given = Mapping[str, Mapping[str, Points]]


def worker(name: str, **more: object) -> Worker:
    """Return a worker whose role is told by the start of its name; its pool is the role's."""
    role = next(r for start, r in ROLES.items() if name.startswith(start))
    return replace(Worker(id=name, role=role, pool=role.value, engine="vllm"), **more)  # type: ignore[arg-type]


def steps(before: float | None, now: float | None) -> list[tuple[float, float]]:
    """Return a constant until five minutes before now and another one since."""
    out = [(float(t), before) for t in np.arange(-BASE_S, -NOW_S, STEP_S) if before is not None]
    return out + [(float(t), now) for t in np.arange(-NOW_S + STEP_S, STEP_S / 2, STEP_S) if now is not None]


def grown(before: float, now: float, start: float = 0.0) -> list[tuple[float, float]]:
    """Return cumulative samples that grow by `before` in the base window and by `now` in the judged one."""
    times = [*np.arange(-BASE_S, -NOW_S + 1, STEP_S), *np.arange(-NOW_S + STEP_S, STEP_S / 2, STEP_S)]
    at_border = start + before
    return [
        (
            float(t),
            start + before * (t + BASE_S) / (BASE_S - NOW_S) if t <= -NOW_S else at_border + now * (t + NOW_S) / NOW_S,
        )
        for t in times
    ]


def histogram(
    bounds: Sequence[float],
    before: Mapping[float, float],
    now: Mapping[float, float],
    *,
    sums: Sequence[float] | None = None,
) -> HistogramSeries:
    """Return a histogram of events given as value -> count in the base and in the judged window.

    `sums` replaces the cumulative sums at -900 s, -300 s and now.
    """
    edges = np.array([*bounds, np.inf])
    rows = [np.zeros(len(edges))]
    total = [0.0]
    grow = [0.0]
    for events in (before, now):
        row = rows[-1].copy()
        for value, count in events.items():
            row[edges >= value] += count
        rows.append(row)
        total.append(total[-1] + sum(events.values()))
        grow.append(grow[-1] + sum(v * n for v, n in events.items()))
    t = np.array([-BASE_S, -NOW_S, 0.0])
    return HistogramSeries(
        bounds=edges,
        t=t,
        counts=np.array(rows),
        sum_t=t,
        sum=np.array(grow if sums is None else sums, dtype=np.float64),
        total=np.array(total),
    )


def series(signal: str, points: Points) -> AnySeries | None:
    """Make one series: a pair is (before, now), a level for a gauge and a growth for a counter."""
    if points is None:
        return None
    if isinstance(points, Series | HistogramSeries):
        return points
    spec = catalog().signals.get(signal.partition("[")[0])
    kind = Kind.COUNTER if spec is not None and spec.kind is Kind.COUNTER else Kind.GAUGE
    if isinstance(points, int | float):
        points = (points, points)
    if isinstance(points, tuple):
        before, now = points
        points = grown(before, now, start=before + now) if kind is Kind.COUNTER else steps(before, now)
    columns = np.array(points, dtype=np.float64).reshape(-1, 2)
    return Series(kind, columns[:, 0].copy(), columns[:, 1].copy())


def view(
    *,
    workers: Iterable[str | Worker] = ("prefill-0", "decode-0"),
    series: Given | None = None,
    events: Iterable[Event] = (),
    logs: Iterable[LogLine] = (),
    facts: Mapping[str, Mapping[str, str]] | None = None,
    probes: Iterable[Probe] = (),
    health: Mapping[str, Health] | None = None,
    notes: Iterable[Note] = (),
    slo: Slo = SLO,
    link_bytes_per_s: float | None = None,
    start_s: float = -BASE_S,
    interval_s: float = STEP_S,
) -> View:
    """Return a View as a case would give it: judged over the last five minutes, compared with the ten before."""
    known = tuple(w if isinstance(w, Worker) else worker(w) for w in workers)
    made: dict[SeriesKey, tuple[AnySeries, ...]] = {}
    for scope, signals in (series or {}).items():
        for signal, points in signals.items():
            one = _series(signal, points)
            if one is not None:
                made[scope, signal] = (one,)
    return View(
        cluster=Cluster(name="test", workers=known, slo=slo, link_bytes_per_s=link_bytes_per_s),
        at_s=0.0,
        start_s=start_s,
        now=Window(-NOW_S, 0.0),
        base=Window(-BASE_S, -NOW_S),
        series=made,
        health=dict(health or {}),
        events=tuple(events),
        logs=tuple(logs),
        probes=tuple(probes),
        facts=dict(facts or {}),
        notes=tuple(notes),
        relative=True,
        interval_s=interval_s,
    )


_series = series


def sound(prefill: int = 1, decode: int = 1) -> dict[str, dict[str, Points]]:
    """Return what a cluster in good health says."""
    found: dict[str, dict[str, Points]] = {
        "client": {
            "ttft_seconds.p95": 0.4,
            "itl_seconds.p95": 0.02,
            "request_success": (1200, 600),
            "request_failure": (0, 0),
        }
    }
    for index in range(prefill):
        found[f"prefill-{index}"] = {
            "queue_depth": 0.2,
            "running_requests": 1.0,
            "kv_cache_usage": 0.3,
            "queue_seconds.mean": 0.05,
            "prefill_seconds.mean": 0.2,
            "kv_transfer_expired": (0, 0),
            "kv_notifications_after_expiry": (0, 0),
            "prompt_tokens": (240_000, 120_000),
        }
    for index in range(decode):
        found[f"decode-{index}"] = {
            "queue_depth": 0.0,
            "queue_depth_capacity": 0.0,
            "queue_depth_deferred": 0.0,
            "running_requests": 8.0,
            "kv_cache_usage": 0.4,
            "itl_seconds.mean": 0.02,
            "ttft_seconds.mean": 0.1,
            "queue_seconds.mean": 0.06,
            "kv_transfer_seconds.mean": 0.02,
            "kv_transfer_bandwidth.mean": 5e9,
            "kv_transfer_bytes": (240e9, 120e9),
            "kv_transfer_failures": (0, 0),
            "decode_prealloc_queue_depth": 0.0,
            "transfer_queue_depth": 0.0,
            "local_prefill_tokens": (2_000, 1_000),
            "external_kv_tokens": (240_000, 120_000),
            "preemptions": (0, 0),
            "output_length.mean": 200.0,
        }
    return found


def but(given: Given, changes: Given) -> dict[str, dict[str, Points]]:
    """Return series with others put over them; None takes one away."""
    merged = {scope: dict(signals) for scope, signals in given.items()}
    for scope, signals in changes.items():
        merged.setdefault(scope, {}).update(signals)
    return merged


def restart(name: str, t_s: float) -> Event:
    """Return a restart of one worker."""
    return Event(t_s=t_s, kind=EventKind.RESTART, worker=name)


def canary(pair: str, ok: bool | None, t_s: float = -30.0, detail: str | None = None) -> Probe:
    """Return the outcome of one canary through a pair."""
    return Probe(t_s=t_s, kind=ProbeKind.CANARY, ok=ok, pair=pair, detail=detail)


def line(name: str, text: str, t_s: float = -30.0) -> LogLine:
    """Return one log line."""
    return LogLine(t_s=t_s, worker=name, line=text)


def ask(check_id: str, seen: View) -> tuple[Finding, ...]:
    """Return what one check says."""
    run: Callable[[Context], Iterable[Finding]] = next(c.run for c in ALL if c.meta.id == check_id)
    return tuple(run(Context(seen)))


def causes(found: Iterable[Finding], status: Status = Status.FIRED) -> list[str]:
    """Return the causes of the findings with one status, in order."""
    return [f.cause for f in found if f.status is status]


def one(found: Iterable[Finding], status: Status = Status.FIRED, cause: str | None = None) -> Finding:
    """Return the only finding with a status, and cause if given."""
    (only,) = [f for f in found if f.status is status and cause in (None, f.cause)]
    return only


def groups(finding: Finding) -> set[str]:
    """Return the groups that vote for a finding."""
    return {w.group for w in finding.for_}


def golden(check_id: str, seen: View) -> Report:
    """Compare the report of a View with the one kept for a check, and return the report of all checks.

    The kept one is that of the check and of all that fire, so that a new check with nothing to say changes none. With
    PDOPS_UPDATE set in the environment it is written instead.
    """
    report = diagnose(seen)
    speaking = [c for c in CHECKS if c.meta.id == check_id or causes(c.run(Context(seen)))]
    kept = diagnose(seen, speaking)
    assert replace(kept, ruled_out=(), missing=()) == replace(report, ruled_out=(), missing=())
    _keep(check_id, to_json(kept))
    return report


def outcomes(found: Iterable[Finding]) -> list[str]:
    """Return what each finding of a preflight check means, in order."""
    return [outcome(f).value for f in found]


def verdict(found: Iterable[Finding]) -> str:
    """Return what a preflight check says over all."""
    return overall(found).value


def values(found: Iterable[Finding]) -> list[tuple[str, str, object]]:
    """Return what the fired findings of a preflight check set side by side: scope, option, value."""
    return [(str(w.evidence.scope), w.evidence.signal, w.evidence.observed) for f in found for w in f.for_]


def unread(found: Iterable[Finding]) -> list[tuple[str | None, str]]:
    """Return what a preflight check could not read: of whom, and which fact."""
    return [(None if m.scope is None else str(m.scope), m.signal) for f in found for m in f.missing]


def golden_preflight(check_id: str, seen: View) -> tuple[Finding, ...]:
    """Compare what a preflight check says of a View with what is kept for it, and return it; PDOPS_UPDATE as in `golden`."""
    ((meta, found),) = run_preflight(seen, [c for c in PREFLIGHT if c.meta.id == check_id])
    said = [
        {
            "status": outcome(f).value,
            "cause": f.cause,
            "scopes": [{s.kind: s.id} for s in f.scopes],
            "values": [
                {
                    "scope": None if w.evidence.scope is None else {w.evidence.scope.kind: w.evidence.scope.id},
                    "option": w.evidence.signal,
                    "value": w.evidence.observed,
                    "expected": w.evidence.expected,
                }
                for w in f.for_
            ],
            "because": f.because,
            "next": list(f.next),
            "missing": [{"fact": m.signal, "of": str(m.scope), "why": m.why, "fix": m.fix} for m in f.missing],
        }
        for f in found
    ]
    body = {"id": meta.id, "status": overall(found).value, "findings": said}
    _keep(check_id, json.dumps(body, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    return found


def _keep(check_id: str, text: str) -> None:
    place = GOLDEN / (check_id.replace("/", "_").replace("-", "_") + ".json")
    if os.environ.get(UPDATE):
        place.write_text(text, encoding="utf-8")
    assert text == place.read_text(encoding="utf-8"), f"{place.name} differs; set {UPDATE}=1 to write it"
