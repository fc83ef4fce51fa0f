"""The triage matrix of five symptoms, taken at its word: first the symptom, then its questions in their order.

Where the matrix gives a number it is used; where it says that something "spikes" or "falls off a cliff", twice or half of
its own history is meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from pdops.bench.baselines.thresholds import hit_ratio
from pdops.bench.outcome import SILENT, Said
from pdops.catalog.load import catalog
from pdops.diagnose.context import Context
from pdops.model.cluster import Role
from pdops.model.frame import EventKind
from pdops.model.report import Scope
from pdops.model.view import Presence
from pdops.stats.robust import skew

TTFT_P99_S = 5.0
TRANSFER_P99_S = 0.5
UTILISATION = 0.3
SPIKE = 2.0
CLIFF = 0.5
ERRORS = 0.01
SKEWED = 2.0
FULL = 0.95
JITTER = 5.0
"""P99 over P50 of ITL from which short and long outputs are said to share batches."""
FALLING = 0.95


def said(ctx: Context) -> Said:
    """Return the causes that the first symptom which applies leads to, in the order of its questions."""
    found = list(dict.fromkeys(_answers(ctx)))
    if not found:
        return SILENT
    causes = tuple(cause for cause, _ in found)
    return Said(
        alarm=True,
        verdict="fault",
        causes=causes,
        confidences=tuple(1.0 / len(causes) for _ in causes),
        faults=tuple(1 for _ in causes),
        layer=catalog().causes[causes[0]].layer.value,
        scopes=tuple((scope,) for _, scope in found),
    )


def _answers(ctx: Context) -> Iterator[tuple[str, Scope]]:
    prefill, decode = Scope("pool", "prefill"), Scope("pool", "decode")
    ttft, itl = _p99(ctx, "ttft_seconds") > TTFT_P99_S, _spiked(ctx, "itl_seconds")
    if ttft and not itl:
        yield from _prefill(ctx, prefill)
    elif itl and not ttft:
        yield from _decode(ctx, decode)
    elif ctx.error_share().above(ERRORS):
        yield from _transfer(ctx)
    elif _attainment_falls(ctx):
        yield from _ratio(ctx, prefill, decode)
    elif (place := _skewed(ctx)) is not None:
        yield "router-imbalance", place
        yield "health-check-misfire", place


def _prefill(ctx: Context, pool: Scope) -> Iterator[tuple[str, Scope]]:
    key = f"pool:{pool.id}"
    if ctx.ask.level(key, "queue_depth").above(0.0):
        yield "prefill-undersized", pool
    now, before = hit_ratio(ctx, key)
    if before is not None and now.below(before * CLIFF):
        yield "prefix-cache-collapse", pool
    for worker, _ in ctx.restarted(Role.PREFILL):
        yield "prefill-kv-oom", Scope("worker", worker.id)
    yield "prefill-undersized", pool


def _decode(ctx: Context, pool: Scope) -> Iterator[tuple[str, Scope]]:
    key = f"pool:{pool.id}"
    if ctx.ask.level(key, "kv_cache_usage").above(FULL):
        yield "decode-kv-exhaustion", pool
    if ctx.ask.level(key, "queue_depth").above(0.0):
        yield "decode-undersized", pool
    typical = ctx.ask.quantile("client", "itl_seconds", 0.5).value
    if typical and _p99(ctx, "itl_seconds") > JITTER * typical:
        yield "mixed-length-jitter", pool
    yield "decode-undersized", pool


def _transfer(ctx: Context) -> Iterator[tuple[str, Scope]]:
    everything = Scope("global", "all")
    if ctx.ask.quantile("pool:decode", "kv_transfer_seconds", 0.99).above(TRANSFER_P99_S):
        yield "network-degraded", everything
    for store in ctx.cluster.of_role(Role.KVSTORE):
        if ctx.health(store.id).presence is Presence.DOWN or ctx.ask.last(store.id, "kvstore_up").value == 0.0:
            yield "kvstore-down", Scope("worker", store.id)
    yield "transport-error", everything


def _ratio(ctx: Context, prefill: Scope, decode: Scope) -> Iterator[tuple[str, Scope]]:
    busy = ctx.ask.level("pool:prefill", "running_requests")
    if busy.below(UTILISATION * len(ctx.cluster.of_role(Role.PREFILL))):
        yield "ratio-wrong", prefill
    if ctx.ask.level("pool:decode", "kv_cache_usage").below(UTILISATION):
        yield "ratio-wrong", decode
    yield "ratio-wrong", Scope("global", "all")


def _p99(ctx: Context, signal: str) -> float:
    return ctx.ask.quantile("client", signal, 0.99).value or 0.0


def _spiked(ctx: Context, signal: str) -> bool:
    before = None if ctx.view.base is None else ctx.ask.quantile("client", signal, 0.99, ctx.view.base).value
    return before is not None and _p99(ctx, signal) > SPIKE * before


def _attainment_falls(ctx: Context) -> bool:
    now = ctx.ask.rate("client", "request_success").value
    before = ctx.before(lambda scope, window: ctx.ask.rate(scope, "request_success", window), "client")
    return now is not None and before is not None and now < FALLING * before


def _skewed(ctx: Context) -> Scope | None:
    for role in (Role.PREFILL, Role.DECODE):
        loads = {w.id: ctx.ask.level(w.id, "running_requests").value for w in ctx.cluster.of_role(role)}
        known = {w: v for w, v in loads.items() if v is not None}
        if len(known) > 1 and (skew(tuple(known.values())) or 0.0) > SKEWED and not _starting(ctx):
            return Scope("worker", max(known, key=lambda w: known[w]))
    return None


def _starting(ctx: Context) -> bool:
    return bool(ctx.events((EventKind.RESTART, EventKind.SCALE_OUT), within_s=120.0))
