"""What the router counts, on a registry of its own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from pdops.model.cluster import Role
from pdops.router.queue import REASONS
from pdops.router.workers import Registry

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Edges of every latency histogram in seconds, from a fast token on a small model to a client's patience."""
FINISHES = ("stop", "length", "abort", "error", "tool_calls", "content_filter", "repetition", "other", "none")
"""Reasons engines give for the end of an output; `none` when the output ended without one."""
PHASES = ("queue", "prefill", "handoff", "decode_first_token", "stream")
RELEASES = ("sent", "no_decode", "failed")


class Outcome(StrEnum):
    """How a request ended, as its client saw it."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    EMPTY = "empty"
    REJECTED = "rejected"


MOST_PAIRS = 256
"""Pairs whose series start at zero; where there are more, a pair has series once a request went through it."""


class Metrics:
    """Counters and histograms of one router; series that can be known beforehand start at zero.

    Args:
        workers: the workers; series of a pair end with the worker.
    """

    def __init__(self, workers: Registry) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry, self._workers = CollectorRegistry(), workers
        counter, histogram, gauge = self._counter, self._histogram, self._gauge
        self.requests = counter("requests", "requests by how they ended for the client", "outcome")
        self.pairs = counter("pair_requests", "requests by the workers that served them", "src", "dst", "outcome")
        self.ttft = histogram("ttft_seconds", "arrival at the router to first token; streams only")
        self.itl = histogram("itl_seconds", "time between two streamed pieces of a request, mostly one token each")
        self.request = histogram("request_seconds", "arrival to last byte, requests that ended well")
        self.prefill = histogram("prefill_seconds", "prefill leg, answered well", "src")
        self.handoff = histogram(
            "handoff_seconds", "prefill's answer to decode's first token; streams only", "src", "dst"
        )
        self.phase = histogram("phase_seconds", "time of a request by phase, phases that ended well", "phase")
        self.queue = histogram("queue_seconds", "arrival to a place on both workers, requests that got one")
        self.inflight = gauge("inflight_requests", "requests not yet answered, waiting ones too")
        self.depth = gauge("queue_depth", "requests that wait for a pair")
        self.rejected = counter("rejected", "requests turned away by the router itself", "reason")
        self.fallback = counter("fallback", "requests served by decode alone, which was allowed", "reason", "worker")
        self.finish = counter("finish", "outputs by the reason the engine gave for their end", "reason")
        self.kv_bytes = counter(
            "pair_kv_bytes",
            "KV handed over: prompt blocks times bytes; decode may have had a part already",
            "src",
            "dst",
        )
        self.kv_release = counter("kv_release", "KV of a prefill that no decode will pull, given free", "result")
        self.slo = counter("slo", "requests by whether they met a promise; failures meet none", "slo", "met")
        self.up = gauge("worker_up", "1 while the worker answers its health page, NaN before it was asked", "worker")
        self.cordoned = gauge("worker_cordoned", "1 while a person keeps requests away from the worker", "worker")
        self.legs = gauge("worker_inflight", "legs of requests that hold a place on the worker", "worker")
        self._seed()
        self._known: dict[str, Role] = {}
        self.members()
        workers.listeners.append(self.members)

    async def page(self) -> bytes:
        """Return the page in the Prometheus text format; a long one does not hold up requests while it is written."""
        for worker in self._workers.workers.values():
            self.legs.labels(worker.id).set(worker.inflight)
        return await asyncio.to_thread(generate_latest, self.registry)

    def members(self) -> None:
        """Take over who is there, who is up and who is cordoned."""
        now = {w.id: w.spec.role for w in self._workers.workers.values()}
        for name in set(self._known) - set(now):
            self._forget(name)
        added = set(now) - set(self._known)
        self._known = now
        if added:
            self._start_pairs(added)
        for worker in self._workers.workers.values():
            self.up.labels(worker.id).set(math.nan if worker.up is None else worker.up)
            self.cordoned.labels(worker.id).set(worker.cordoned)
            self.legs.labels(worker.id).set(worker.inflight)

    def ended_with(self, reason: str | None) -> None:
        """Count the end of an output."""
        self.finish.labels("none" if reason is None else reason if reason in FINISHES else "other").inc()

    def promised(self, slo: str, *, met: bool) -> None:
        """Count a request against a promise."""
        self.slo.labels(slo, "true" if met else "false").inc()

    def _seed(self) -> None:
        seeds: tuple[tuple[Counter | Histogram, Iterable[str]], ...] = (
            (self.requests, Outcome),
            (self.rejected, REASONS),
            (self.finish, FINISHES),
            (self.phase, PHASES),
            (self.kv_release, RELEASES),
        )
        for family, values in seeds:
            for value in values:
                family.labels(value)

    def _start_pairs(self, added: set[str]) -> None:
        sources = [name for name, role in self._known.items() if role is Role.PREFILL]
        sinks = [name for name, role in self._known.items() if role is Role.DECODE]
        if len(sources) * len(sinks) > MOST_PAIRS:
            sinks = []
        for src in sources:
            if src in added:
                self.prefill.labels(src)
            for dst in sinks:
                if added & {src, dst}:
                    self.handoff.labels(src, dst)
                    for outcome in Outcome:
                        self.pairs.labels(src, dst, outcome)

    def _forget(self, name: str) -> None:
        for gauge in (self.up, self.cordoned, self.legs):
            gauge.remove_by_labels({"worker": name})
        self.fallback.remove_by_labels({"worker": name})
        self.prefill.remove_by_labels({"src": name})
        for family in (self.pairs, self.handoff, self.kv_bytes):
            family.remove_by_labels({"src": name})
            family.remove_by_labels({"dst": name})

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"pdops_router_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"pdops_router_{name}", meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        return Histogram(f"pdops_router_{name}", meaning, labels, buckets=BUCKETS_S, registry=self.registry)
