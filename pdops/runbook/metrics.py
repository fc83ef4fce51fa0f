"""Runs as Prometheus families, read from the journal at every scrape."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from pdops.clock import Clock
from pdops.errors import JournalError
from pdops.runbook.journal import Journal
from pdops.runbook.killswitch import frozen_by_file
from pdops.runbook.seen import Seen
from pdops.runbook.tally import BOUNDS_S, Tally

_HELP = {
    "pdops_runbook_journal_up": "1 while the journal of runs can be read",
    "pdops_runbook_runs": "runs that have ended, by outcome",
    "pdops_runbook_steps": "steps that were carried out or taken back, by outcome",
    "pdops_runbook_run_seconds": "time from the first lock of a run to its end",
    "pdops_runbook_current_runs": "runs that have not ended, by state",
    "pdops_runbook_frozen": "1 while automation of the cluster is frozen; cluster '*' is all of them",
    "pdops_runbook_told": "events of runs that a sink was told",
    "pdops_runbook_telling_failures": "attempts to tell a sink that failed",
    "pdops_runbook_telling_left_out": "events that a sink refused and that were left out",
    "pdops_runbook_telling_up": "1 while the newest attempt to tell a sink worked",
}


class RunbookCollector(Collector):
    """Gives the families of a journal; it is only read. While it cannot be read there is no value but that.

    Args:
        path: the journal.
        clock: where time comes from.
        registry: where it registers, None for nowhere.
        seen: whose sinks are told of too.
    """

    def __init__(
        self, path: Path, clock: Clock, registry: CollectorRegistry | None = None, seen: Seen | None = None
    ) -> None:
        self._path, self._clock, self._seen = path, clock, seen
        self._tally, self._lock = Tally(), threading.Lock()
        if registry is not None:
            registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: names are not looked for when it registers."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Read what is new and yield the families."""
        with self._lock:
            up = self._read()
            metric = GaugeMetricFamily("pdops_runbook_journal_up", _HELP["pdops_runbook_journal_up"])
            metric.add_metric([], float(up))
            found = [metric, *(self._families() if up else ())]
        yield from found
        yield from self._telling()

    def _read(self) -> bool:
        try:
            with Journal(self._path, self._clock, read_only=True) as journal:
                if self._tally.seq and journal.link(self._tally.seq) != self._tally.hash:
                    # Another journal has taken its place: counters begin again, as after a restart.
                    self._tally = Tally()
                for event in journal.events(after=self._tally.seq):
                    self._tally.take(event)
        except JournalError:
            return False
        return True

    def _families(self) -> Iterator[Metric]:
        tally = self._tally
        runs = CounterMetricFamily(
            "pdops_runbook_runs", _HELP["pdops_runbook_runs"], labels=("cluster", "runbook", "outcome")
        )
        for labels, count in sorted(tally.runs.items()):
            runs.add_metric(labels, float(count))
        steps = CounterMetricFamily(
            "pdops_runbook_steps", _HELP["pdops_runbook_steps"], labels=("cluster", "runbook", "action", "outcome")
        )
        for step, count in sorted(tally.steps.items()):
            steps.add_metric(step, float(count))
        took = HistogramMetricFamily(
            "pdops_runbook_run_seconds", _HELP["pdops_runbook_run_seconds"], labels=("cluster", "runbook")
        )
        for names, times in sorted(tally.times.items()):
            below, buckets = 0, []
            for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), times.counts, strict=True):
                below += count
                buckets.append((bound, float(below)))
            took.add_metric(names, buckets, times.sum_s)
        now = GaugeMetricFamily(
            "pdops_runbook_current_runs", _HELP["pdops_runbook_current_runs"], labels=("cluster", "state")
        )
        for state, count in sorted(tally.now().items()):
            now.add_metric(state, float(count))
        frozen = GaugeMetricFamily("pdops_runbook_frozen", _HELP["pdops_runbook_frozen"], labels=("cluster",))
        everything = "*" in tally.frozen or frozen_by_file(self._path) is not None
        for cluster in sorted({"*", *tally.clusters, *tally.frozen}):
            frozen.add_metric([cluster], float(everything or cluster in tally.frozen))
        yield from (runs, steps, took, now, frozen)

    def _telling(self) -> Iterator[Metric]:
        if self._seen is None:
            return
        for name, kind in (
            ("told", CounterMetricFamily), ("telling_failures", CounterMetricFamily),
            ("telling_left_out", CounterMetricFamily), ("telling_up", GaugeMetricFamily),
        ):  # fmt: skip
            full = f"pdops_runbook_{name}"
            family = kind(full, _HELP[full], labels=("sink",))
            for s in self._seen.standings:
                values = {"told": s.told, "telling_failures": s.failed, "telling_left_out": s.left_out}
                family.add_metric([s.name], float(values.get(name, not s.why)))
            yield family
