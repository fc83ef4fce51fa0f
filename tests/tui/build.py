"""Make clusters, pages and Views by hand: canonical pages through the real Ring, so that the screen sees real Views."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from pdops.catalog.binding import CANONICAL, Column, canonical_series
from pdops.history.ring import Ring
from pdops.model.cluster import CLIENT, Cluster, Pair, Role, Slo, Worker
from pdops.model.frame import Event, Frame, Layout, Scrape
from pdops.model.report import (
    Bound,
    DoNot,
    Evidence,
    Hop,
    Hypothesis,
    Layer,
    Missing,
    Report,
    RuledOut,
    Scope,
    Symptom,
    TtftStage,
    Verdict,
)
from pdops.model.times import rfc3339
from pdops.model.view import View
from pdops_tui.snapshot import Snapshot

START_S = 1_795_000_000.0
EDGES = (0.005, 0.01, 0.025, 0.05, 0.09, 0.25, 0.452, 1.0, 2.5, 5.0, float("inf"))
"""Chosen so that no percentile falls between two roundings."""


def cluster(
    prefill: int = 2, decode: int = 2, *, router: bool = True, store: bool = False, name: str = "prod-eu"
) -> Cluster:
    workers = [
        Worker(id=f"prefill-{i}", role=Role.PREFILL, pool="prefill", engine="vllm", version="0.32.0", node=f"n{i}")
        for i in range(prefill)
    ]
    workers += [
        Worker(id=f"decode-{i}", role=Role.DECODE, pool="decode", engine="vllm", version="0.32.0", node=f"m{i}")
        for i in range(decode)
    ]
    if router:
        workers.append(Worker(id="router-0", role=Role.ROUTER, pool="router", engine="pdops_router"))
    if store:
        workers.append(Worker(id="store-0", role=Role.KVSTORE, pool="kvstore", engine="mooncake"))
    return Cluster(name=name, workers=tuple(workers), slo=Slo(ttft_s=1.0, itl_s=0.05), model="qwen3-8b")


@dataclass
class Page:
    """The cumulative numbers of one worker; `tick` adds one second of life."""

    values: dict[Column, float] = field(default_factory=dict)
    layout: Layout | None = None

    def gauge(self, signal: str, value: float, scope: str = "") -> None:
        self.values[Column(scope, signal)] = value

    def count(self, signal: str, by: float, scope: str = "") -> None:
        column = Column(scope, signal)
        self.values[column] = self.values.get(column, 0.0) + by

    def observe(self, signal: str, value: float, n: float = 1.0, scope: str = "") -> None:
        for edge in EDGES:
            part = f"le={edge:.10g}"
            column = Column(scope, signal, part)
            self.values[column] = self.values.get(column, 0.0) + (n if value <= edge else 0.0)
        for part, by in (("sum", value * n), ("count", n)):
            column = Column(scope, signal, part)
            self.values[column] = self.values.get(column, 0.0) + by

    def scrape(self, worker: str, at_s: float) -> Scrape:
        series = tuple(canonical_series(c) for c in self.values)
        if self.layout is None or self.layout.series != series:
            self.layout = Layout(series)
        return Scrape(
            worker=worker, engine=CANONICAL, at_s=at_s, layout=self.layout, values=np.array(list(self.values.values()))
        )


Life = Callable[[Page, Worker, int], bool]
"""Adds one second to a worker's page; False when the worker does not answer in that second."""


def healthy(page: Page, worker: Worker, second: int) -> bool:
    n = int(worker.id.rpartition("-")[2]) if worker.id[-1].isdigit() else 0
    if worker.role is Role.PREFILL:
        page.gauge("running_requests", 3 + n % 3)
        page.gauge("queue_depth", n % 2)
        page.gauge("queue_depth_capacity", n % 2)
        page.gauge("queue_depth_deferred", 0)
        page.gauge("kv_cache_usage", 0.22 + 0.01 * (n % 7))
        page.gauge("kv_exports_outstanding", 1)
        page.gauge("kv_export_oldest_seconds", 0.2)
        page.count("prompt_tokens", 24_000 + 10 * n)
        page.count("prefix_cache_queries", 24_000)
        page.count("prefix_cache_hits", 12_000)
        page.count("kv_transfer_expired", 0)
        page.count("kv_notifications_after_expiry", 0)
        page.observe("queue_seconds", 0.08, 6)
        page.observe("prefill_seconds", 0.2, 6)
        page.observe("ttft_seconds", 0.3, 6)
    elif worker.role is Role.DECODE:
        page.gauge("running_requests", 30 + n % 5)
        page.gauge("queue_depth", 1)
        page.gauge("queue_depth_capacity", 0)
        page.gauge("decode_prealloc_queue_depth", 0)
        page.gauge("transfer_queue_depth", 1)
        page.gauge("kv_fetch_done_waiting", 0)
        page.gauge("kv_cache_usage", 0.55 + 0.01 * (n % 7))
        page.count("preemptions", 0)
        page.count("kv_transfer_failures", 0)
        page.count("kv_transfer_bytes", 1.6e9)
        page.count("local_prefill_tokens", 240)
        page.count("external_kv_tokens", 24_000)
        page.count("generated_tokens", 1_800)
        page.count("request_success", 6)
        page.count("request_failure", 0)
        page.observe("ttft_seconds", 0.3, 6)
        page.observe("itl_seconds", 0.03, 180)
        page.observe("queue_seconds", 0.25, 6)
        page.observe("kv_transfer_seconds", 0.2, 6)
    elif worker.role is Role.ROUTER:
        page.count("request_success", 12, CLIENT)
        page.count("request_failure", 0, CLIENT)
        page.count("request_timeouts", 0, CLIENT)
        page.observe("ttft_seconds", 0.7, 12, CLIENT)
        page.observe("itl_seconds", 0.03, 360, CLIENT)
        page.gauge("running_requests", 70, "router")
        for pair in (Pair("prefill-0", "decode-0"), Pair("prefill-1", "decode-1")):
            page.observe("handoff_seconds", 0.34, 6, pair.key)
    else:
        page.gauge("kvstore_up", 1)
        page.gauge("kvstore_used_bytes", 8.2e11)
        page.gauge("kvstore_total_bytes", 2.0e12)
        page.count("kvstore_evictions", 0)
        page.count("kvstore_alloc_failures", 0)
    return True


def slow_link(after: int, victim: str = "decode-1") -> Life:
    """From a second on, one decode worker receives nine times slower and some of its transfers fail."""

    def life(page: Page, worker: Worker, second: int) -> bool:
        if second < after or worker.role in (Role.PREFILL, Role.KVSTORE):
            return healthy(page, worker, second)
        if worker.id == victim:
            healthy_except = {"kv_transfer_seconds": 1.9, "ttft_seconds": 2.2, "queue_seconds": 2.0}
            slow = Page(values=page.values)
            for signal, value in healthy_except.items():
                slow.observe(signal, value, 6)
            for signal in ("generated_tokens", "request_success"):
                slow.count(signal, {"generated_tokens": 1_800, "request_success": 6}[signal])
            slow.observe("itl_seconds", 0.03, 180)
            slow.count("kv_transfer_bytes", 1.6e9)
            slow.count("kv_transfer_failures", 0.5)
            slow.count("preemptions", 0)
            slow.count("local_prefill_tokens", 240)
            slow.count("external_kv_tokens", 24_000)
            slow.gauge("transfer_queue_depth", 9)
            slow.gauge("decode_prealloc_queue_depth", 3)
            slow.gauge("kv_cache_usage", 0.93)
            return True
        healthy(page, worker, second)
        if worker.role is Role.ROUTER:
            page.observe("ttft_seconds", 2.6, 30, CLIENT)
        return True

    return life


def down(after: int, victim: str = "decode-0") -> Life:
    """From a second on, one worker does not answer."""

    def life(page: Page, worker: Worker, second: int) -> bool:
        return False if worker.id == victim and second >= after else healthy(page, worker, second)

    return life


def frames(who: Cluster, seconds: int, life: Life = healthy, events: tuple[Event, ...] = ()) -> Iterator[Frame]:
    pages = {w.id: Page() for w in who.workers}
    for second in range(seconds + 1):
        at_s = START_S + second
        scrapes = []
        for worker in who.workers:
            if life(pages[worker.id], worker, second):
                scrapes.append(pages[worker.id].scrape(worker.id, at_s))
            else:
                scrapes.append(Scrape(worker=worker.id, engine=CANONICAL, at_s=at_s, error="connection refused"))
        yield Frame(at_s=at_s, scrapes=tuple(scrapes), events=tuple(e for e in events if at_s - 1 < e.t_s <= at_s))


def view(who: Cluster | None = None, seconds: int = 90, life: Life = healthy, events: tuple[Event, ...] = ()) -> View:
    who = who or cluster()
    ring = Ring(who)
    for frame in frames(who, seconds, life, events):
        ring.add(frame)
    return ring.view()


def stages(view: View, *shares: float) -> tuple[TtftStage, ...]:
    names = ("prefill_queue", "prefill_compute", "handoff", "kv_fetch_wait", "kv_transfer", "decode_wait")
    total = 1.6
    return tuple(
        TtftStage(stage=name, seconds=total * share, share=share, why=None)
        for name, share in zip(names, shares, strict=True)
    )


def report(view: View, verdict: Verdict, **more: object) -> Report:
    return Report(cluster=view.cluster.name, at=rfc3339(view.at_s), at_s=view.at_s, verdict=verdict, **more)  # type: ignore[arg-type]


def healthy_report(view: View) -> Report:
    hops = (
        Hop(question="is the data complete?", answer="6 of 6 workers answer"),
        Hop(question="where is TTFT spent?", answer="prefill_compute 35% (0.2 s)"),
    )
    return report(view, Verdict.HEALTHY, hops=hops, ttft=stages(view, 0.14, 0.35, 0.07, 0.0, 0.35, 0.09))


def fault_report(view: View) -> Report:
    pair, worker = Scope("pair", "prefill-0>decode-1"), Scope("worker", "decode-1")
    slow = Evidence(
        signal="kv_transfer_bandwidth.mean",
        scope=pair,
        observed=1.0e9,
        expected=7.5e9,
        basis="peer",
        unit="bytes/s",
        window_s=60.0,
    )
    long = Evidence(
        signal="kv_transfer_seconds.p99",
        scope=worker,
        observed=Bound(5.0, "ge"),
        expected=0.2,
        basis="history",
        unit="seconds",
        window_s=60.0,
    )
    first = Hypothesis(
        fault=1,
        cause="transport-fallback-slow",
        check="transfer/link-slow",
        layer=Layer.TRANSFER,
        confidence=0.91,
        scopes=(pair, worker),
        for_=(slow, long),
        missing=(Missing(signal="rdma_errors", why="no node exporter on decode-1", fix="start one there"),),
        next=("compare UCX_TLS on decode-1 with its peers", "measure the link itself between the two nodes"),
        runbooks=("kv-transfer-relief",),
        do_not=(
            DoNot(action="scale-out-prefill", why="prefill queue is empty; more prefill adds load to the slow link"),
        ),
    )
    second = Hypothesis(
        fault=2,
        cause="decode-kv-exhaustion",
        check="decode/kv-exhaustion",
        layer=Layer.DECODE,
        confidence=0.62,
        scopes=(worker,),
        for_=(
            Evidence(signal="kv_cache_usage", scope=worker, observed=0.93, expected=0.9, basis="physics", unit="ratio"),
        ),
    )
    return report(
        view,
        Verdict.FAULT,
        symptoms=(Symptom.TTFT, Symptom.ERRORS),
        ttft=stages(view, 0.05, 0.13, 0.04, 0.16, 0.60, 0.02),
        hops=(
            Hop(question="where is TTFT spent?", answer="kv_transfer 60% (0.96 s)", signals=("kv_transfer_seconds",)),
        ),
        hypotheses=(first, second),
        ruled_out=(RuledOut(cause="prefill-undersized", because="queue p95 98 ms equal on both, share 5 %"),),
        missing=(
            Missing(signal="rdma_errors", why="no node exporter on decode-1", fix="start one there", scope=worker),
        ),
    )


def unknown_report(view: View) -> Report:
    silent = TtftStage(stage="handoff", seconds=None, share=None, why="no router gives handoff_seconds")
    known = stages(view, 0.14, 0.35, 0.0, 0.0, 0.35, 0.09)
    return report(
        view,
        Verdict.UNKNOWN,
        symptoms=(Symptom.NO_DATA,),
        ttft=tuple(
            silent if s.stage == "handoff" else TtftStage(stage=s.stage, seconds=s.seconds, share=None, why=None)
            for s in known
        ),
        missing=(Missing(signal="queue_depth", why="decode-0 does not give it", fix="upgrade the engine"),),
    )


def snapshot(view: View, report: Report | None, **more: object) -> Snapshot:
    return Snapshot(seq=1, view=view, report=report, source="built by hand", **more)  # type: ignore[arg-type]
