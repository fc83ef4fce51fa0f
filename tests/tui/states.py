"""Four states of a cluster that screens are looked at in: healthy, degraded, unknown, empty."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from pdops.model.cluster import Pair, Role, Worker
from pdops.model.frame import Event, EventKind
from pdops_tui.snapshot import Snapshot
from tests.tui import build as b

EVENTS = (
    Event(t_s=b.START_S + 30, kind=EventKind.RESTART, worker="prefill-1", detail="process start time changed"),
    Event(t_s=b.START_S + 80, kind=EventKind.ROLLOUT, pool="decode", revision="v0.32.0-2"),
)


def paired(life: b.Life, slow: str = "", after: int = 0) -> b.Life:
    """Let decode workers tell of their pairs, as the plugin does; those of one get slow after a second."""

    def told(page: b.Page, worker: Worker, second: int) -> bool:
        answers = life(page, worker, second)
        if answers and worker.role is Role.DECODE:
            late = worker.id == slow and second >= after
            for sender in ("prefill-0", "prefill-1"):
                key = Pair(sender, worker.id).key
                page.observe("kv_transfer_seconds", 1.9 if late else 0.2, 3, key)
                page.count("kv_transfer_bytes", 0.8e9, key)
                page.count("kv_transfer_failures", 1 if late and second % 20 == 0 else 0, key)
        return answers

    return told


def _healthy() -> Snapshot:
    view = b.view(b.cluster(store=True), seconds=90, life=paired(b.healthy))
    return b.snapshot(view, b.healthy_report(view))


def _degraded() -> Snapshot:
    view = b.view(seconds=160, life=paired(b.slow_link(90), "decode-1", 90), events=EVENTS)
    return b.snapshot(view, b.fault_report(view))


def _unknown() -> Snapshot:
    view = b.view(b.cluster(2, 12), seconds=100, life=b.down(80, "decode-7"), events=EVENTS)
    return b.snapshot(view, b.unknown_report(view))


def _empty() -> Snapshot:
    return b.snapshot(b.view(b.cluster(0, 0, router=False), seconds=0), None)


STATES: dict[str, Callable[[], Snapshot]] = {
    "healthy": cache(_healthy),
    "degraded": cache(_degraded),
    "unknown": cache(_unknown),
    "empty": cache(_empty),
}
