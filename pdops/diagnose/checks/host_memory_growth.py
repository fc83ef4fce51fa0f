"""A process's host memory grows and its KV does not."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.model.cluster import Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Missing
from pdops.model.series import Floats, Series

META = CheckMeta(
    id="host/memory-growth",
    title="Host memory of a worker grows without bound",
    causes=("host-mem-leak",),
    needs=("host_memory_bytes", "kv_cache_usage", "process_start_seconds"),
    tier=Tier.PAIR,
    alert="PDHostMemoryGrowing",
    panel="overview/host-memory",
)

GROWTH = 100e6 / 60.0
"""Bytes/s above which growth is a leak: 100 MB a minute (from public incidents)."""
LEAST_S = 300.0
"""Seconds of history that a slope is taken from at least; shorter ones are the breathing of an allocator."""
HALF = 0.5
"""Share of the threshold that each half of the history must grow by as well: a step is no slope."""
FLAT = 0.1
"""Change of KV usage, as a ratio of the pool, below which KV is flat."""
WARM_S = 900.0
"""A younger process still loads and fills its pools."""


def check(ctx: Context) -> Iterator[Finding]:
    """Fit a line to each worker's memory since its last start."""
    flat: list[float] = []
    unjudged: dict[str, list[str]] = {}
    for worker in ctx.cluster.workers:
        if worker.role is Role.KVSTORE:
            # A store is there to fill memory.
            continue
        for series in ctx.view.series.get((worker.id, "host_memory_bytes"), ()):
            if not isinstance(series, Series):
                continue
            young = _age_s(ctx, worker.id)
            times, values = _recent(ctx, worker.id, series)
            slope = _slope(times, values)
            if slope is None or (young is not None and young < WARM_S):
                why = "just started" if slope is not None else f"less than {LEAST_S:.0f} s of history"
                unjudged.setdefault(why, []).append(worker.id)
            elif slope <= GROWTH:
                flat.append(slope)
            elif _steady(times, values):
                yield _finding(ctx, worker.id, slope, float(values[-1]))
    for why, names in unjudged.items():
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        yield not_known("host-mem-leak", "host_memory_bytes", f"{why}: {shown}", "wait")
    if flat:
        yield clear("host-mem-leak", f"host memory grows by at most {max(*flat, 0.0) * 60 / 1e6:.0f} MB a minute")


def _age_s(ctx: Context, worker: str) -> float | None:
    """Return how long ago a process started, as far as it is told."""
    started = ctx.ask.last(worker, "process_start_seconds").value
    restarts = ctx.events((EventKind.RESTART,), WARM_S, worker)
    ages = [ctx.view.at_s - e.t_s for e in restarts[:1]]
    if started is not None and not ctx.view.relative:
        ages.append(ctx.view.at_s - started)
    return min(ages) if ages else None


def _recent(ctx: Context, worker: str, series: Series) -> tuple[Floats, Floats]:
    """Return the samples since the last restart."""
    restarts = ctx.events((EventKind.RESTART,), ctx.view.at_s - ctx.view.start_s, worker)
    since = restarts[0].t_s if restarts else ctx.view.start_s
    inside = (series.t >= since) & (series.t <= ctx.view.at_s)
    return series.t[inside], series.v[inside]


def _slope(times: Floats, values: Floats) -> float | None:
    """Return bytes/s by least squares, or None when the samples span too little."""
    if len(times) < 4 or times[-1] - times[0] < LEAST_S:
        return None
    return _fit(times, values)


def _fit(times: Floats, values: Floats) -> float:
    centred = times - times.mean()
    spread = float((centred**2).sum())
    return float((centred * (values - values.mean())).sum() / spread) if spread > 0 else 0.0


def _steady(times: Floats, values: Floats) -> bool:
    middle = times >= (times[0] + times[-1]) / 2
    return all(_fit(times[half], values[half]) > HALF * GROWTH for half in (~middle, middle))


def _kv(ctx: Context, worker: str) -> tuple[list[Weighed], list[Weighed], tuple[Missing, ...]]:
    """Return whether KV grew beside the memory: evidence for and against, and what is missing to say."""
    now = ctx.ask.level(worker, "kv_cache_usage")
    before = ctx.before(lambda s, w: ctx.ask.level(s, "kv_cache_usage", w), worker)
    if now.value is None or before is None:
        why = now.why or "no history of KV in use"
        return [], [], (Missing(signal="kv_cache_usage", why=why, scope=ctx.scope(worker)),)
    flat = now.value - before <= FLAT
    seen = ctx.saw("kv_cache_usage", worker, now, before, basis="history", ratio=MODERATE, group="kv")
    return ([seen], [], ()) if flat else ([], [seen], ())


def _finding(ctx: Context, worker: str, slope: float, now_bytes: float) -> Finding:
    grown = ctx.saw("host_memory_bytes.rate", worker, slope, GROWTH, basis="history", ratio=STRONG, group="growth")
    for_, against, missing = _kv(ctx, worker)
    return Finding(
        status=Status.FIRED,
        cause="host-mem-leak",
        scopes=(ctx.scope(worker),),
        for_=(grown, *for_),
        against=tuple(against),
        missing=missing,
        next=(
            f"{worker} holds {now_bytes / 1e9:.1f} GB and gains {slope * 3600 / 1e9:.0f} GB an hour: compare with the "
            "memory limit of its container",
            "bound the transport's registration cache (UCX_RCACHE_MAX_UNRELEASED=1024) or its memory hooks "
            "(UCX_MEM_MMAP_HOOK_MODE=none)",
            "restart it at a quiet moment, before the kernel does",
        ),
        runbooks=("restart-worker",),
        do_not=(DoNot(action="evict-kv", why="KV in use did not grow; freeing it gives the host nothing back"),),
    )
