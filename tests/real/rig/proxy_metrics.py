"""What the proxy counts, on a registry of its own."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Edges of every latency histogram in seconds, from a fast token on a small model to a client's patience."""


class Outcome(StrEnum):
    """How a request ended, as its client saw it."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    EMPTY = "empty"
    REJECTED = "rejected"


class ProxyMetrics:
    """Counters and histograms of one proxy; every series that can be known beforehand starts at zero.

    Args:
        prefills: ids of the prefill workers.
        decodes: ids of the decode workers.
    """

    def __init__(self, prefills: Iterable[str], decodes: Iterable[str]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        sources, sinks = list(prefills), list(decodes)
        self.requests = self._counter("pdops_router_requests", "requests by how they ended for the client", "outcome")
        self.pairs = self._counter(
            "pdops_router_pair_requests", "requests by the workers that served them", "src", "dst", "outcome"
        )
        self.ttft = self._histogram("pdops_router_ttft_seconds", "arrival at the proxy to first token; streams only")
        self.itl = self._histogram(
            "pdops_router_itl_seconds", "time between two streamed pieces of a request, mostly one token each"
        )
        self.request = self._histogram("pdops_router_request_seconds", "arrival to last byte, requests that ended well")
        self.prefill = self._histogram("pdops_router_prefill_seconds", "prefill leg, answered well", "src")
        self.handoff = self._histogram(
            "pdops_router_handoff_seconds", "prefill's answer to decode's first token; streams only", "src", "dst"
        )
        self.inflight = Gauge("pdops_router_inflight_requests", "requests not yet answered", registry=self.registry)
        self.up = Gauge(
            "pdops_router_worker_up", "1 while the worker answers its health page", ["worker"], registry=self.registry
        )
        for outcome in Outcome:
            self.requests.labels(outcome)
            for src in sources:
                for dst in sinks:
                    self.pairs.labels(src, dst, outcome)
        for src in sources:
            self.prefill.labels(src)
            for dst in sinks:
                self.handoff.labels(src, dst)

    def page(self) -> bytes:
        """Return the page in the Prometheus text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        return Histogram(name, meaning, labels, buckets=BUCKETS_S, registry=self.registry)
