"""Alert rules with fixed thresholds, the most specific first: what a cluster has that is watched with care but no tool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pdops.bench.outcome import SILENT, Said
from pdops.catalog.load import catalog
from pdops.diagnose.context import Context
from pdops.model.cluster import CLIENT, Role, pool_key
from pdops.model.report import Scope
from pdops.model.series import Reading
from pdops.model.view import Presence

QUEUE = 10.0
KV_USAGE = 0.95
TRANSFER_S = 0.5
HIT_FALL = 0.5
ERRORS = 0.01
"""Usual values: ten waiting requests, KV 95 % full, a transfer mean of half a second, half the hit ratio gone, 1 % errors."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One that fires: its cause and its place."""

    cause: str
    scope: Scope


def said(ctx: Context) -> Said:
    """Return what fires, in the order of the rules."""
    fired: dict[str, list[Scope]] = {}
    for alert in _fired(ctx):
        fired.setdefault(alert.cause, []).append(alert.scope)
    if not fired:
        return SILENT
    causes = tuple(fired)[:5]
    return Said(
        alarm=True,
        verdict="fault",
        causes=causes,
        confidences=tuple(1.0 / len(causes) for _ in causes),
        faults=tuple(1 for _ in causes),
        layer=catalog().causes[causes[0]].layer.value,
        scopes=tuple(tuple(dict.fromkeys(fired[c])) for c in causes),
    )


def _fired(ctx: Context) -> Iterator[Alert]:
    ask = ctx.ask
    for role, cause in ((Role.PREFILL, "prefill-down"), (Role.DECODE, "decode-down"), (Role.KVSTORE, "kvstore-down")):
        for worker in ctx.cluster.of_role(role):
            if ctx.health(worker.id).presence is Presence.DOWN:
                yield Alert(cause, Scope("worker", worker.id))
    yield from _workers(ctx, Role.PREFILL, "kv-lease-expiry", lambda w: ask.increase(w, "kv_transfer_expired").above(0))
    yield from _workers(ctx, Role.DECODE, "transport-error", lambda w: ask.increase(w, "kv_transfer_failures").above(0))
    yield from _workers(
        ctx, Role.DECODE, "transport-slow", lambda w: ask.mean(w, "kv_transfer_seconds").above(TRANSFER_S)
    )
    yield from _workers(ctx, Role.PREFILL, "prefill-kv-oom", lambda w: ask.increase(w, "preemptions").above(0))
    yield from _workers(
        ctx,
        Role.DECODE,
        "decode-kv-exhaustion",
        lambda w: ask.increase(w, "preemptions").above(0) or ask.level(w, "kv_cache_usage").above(KV_USAGE),
    )
    for pool in ctx.pools(Role.PREFILL):
        now, before = hit_ratio(ctx, pool)
        if before is not None and now.below(before * HIT_FALL):
            yield Alert("prefix-cache-collapse", ctx.scope(pool))
    yield from _workers(ctx, Role.PREFILL, "prefill-undersized", lambda w: ask.level(w, "queue_depth").above(QUEUE))
    yield from _workers(ctx, Role.DECODE, "decode-undersized", lambda w: ask.level(w, "queue_depth").above(QUEUE))
    slo = ctx.slo
    if slo.itl_s is not None and ctx.itl().above(slo.itl_s):
        yield Alert("decode-undersized", _pool(ctx, Role.DECODE))
    if slo.ttft_s is not None and ctx.ttft().above(slo.ttft_s):
        yield Alert("prefill-undersized", _pool(ctx, Role.PREFILL))
    if ctx.error_share().above(ERRORS):
        yield Alert("transport-error", Scope("global", CLIENT))


def hit_ratio(ctx: Context, pool: str) -> tuple[Reading, float | None]:
    """Return the prefix hit ratio of a pool now, and before."""
    now = ctx.ask.ratio(pool, "prefix_cache_hits", "prefix_cache_queries")
    if ctx.view.base is None:
        return now, None
    return now, ctx.ask.ratio(pool, "prefix_cache_hits", "prefix_cache_queries", ctx.view.base).value


def _workers(ctx: Context, role: Role, cause: str, fires: Callable[[str], bool]) -> Iterator[Alert]:
    workers = ctx.cluster.of_role(role)
    hit = [w for w in workers if fires(w.id)]
    if len(hit) > 1 and len(hit) * 2 >= len(workers):
        yield Alert(cause, _pool(ctx, role))
        return
    for worker in hit:
        yield Alert(cause, Scope("worker", worker.id))


def _pool(ctx: Context, role: Role) -> Scope:
    return ctx.scope(next(iter(ctx.pools(role)), pool_key(role.value)))
