"""Turn a case into a View, keeping aside whatever nobody knows."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from pdops.catalog.load import catalog
from pdops.model.cluster import CLIENT, PAIR_PREFIX, POOL_PREFIX, ROUTER, Cluster, Pair, Worker
from pdops.model.frame import Event, EventKind, LogLine, Probe, ProbeKind
from pdops.model.report import Missing, Scope
from pdops.model.series import Kind, Series, Window
from pdops.model.view import Health, Presence, SeriesKey, View
from pdops.sources.case_model import BeforeNow, Case, CaseEvent, CaseProbe
from pdops.sources.validate import shown
from pdops.sources.yamlfile import as_text

STEP_S = 15.0
"""Distance of the samples that stand for a constant, in seconds."""
NOW_S = 300.0
BASE_S = 900.0
STALE_S = 60.0
"""A worker whose series all end longer ago than this is stale, in seconds."""
STATISTICS = ("p50", "p95", "p99", "mean", "rate")


class CaseReader:
    """Reads one case; `aside` collects what could not be placed."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.aside: list[Missing] = []
        self.cluster = _cluster(case)

    def view(self) -> View:
        """Return the View."""
        at_s = self.case.at_s
        for place, part in self.case.parts():
            for key in part.unknown_keys():
                self._put_aside(f"{place}.{key}", "unknown key, kept aside", "correct or remove it")
        for worker in self.case.cluster.workers:
            if worker.engine is not None and worker.engine not in catalog().engines:
                near = _near(worker.engine, catalog().engines)
                self._put_aside(worker.id, f"unknown engine {shown(worker.engine)}{near}", "name a known engine")
        series = dict(self._series())
        events = tuple(self._events())
        logs = tuple(self._logs())
        starts = [s.t[0] for s in series.values()] + [e.t_s for e in events] + [line.t_s for line in logs]
        self._check_inferred()
        return View(
            cluster=self.cluster,
            at_s=at_s,
            start_s=float(min([at_s - BASE_S, *starts])),
            now=Window(at_s - NOW_S, at_s),
            base=Window(at_s - BASE_S, at_s - NOW_S),
            series={key: (one,) for key, one in series.items()},
            health={w.id: self._health(w, series, events) for w in self.cluster.workers},
            events=events,
            logs=logs,
            probes=tuple(self._probes()),
            facts=self._facts(),
            relative=True,
            interval_s=STEP_S,
        )

    def _series(self) -> Iterator[tuple[SeriesKey, Series]]:
        for name, by_key in self.case.signals.items():
            stem, dot, statistic = name.partition(".")
            spec = catalog().signals.get(stem)
            if spec is None:
                near = _near(stem, catalog().signals, dot + statistic)
                self._put_aside(name, f"unknown signal name{near}", "correct the name; it is kept aside until then")
                continue
            allowed = {Kind.HISTOGRAM: STATISTICS, Kind.COUNTER: ("", "rate"), Kind.GAUGE: ("",)}[spec.kind]
            if statistic not in allowed or (dot and not statistic):
                names = " ".join(f".{s}" if s else "no suffix" for s in allowed)
                self._put_aside(name, f"a {spec.kind} takes one of {names}", f"correct the suffix of {stem}")
                continue
            counter = spec.kind is Kind.COUNTER and not statistic
            for key, points in by_key.items():
                if not self._has_key(name, key):
                    continue
                if counter and isinstance(points, BeforeNow):
                    why = "a counter needs cumulative samples [[t_s, value], …]"
                    self._put_aside(name, why, f"give samples, or {stem}.rate in events per second", _scope(key))
                    continue
                one = self._samples(name, key, points, Kind.COUNTER if counter else Kind.GAUGE)
                if one is not None:
                    yield (key, name), one

    def _samples(
        self, name: str, key: str, points: BeforeNow | tuple[tuple[float, float | None], ...], kind: Kind
    ) -> Series | None:
        """Return the known samples up to now, or None when there is none."""
        if isinstance(points, BeforeNow):
            # Windows include both ends: a sample on the border would count for `before` and for `now`.
            before = [(t, points.before) for t in np.arange(-BASE_S, -NOW_S, STEP_S)]
            now = [(t, points.now) for t in np.arange(-NOW_S + STEP_S, STEP_S / 2, STEP_S)]
            points = (*before, *now)
        elif points and points[-1][0] > 0:
            self._put_aside(name, "samples after now are left out", "times are relative to now", _scope(key))
        known = [(t, v) for t, v in points if v is not None and t <= 0]
        if not known:
            return None
        columns = np.array(known, dtype=np.float64)
        return Series(kind, columns[:, 0] + self.case.at_s, columns[:, 1].copy())

    def _has_key(self, name: str, key: str) -> bool:
        if key in (CLIENT, ROUTER) or self.cluster.get(key) is not None:
            return True
        if key.startswith(POOL_PREFIX):
            pools = self.cluster.pools()
            if key.removeprefix(POOL_PREFIX) in pools:
                return True
            why = f"no such pool: {shown(key)}{_near(key.removeprefix(POOL_PREFIX), pools)}"
        elif key.startswith(PAIR_PREFIX):
            why = self._pair_problem(key)
            if not why:
                return True
        else:
            keys = [*(w.id for w in self.cluster.workers), *map(PAIR_PREFIX.__add__, map(str, self.cluster.pairs()))]
            why = f"unknown key {shown(key)}{_near(key, [*keys, CLIENT, ROUTER])}"
        self._put_aside(name, why, "keys are a worker id, pool:NAME, pair:P>D, client or router")
        return False

    def _pair_problem(self, text: str) -> str:
        try:
            pair = Pair.parse(text)
        except ValueError as problem:
            return str(problem)
        absent = [w for w in (pair.src, pair.dst) if self.cluster.get(w) is None]
        return f"no such worker in {shown(text)}: {', '.join(absent)}" if absent else ""

    def _events(self) -> Iterator[Event]:
        for index, entry in enumerate(self.case.events):
            why = self._event_problem(entry)
            if why:
                self._put_aside(f"events[{index}]", why, "correct the event")
                continue
            yield Event(
                t_s=self.case.at_s + entry.t_s,
                kind=EventKind(entry.kind),
                worker=entry.worker,
                pool=entry.pool,
                detail=entry.detail,
                revision=entry.revision,
            )

    def _event_problem(self, entry: CaseEvent) -> str:
        if entry.kind not in list(EventKind):
            return f"unknown event kind {shown(entry.kind)}{_near(entry.kind, list(EventKind))}"
        if entry.worker is not None and self.cluster.get(entry.worker) is None:
            return f"no such worker: {shown(entry.worker)}{_near(entry.worker, self._ids())}"
        if entry.pool is not None and entry.pool not in self.cluster.pools():
            return f"no such pool: {shown(entry.pool)}{_near(entry.pool, self.cluster.pools())}"
        return "it lies after now" if entry.t_s > 0 else ""

    def _logs(self) -> Iterator[LogLine]:
        for index, entry in enumerate(self.case.logs):
            if entry.t_s > 0:
                self._put_aside(f"logs[{index}]", "it lies after now", "times are relative to now")
                continue
            if self.cluster.get(entry.worker) is None and entry.worker not in (CLIENT, ROUTER):
                why = f"no such worker: {shown(entry.worker)}{_near(entry.worker, self._ids())}"
                self._put_aside(f"logs[{index}]", why, "name the worker that wrote the line")
                continue
            yield LogLine(t_s=self.case.at_s + entry.t_s, worker=entry.worker, line=entry.line)

    def _probes(self) -> Iterator[Probe]:
        for index, entry in enumerate(self.case.probes):
            why = self._probe_problem(entry)
            if why:
                self._put_aside(f"probes[{index}]", why, "correct the probe")
                continue
            yield Probe(
                t_s=self.case.at_s + entry.t_s,
                kind=ProbeKind(entry.kind),
                ok=entry.ok,
                pair=None if entry.pair is None else str(Pair.parse(entry.pair)),
                worker=entry.worker,
                detail=entry.detail,
                value=entry.value,
            )

    def _probe_problem(self, entry: CaseProbe) -> str:
        if entry.kind not in list(ProbeKind):
            return f"unknown probe kind {shown(entry.kind)}{_near(entry.kind, list(ProbeKind))}"
        if entry.worker is not None and self.cluster.get(entry.worker) is None:
            return f"no such worker: {shown(entry.worker)}{_near(entry.worker, self._ids())}"
        if entry.pair is not None and (why := self._pair_problem(entry.pair)):
            return why
        return "it lies after now" if entry.t_s > 0 else ""

    def _facts(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for key, facts in self.case.facts.items():
            if key.startswith(POOL_PREFIX):
                owners = [w.id for w in self.cluster.of_pool(key.removeprefix(POOL_PREFIX))]
            else:
                owners = [key] if self.cluster.get(key) is not None else []
            if not owners:
                why = f"no such worker: {shown(key)}{_near(key, self._ids())}"
                self._put_aside(f"facts.{key}", why, "facts are keyed by worker id")
            for owner in owners:
                found.setdefault(owner, {}).update(_flat(facts))
        return found

    def _health(self, worker: Worker, series: Mapping[SeriesKey, Series], events: tuple[Event, ...]) -> Health:
        at_s = self.case.at_s
        ends = [float(one.t[-1]) for (key, _), one in series.items() if key == worker.id]
        age = at_s - max(ends) if ends else None
        words = [
            e
            for e in events
            if e.kind in (EventKind.DOWN, EventKind.RESTART)
            and (e.worker == worker.id or (e.worker is None and e.pool == worker.pool))
        ]
        last = max(words, key=lambda e: e.t_s, default=None)
        if last is not None and last.kind is EventKind.DOWN:
            why = f"went down {at_s - last.t_s:.0f} s ago"
            return Health(Presence.DOWN, age, why + (f": {last.detail}" if last.detail else ""), last.t_s)
        if age is not None and age > STALE_S:
            return Health(Presence.STALE, age, f"nothing was seen for {age:.0f} s", at_s - age)
        return Health(Presence.GIVEN, age)

    def _check_inferred(self) -> None:
        given = self.case.signals
        for text in self.case.inferred:
            name, at, key = text.partition("@")
            if name not in given or (at and key not in given[name]):
                keys = [*given, *(f"{n}@{k}" for n, by_key in given.items() for k in by_key)]
                self._put_aside(f"inferred: {text}", f"no such series{_near(text, keys)}", "name a given series")

    def _ids(self) -> list[str]:
        return [w.id for w in self.cluster.workers]

    def _put_aside(self, signal: str, why: str, fix: str, scope: Scope | None = None) -> None:
        self.aside.append(Missing(signal=signal, why=why, fix=fix, scope=scope))


def _cluster(case: Case) -> Cluster:
    given = case.cluster
    return Cluster(
        name=given.name or case.id,
        workers=tuple(
            Worker(
                id=w.id,
                role=w.role,
                pool=w.pool or w.role.value,
                url=w.url,
                engine=w.engine,
                version=w.version,
                node=w.node,
                zone=w.zone,
            )
            for w in given.workers
        ),
        slo=given.slo.slo(),
        model=given.model.name if given.model else None,
        kv_bytes_per_token=given.model.kv_bytes_per_token if given.model else None,
        link_bytes_per_s=given.links.baseline_bytes_per_s,
    )


def _flat(facts: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield facts as text; nested options are joined by dots, lists are JSON."""
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, json.dumps(value) if isinstance(value, list) else as_text(value)


def _near(word: str, known: Iterable[object], suffix: str = "") -> str:
    names = [str(name) for name in known]
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f", did you mean {near[0]}{suffix}?" if near else ""


def _scope(key: str) -> Scope | None:
    if key in (CLIENT, ROUTER):
        return None
    if key.startswith(POOL_PREFIX):
        return Scope("pool", key.removeprefix(POOL_PREFIX))
    if key.startswith(PAIR_PREFIX):
        return Scope("pair", key.removeprefix(PAIR_PREFIX))
    return Scope("worker", key)
