"""No KV byte ever came over a pair although requests ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pdops.diagnose.backends import efa_without_libfabric
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.loglines import Match, evidence, matches, naming
from pdops.diagnose.mismatch import compare
from pdops.model.cluster import CLIENT, PAIR_PREFIX, Pair, Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom

META = CheckMeta(
    id="pair/never-connected",
    title="No KV ever moved between these workers",
    causes=("handshake-address", "version-skew", "transport-config"),
    needs=(
        "kv_transfer_bytes",
        "queue_depth_deferred",
        "kv_handshake_failures",
        "kv_transfer_failures",
        "request_failure",
        "process_start_seconds",
    ),
    tier=Tier.PAIR,
    explains=(
        "silent-local-prefill",
        "peer-restart-stale-state",
        "transport-error",
        "transport-slow",
        "network-partition",
        "no-timeout-hang",
        "kv-strand-prefill",
        "kv-lease-expiry",
        "backpressure-to-prefill",
        "prefill-undersized",
        "router-imbalance",
        "decode-undersized",
        "workload-shift",
        "traffic-burst",
        "cold-start",
    ),
    alert="PDKvNeverConnected",
    panel="kv-transfer/bytes",
)

ASKING = 0.5
"""Requests that wait for KV, on average, above which somebody asks for it."""
YOUNG_S = 120.0
"""After a start this recent nothing may have been moved yet: first waves of 40 to 60 s were reported in public."""
SET_UP = ("rdma-link-config", "mem-registration")
"""Causes that come after the address was found, and leave a line of their own."""
_CAP = 0.85
"""Most without a failed handshake or a log line: versions, layout or transport may be the reason as well."""
_REFUSED_CAP = 0.6
"""Most for versions that do not fit while nobody tells them: an address is the commoner reason in public incidents."""


def check(ctx: Context) -> Iterator[Finding]:
    """Look for pairs, else decode workers, that never received KV, and for requests that need it there."""
    told = ctx.pairs_with("kv_transfer_bytes")
    keys = tuple(p.key for p in told if ctx.ask.has(p.key, "kv_transfer_bytes")) or ctx.units(Role.DECODE)
    lines = [m for m in matches(ctx) if m.cause == "handshake-address"]
    into: dict[str, list[str]] = {}
    for pair in ctx.pairs_with("kv_handshake_failures", "kv_transfer_failures"):
        into.setdefault(pair.dst, []).append(pair.key)
    met = 0
    for key in keys:
        asked = _asked(ctx, key, (key, *into.get(key, ())), lines)
        ever = _ever_moved(ctx, key)
        if ever is None:
            if asked and any(w.group == "handshake" for w in asked):
                why = "whether KV ever moved is not told"
                yield not_known("handshake-address", "kv_transfer_bytes", why, scope=ctx.scope(key))
            elif asked:
                yield from _misfit(ctx, _finding(ctx, key, asked, failing=False, met=False))
            continue
        if ever > 0:
            met += 1
        elif asked:
            yield from _findings(ctx, key, asked)
    if met:
        yield clear("handshake-address", f"KV has moved to {met} of {len(keys)} places")


def _ever_moved(ctx: Context, key: str) -> float | None:
    """Return all bytes that ever moved: the counter itself, and its growth before a restart; None when nobody tells."""
    total = ctx.ask.last(key, "kv_transfer_bytes")
    if total.value:
        return total.value
    grown = [ctx.ask.increase(key, "kv_transfer_bytes", w).value for w in (ctx.view.now, ctx.view.base) if w]
    known = [g for g in grown if g is not None]
    return sum(known) if known else total.value


def _asked(ctx: Context, key: str, places: tuple[str, ...], lines: list[Match]) -> list[Weighed]:
    """Return what shows that KV is asked for and does not come, at a key or at the pairs that end there."""
    found = []
    for signal, group, ratio in (
        ("kv_handshake_failures", "handshake", STRONG),
        ("kv_transfer_failures", "failures", MODERATE),
    ):
        for place in places:
            failed = ctx.ask.increase(place, signal)
            if failed.above(0):
                found.append(ctx.saw(signal, place, failed, 0.0, basis="physics", ratio=ratio, group=group))
    deferred = ctx.ask.level(key, "queue_depth_deferred")
    if deferred.above(ASKING):
        found.append(
            ctx.saw("queue_depth_deferred", key, deferred, 0.0, basis="physics", ratio=MODERATE, group="deferred")
        )
    near = _workers(ctx, key)
    found += [evidence(ctx, m) for m in lines if m.worker in near]
    return found


def _workers(ctx: Context, key: str) -> frozenset[str]:
    if key.startswith(PAIR_PREFIX):
        pair = Pair.parse(key)
        return frozenset({pair.src, pair.dst})
    if ctx.cluster.get(key) is not None:
        return frozenset({key})
    return frozenset(w.id for w in ctx.cluster.of_role(Role.DECODE))


def _young(ctx: Context, key: str) -> tuple[Weighed, ...]:
    kinds = (EventKind.RESTART, EventKind.SCALE_OUT, EventKind.ROLLOUT)
    found = []
    for worker in sorted(_workers(ctx, key)):
        for event in ctx.events(kinds, YOUNG_S, worker)[:1]:
            seen = f"{event.kind} {ctx.view.at_s - event.t_s:.0f} s ago"
            found.append(ctx.saw("process_start_seconds", worker, seen, None, basis="log", ratio=STRONG, group="young"))
    return tuple(found[:4])


def _otherwise(ctx: Context) -> tuple[Weighed, ...]:
    """Return lines that tell why no KV moves although the peers found each other."""
    named = naming(matches(ctx), SET_UP)
    return tuple(replace(evidence(ctx, m), ratio=STRONG) for m in named)


def _findings(ctx: Context, key: str, asked: list[Weighed]) -> Iterator[Finding]:
    """Yield the address, and beside it what else keeps a pair from ever moving KV, as far as facts leave it open."""
    never = ctx.saw("kv_transfer_bytes", key, 0.0, None, basis="physics", ratio=STRONG, group="never")
    for_ = [never, *asked]
    failing = ctx.ask.increase(CLIENT, "request_failure")
    if failing.above(0):
        for_.append(ctx.saw("request_failure", CLIENT, failing, 0.0, basis="physics", ratio=MODERATE, group="requests"))
    met = any(w.group == "handshake" for w in asked)
    address = _finding(ctx, key, for_, failing.above(0), met)
    yield address
    if met:
        return
    misfits = tuple(_misfit(ctx, address))
    yield from misfits
    if not misfits and not compare(ctx).agreed.get("version-skew"):
        steps = (
            "compare the versions of engine, connector and router or sidecar on both sides with a set that is known to fit",
        )
        yield replace(address, cause="version-skew", next=steps, cap=_REFUSED_CAP)


def _misfit(ctx: Context, address: Finding) -> Iterator[Finding]:
    """Yield the transport as the reason where its backend does not suit the devices of the host."""
    odd = efa_without_libfabric(ctx)
    if odd:
        seen = [
            ctx.saw("backends", w, raw, "LIBFABRIC", basis="config", ratio=STRONG, group="fabric") for w, raw in odd
        ]
        steps = (
            'set "backends": ["LIBFABRIC"] in the connector\'s extra configuration on both sides: UCX reaches EFA devices over '
            "TCP only",
        )
        yield replace(address, cause="transport-config", for_=(*address.for_, *seen), next=steps, cap=0.97)


def _finding(ctx: Context, key: str, for_: list[Weighed], failing: bool, met: bool) -> Finding:
    return Finding(
        status=Status.FIRED,
        cause="handshake-address",
        scopes=(ctx.scope(key),),
        for_=tuple(for_),
        against=(*_young(ctx, key), *_otherwise(ctx)),
        symptoms=(Symptom.ERRORS,) if failing else (),
        next=(
            "open a TCP connection from decode to the side-channel address each prefill worker advertises, not the one "
            "it was told",
            "check that this address is neither localhost nor 0.0.0.0, and that its port is unique for each rank",
            "compare engine and connector versions of both sides: a refused handshake looks the same",
        ),
        runbooks=("kv-transfer-relief",),
        do_not=(
            DoNot(action="scale-out-prefill", why="no KV leaves prefill; more workers advertise the same address"),
            DoNot(action="scale-out-decode", why="decode waits for KV that cannot reach it"),
        ),
        cap=0.97 if met else _CAP,
    )
