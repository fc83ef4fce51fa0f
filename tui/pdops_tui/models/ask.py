"""One View and its Report, asked the questions that rows and header have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property

from pdops.catalog.load import catalog
from pdops.diagnose.context import Context
from pdops.model.cluster import CLIENT, POOL_PREFIX, Pair, Worker
from pdops.model.report import Report, Verdict
from pdops.model.series import Reading, unknown
from pdops.model.view import Health, Presence, SeriesKey, View
from pdops_tui.models.format import Cell, Mark, Style, age, unknown_cell
from pdops_tui.models.text import clean

AWAY = frozenset({Presence.DOWN, Presence.STALE, Presence.NEVER})
SHARES = frozenset({"kv_cache_usage"})
"""Gauges that are a part of a whole; other ratios may be above one."""
DATED_S = 5.0
"""A report older than the View by more than this many seconds is dated, and excuses nothing that the View shows."""
WHOLE = 1.005
"""More than all of it, beyond what rounding makes: whoever says so tells per cent, or something else."""


class Ask:
    """Readings, health, and what the report says about a worker or pool.

    `report` None means that nobody has judged this View yet.
    """

    def __init__(self, view: View, report: Report | None) -> None:
        self.view = view
        self.report = report
        self.context = Context(view)
        self.read = self.context.ask
        self.slo = view.cluster.slo

    def health(self, worker: str) -> Health:
        """Return a worker's presence."""
        return self.context.health(worker)

    @cached_property
    def by_scope(self) -> Mapping[str, list[SeriesKey]]:
        """The keys of all series, by scope."""
        found: dict[str, list[SeriesKey]] = {}
        for key in self.view.series:
            found.setdefault(key[0], []).append(key)
        return found

    @cached_property
    def away(self) -> tuple[str, ...]:
        """The workers whose data is not about now."""
        return tuple(w.id for w in self.view.cluster.workers if self.health(w.id).presence in AWAY)

    def newest(self, scope: str, signal: str) -> Reading:
        """Return a gauge's newest value; for a pool with workers away, of those that are there. An impossible one is unknown.

        The last words of a worker that fell silent stay inside the window, but they are not about now.
        """
        reading = self._newest(scope, signal)
        if signal in SHARES and reading.value is not None and reading.value > WHOLE:
            return unknown(f"{reading.value:g} of a whole is impossible: what gives {signal} may tell per cent")
        return reading

    def _newest(self, scope: str, signal: str) -> Reading:
        away = self.away_in(scope)
        if not away or (scope, signal) in self.view.series:
            return self.read.last(scope, signal)
        members = self.view.cluster.of_pool(scope.removeprefix(POOL_PREFIX))
        found = {w.id: self.read.last(w.id, signal) for w in members if w.id not in away}
        known = [r.value for r in found.values() if r.value is not None]
        silent = tuple(w for w, r in found.items() if r.value is None)
        if not known:
            return unknown(f"no worker of the pool that is there gives {signal}", (*away, *silent))
        spec = catalog().signals.get(signal)
        greatest = spec is not None and spec.unit in ("ratio", "seconds", "bool")
        return Reading(max(known) if greatest else sum(known), n=len(known), missing=(*away, *silent))

    def away_in(self, scope: str) -> tuple[str, ...]:
        """Return the workers of a pool whose data is not about now; empty for another scope."""
        if not self.away or not scope.startswith(POOL_PREFIX):
            return ()
        members = {w.id for w in self.view.cluster.of_pool(scope.removeprefix(POOL_PREFIX))}
        return tuple(w for w in self.away if w in members)

    def partial(self, scope: str, reading: Reading) -> Reading:
        """Return a pool's reading over the window with the workers that fell silent named in it."""
        away = self.away_in(scope)
        if not away or reading.value is None:
            return reading
        return replace(reading, missing=tuple(dict.fromkeys((*reading.missing, *away))))

    def share(self, scope: str, part: str, other: str) -> Reading:
        """Return the growth of one counter over the growth of both."""
        mine, theirs = self.read.increase(scope, part), self.read.increase(scope, other)
        if mine.value is None:
            return mine
        if theirs.value is None:
            return theirs
        total = mine.value + theirs.value
        if total <= 0:
            return unknown(f"neither {part} nor {other} grew in the window")
        return Reading(mine.value / total, n=mine.n, missing=tuple(sorted({*mine.missing, *theirs.missing})))

    @cached_property
    def named(self) -> Mapping[str, tuple[str, Style, Mark, str]]:
        """What the report's first hypothesis of each fault says about workers and pools: mark, style, mark, why.

        Keys are worker ids and `pool NAME`. Pairs are put on the workers that most of them share, when no worker
        is named.
        """
        found: dict[str, tuple[str, Style, Mark, str]] = {}
        report = self.report
        if report is None:
            return found
        faults: set[int] = set()
        for item in report.hypotheses:
            if item.fault in faults:
                continue
            first = not faults
            faults.add(item.fault)
            why = f"{item.cause} ({item.layer}), confidence {item.confidence:.2f}"
            look: tuple[str, Style, Mark]
            if report.verdict is Verdict.FAULT and first:
                look = ("[X]", "bad", "X")
            elif report.verdict is Verdict.UNKNOWN:
                look = ("[?]", "unknown", "")
            else:
                look = ("[!]", "warn", "!")
            keys = [s.id if s.kind == "worker" else f"pool {s.id}" for s in item.scopes if s.kind in ("worker", "pool")]
            keys = keys or _shared([s.id for s in item.scopes if s.kind == "pair" and ">" in s.id])
            for key in keys:
                found.setdefault(key, (*look, clean(why)))
        return found

    @property
    def healthy(self) -> bool:
        """Whether the diagnosis found nothing wrong in what is seen; one of long before has not seen it."""
        report = self.report
        return report is not None and report.verdict is Verdict.HEALTHY and self.view.at_s - report.at_s <= DATED_S

    def excused(self, signal: str, limit: float) -> str:
        """Return why a worker's latency above its limit breaks no promise to clients, empty when it may break one."""
        if self.read.quantile(CLIENT, signal, self.slo.percentile).below(limit):
            return "which clients do not feel"
        return "which the diagnosis does not count" if self.healthy else ""

    def awaited(self, workers: Iterable[str]) -> bool:
        """Whether all of these never answered so far, for too short a time to call one of them down."""
        return all(self.health(w).presence is Presence.NEVER and not self.context.is_down(w) for w in workers)

    def state(self, worker: Worker, vital: tuple[str, ...] = ()) -> Cell:
        """Return a worker's state in words: DOWN, STALE or NEVER with the age, else what the report says, else ok.

        One that never answered is not known to be down before that was noticed.

        Args:
            worker: whose state.
            vital: signals without which nobody can call it ok.
        """
        health = self.health(worker.id)
        if health.presence in AWAY:
            away = health.age_s
            if away is None and health.since_s is not None:
                away = max(0.0, self.view.at_s - health.since_s)
            style: Style = "bad" if self.context.is_down(worker.id) else "warn"
            mark: Mark = "X" if style == "bad" else "!"
            if self.awaited((worker.id,)):
                style, mark = "unknown", ""
            text = health.presence.value.upper() + (f" {age(away)}" if away is not None else "")
            return Cell(text, style, clean(health.why or "no reason is known"), mark, 4.0 if mark == "X" else 3.0)
        said = self.named.get(worker.id)
        if said is not None:
            return Cell(said[0], said[1], said[3], "", {"X": 2.5, "!": 2.0}.get(said[2], 1.5))
        silent = [signal for signal in vital if not self.newest(worker.id, signal).known]
        if silent:
            return Cell("?", "unknown", f"no value is known of {', '.join(silent)}", "", 1.0)
        if self.report is None:
            return Cell("?", "unknown", "not judged yet", "", 1.0)
        if health.presence is Presence.GIVEN:
            return Cell("given", "dim", "not scraped: a file or another system supplied what there is", "", 0.0)
        if health.age_s is None:
            return unknown_cell("age of its data is not known")
        return Cell("ok", "good", f"answers, data {age(health.age_s)} old; no hypothesis names it", "", 0.0)


def _shared(pairs: list[str]) -> list[str]:
    """Return the ends that the most pairs have in common; of a single pair both."""
    ends = Counter(end for text in pairs for end in (Pair.parse(text).src, Pair.parse(text).dst))
    most = max(ends.values(), default=0)
    return [end for end, number in ends.items() if number == most]
