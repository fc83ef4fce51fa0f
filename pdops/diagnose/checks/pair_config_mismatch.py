"""Prefill and decode are set up differently in something that must match."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.mismatch import Difference, compare, scopes
from pdops.diagnose.options import LENGTH, TENSOR_PARALLEL, Effect
from pdops.model.cluster import Pair, Role
from pdops.model.frame import EventKind, ProbeKind
from pdops.model.report import DoNot, Evidence, Scope, Symptom

META = CheckMeta(
    id="pair/config-mismatch",
    title="Prefill and decode differ in something that must match",
    causes=("config-asymmetry", "version-skew", "hash-mismatch", "transport-config"),
    needs=(
        "kv_transfer_failures",
        "kv_handshake_failures",
        "kv_transfer_bytes",
        "queue_depth_deferred",
        "external_cache_queries",
        "external_cache_hits",
    ),
    tier=Tier.PAIR,
    explains=(
        "silent-corruption",
        "handshake-address",
        "transport-error",
        "no-timeout-hang",
        "silent-local-prefill",
        "kv-strand-prefill",
        "kv-lease-expiry",
        "backpressure-to-prefill",
        "prefill-undersized",
        "decode-undersized",
        "prefix-cache-collapse",
    ),
    no_alert="configuration is no metric; it is compared when it is read",
)

_MOST = 8


def check(ctx: Context) -> Iterator[Finding]:
    """Compare every option that must match over all prefill and decode workers."""
    if not ctx.cluster.of_role(Role.PREFILL) or not ctx.cluster.of_role(Role.DECODE):
        return
    found = compare(ctx)
    if found.silent:
        names = ", ".join(found.silent[:4]) + (f" and {len(found.silent) - 4} more" if len(found.silent) > 4 else "")
        fix = "give facts in the case, or let pdops read the engine's metrics page and version"
        yield not_known("config-asymmetry", "facts", f"no configuration of {names} is known", fix)
    for option, why in found.unclear:
        yield not_known(option.cause, option.name, why, "give the value the engine resolved it to")
    causes = sorted({cause for d in found.apart for cause in d.option.causes})
    for cause in causes:
        yield _finding(ctx, cause, [d for d in found.apart if cause in d.option.causes])
    for cause, n in sorted(found.agreed.items()):
        if cause not in causes:
            yield clear(cause, f"{n} option{'s' if n > 1 else ''} that must match agree")


def _finding(ctx: Context, cause: str, ours: list[Difference]) -> Finding:
    pairs = frozenset(p for d in ours for p in d.pairs)
    effects = {d.option.effect for d in ours}
    for_ = [_seen(d, d.ratio if d.option.cause == cause else MODERATE) for d in ours]
    against: tuple[Weighed, ...] = ()
    if Effect.MISSED in effects:
        for_ += _never_hits(ctx)
    else:
        for_ += _broken(ctx, pairs) + _wrong(ctx)
        if cause == "version-skew":
            for_ += _rollout(ctx)
        if effects == {Effect.REFUSED}:
            against = _flows(ctx, pairs)
    wrong = Effect.WRONG in effects
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=scopes(ctx, pairs),
        for_=tuple(for_),
        against=against,
        symptoms=(Symptom.WRONG_ANSWERS,) if wrong and any(w.group == "wrong" for w in for_) else (),
        next=(
            *(f"set {d.option.name} the same on both sides: {d.sample}" for d in ours[:3]),
            "roll prefill and decode as matched sets, and let the router pair only workers of one set",
        ),
        runbooks=("wrong-answer-quarantine",) if wrong else ("prefix-cache-fallback",) if _missed(effects) else (),
        do_not=(
            DoNot(action="scale-out-prefill", why="workers with the same difference do not pair any better"),
            DoNot(action="scale-out-decode", why="workers with the same difference do not pair any better"),
        ),
    )


def _missed(effects: set[Effect]) -> bool:
    return effects == {Effect.MISSED}


def _seen(difference: Difference, ratio: float) -> Weighed:
    pairs = sorted(difference.pairs)
    scope = Scope("pair", str(pairs[0])) if len(pairs) == 1 else None
    evidence = Evidence(
        signal=difference.option.name,
        scope=scope,
        observed=difference.sample + (f" ({len(pairs)} pairs)" if len(pairs) > 1 else ""),
        expected="at least as long on decode" if difference.option is LENGTH else "the same",
        basis="config",
    )
    # One vote for all options: a rollout changes many of them at once.
    group = "parallel" if difference.option is TENSOR_PARALLEL else "differs"
    return Weighed(evidence, ratio, group)


def _ends(ctx: Context, pairs: frozenset[Pair]) -> tuple[str, ...]:
    """Return the scopes that tell of transfers of these pairs: the pairs, else their decode workers, else the pools."""
    own = [p.key for p in ctx.pairs if p in pairs]
    receivers = {p.dst for p in pairs}
    return tuple(own) or tuple(u for u in ctx.units(Role.DECODE) if u in receivers) or ctx.units(Role.DECODE)


def _broken(ctx: Context, pairs: frozenset[Pair]) -> list[Weighed]:
    found = []
    for key in _ends(ctx, pairs):
        for signal in ("kv_handshake_failures", "kv_transfer_failures"):
            failed = ctx.ask.increase(key, signal)
            if failed.above(0):
                found.append(ctx.saw(signal, key, failed, 0.0, basis="physics", ratio=MODERATE, group="broken"))
        moved, waiting = ctx.ask.increase(key, "kv_transfer_bytes"), ctx.ask.level(key, "queue_depth_deferred")
        if moved.value == 0 and waiting.above(0):
            found.append(
                ctx.saw("queue_depth_deferred", key, waiting, 0.0, basis="physics", ratio=MODERATE, group="broken")
            )
    return found[:_MOST]


def _flows(ctx: Context, pairs: frozenset[Pair]) -> tuple[Weighed, ...]:
    found = []
    for key in _ends(ctx, pairs):
        moved, failed = ctx.ask.increase(key, "kv_transfer_bytes"), ctx.ask.increase(key, "kv_transfer_failures")
        if not moved.above(0) or failed.above(0):
            return ()
        found.append(ctx.saw("kv_transfer_bytes", key, moved, 0.0, basis="physics", ratio=MODERATE, group="flows"))
    return tuple(found[:_MOST])


def _wrong(ctx: Context) -> list[Weighed]:
    return [
        Weighed(
            Evidence(
                signal="canary",
                scope=ctx.scope(probe.pair) if probe.pair else None,
                observed=probe.detail or "another answer",
                expected="prefill's own answer",
                basis="probe",
            ),
            MODERATE,
            "wrong",
        )
        for probe in sorted(ctx.view.probes, key=lambda p: (p.pair or "", p.t_s, p.detail or ""))
        if probe.kind is ProbeKind.CANARY and probe.ok is False
    ][:_MOST]


def _rollout(ctx: Context) -> list[Weighed]:
    events = ctx.events((EventKind.ROLLOUT, EventKind.CONFIG_CHANGE), within_s=ctx.view.at_s - ctx.view.start_s)
    return [
        ctx.saw(
            "rollout",
            e.worker or (f"pool:{e.pool}" if e.pool else None),
            f"{e.kind} {ctx.view.at_s - e.t_s:.0f} s ago" + (f" to {e.revision}" if e.revision else ""),
            None,
            basis="log",
            ratio=MODERATE,
            group="rollout",
        )
        for e in events[:2]
    ]


def _never_hits(ctx: Context) -> list[Weighed]:
    found = []
    for key in (*ctx.units(Role.DECODE), *ctx.units(Role.PREFILL), *ctx.units(Role.KVSTORE)):
        asked, hit = ctx.ask.increase(key, "external_cache_queries"), ctx.ask.increase(key, "external_cache_hits")
        if asked.above(0) and hit.value == 0:
            found.append(ctx.saw("external_cache_hits", key, hit, None, basis="physics", ratio=STRONG, group="hits"))
    return found[:_MOST]
