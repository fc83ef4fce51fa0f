"""Clients suffer and the engines do not: the fault lies in front of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.symptoms import ERROR_SHARE, Picture, picture
from pdops.model.cluster import CLIENT, Role
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Reading, Window, unknown

META = CheckMeta(
    id="router/only",
    title="Clients wait or fail while the engines are well: look at the router",
    causes=("router-fault", "keepalive-mismatch"),
    needs=(
        "ttft_seconds",
        "request_failure",
        "request_success",
        "kv_transfer_failures",
        "kv_transfer_expired",
    ),
    tier=Tier.STAGE,
    alert="PDRouterOnly",
    panel="routing/client-vs-engine",
)

TWICE = 2.0
"""Client TTFT over the sum of the engines' own legs above which most of it is spent in front of them."""
LOW = 0.05
"""Up to this share failures are the thin stream that reused idle connections give (from public incidents); a router that is
broken fails more."""
UNSEEN_CAP = 0.85
_RESETS = ("connection reset by peer", "serverdisconnected", "broken pipe", "econnreset")
_SERVER_KEEPS = ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "SGLANG_TIMEOUT_KEEP_ALIVE", "timeout_keep_alive")
_CLIENT_KEEPS = ("keepalive_timeout", "keepalive_timeout_s", "pool_idle_timeout", "pool_idle_timeout_s")

_AWAY = (EventKind.DOWN, EventKind.RESTART, EventKind.ROLLOUT)
_EARLIER_S = 30.0
"""Requests sent to a worker that went away fail up to a router's timeout later."""

_DO_NOT = (
    DoNot(action="scale-out-prefill", why="the engines serve within their promise; the time is lost before them"),
    DoNot(action="scale-out-decode", why="the engines serve within their promise; the time is lost before them"),
    DoNot(action="disable-prefix-cache", why="transfers and store are clean"),
)


def check(ctx: Context) -> Iterator[Finding]:
    """Compare what clients see with what the engines say of themselves (from public incidents)."""
    seen = picture(ctx)
    errors = _client_errors(ctx)
    if errors.above(ERROR_SHARE):
        yield from _failing(ctx, seen, errors)
    elif seen.ttft_high:
        yield from _slow(ctx)


def _client_errors(ctx: Context) -> Reading:
    bad, good = ctx.ask.increase(CLIENT, "request_failure"), ctx.ask.increase(CLIENT, "request_success")
    if bad.value is None:
        return bad
    total = bad.value + (good.value or 0.0)
    return Reading(bad.value / total, n=int(total)) if total > 0 else unknown("no request finished")


def _failing(ctx: Context, seen: Picture, errors: Reading) -> Iterator[Finding]:
    away = _was_away(ctx)
    if away is not None:
        yield clear("router-fault", f"{away} was away within the judged window, which explains errors the engines miss")
        return
    clean = _clean(ctx)
    resets = _resets(ctx)
    keeps, longer = _keep_alive(ctx)
    if clean is None and not (resets or keeps):
        why = "nobody tells whether the engines count failures of their own"
        yield not_known("router-fault", "request_failure", why, "scrape the engines' own pages")
        return
    if clean == ():
        yield clear("router-fault", "the engines count failures of their own")
        return
    thin = not errors.above(LOW) and not seen.ttft_high and not seen.itl_high and seen.ttft.known
    share = ctx.saw("request_failure", CLIENT, errors, LOW, basis="physics", ratio=WEAK, group="share")
    if thin or resets or keeps:
        yield Finding(
            status=Status.FIRED,
            cause="keepalive-mismatch",
            for_=(*(clean or ()), *((share,) if thin else ()), *resets, *keeps),
            against=longer,
            symptoms=(Symptom.ERRORS,),
            next=(
                "compare the server's keep-alive with how long the router's pool keeps idle connections; the server's must be longer",
                "see whether failures follow pauses of more than five seconds on one connection",
            ),
            runbooks=("routing-rebalance",),
            do_not=(*_DO_NOT, DoNot(action="shorten-timeout", why="a shorter timeout closes more connections in use")),
            cap=0.97 if resets or keeps else UNSEEN_CAP,
        )
    if clean is None:
        return
    yield Finding(
        status=Status.FIRED,
        cause="router-fault",
        scopes=tuple(ctx.scope(w.id) for w in ctx.cluster.of_role(Role.ROUTER)),
        for_=(*clean, *(() if thin else (share,))),
        against=(*((share,) if thin else ()), *resets, *keeps, *_behind(ctx, seen)),
        symptoms=(Symptom.ERRORS,),
        next=("read the router's log: which status, and did the request reach an engine at all?",),
        runbooks=("routing-rebalance",),
        do_not=_DO_NOT,
    )


def _was_away(ctx: Context) -> str | None:
    """Return an engine that was down, restarted or replaced since just before the window: it counts no failure meanwhile."""
    for role in (Role.PREFILL, Role.DECODE):
        for worker in ctx.cluster.of_role(role):
            gone = ctx.is_down(worker.id) or ctx.health(worker.id).why is not None
            if gone or ctx.events(_AWAY, ctx.view.now.span_s + _EARLIER_S, worker.id):
                return worker.id
    return None


def _clean(ctx: Context) -> tuple[Weighed, ...] | None:
    """Return that no engine counts a failure; empty when one does, None when prefill or decode tell nothing."""
    found = []
    for role in (Role.PREFILL, Role.DECODE):
        known = False
        for unit in ctx.units(role):
            for signal in ("request_failure", "kv_transfer_failures", "kv_transfer_expired"):
                grown = ctx.ask.increase(unit, signal)
                if grown.above(0):
                    return ()
                if grown.known and signal == "request_failure":
                    known = True
                    found.append(ctx.saw(signal, unit, grown, 0.0, basis="physics", ratio=STRONG, group="engines"))
        if not known:
            return None
    return tuple(found)


def _resets(ctx: Context) -> tuple[Weighed, ...]:
    since = ctx.view.now.start_s
    for line in ctx.view.logs:
        text = line.line.lower()
        if line.t_s >= since and any(word in text for word in _RESETS):
            return (ctx.saw("log", line.worker, line.line[:120], None, basis="log", ratio=MODERATE, group="resets"),)
    return ()


def _keep_alive(ctx: Context) -> tuple[tuple[Weighed, ...], tuple[Weighed, ...]]:
    """Return configured keep-alive times that do not fit, and those that do."""
    servers = {w: v for w, facts in sorted(ctx.view.facts.items()) if (v := _number(facts, _SERVER_KEEPS)) is not None}
    pools = {w: v for w, facts in sorted(ctx.view.facts.items()) if (v := _number(facts, _CLIENT_KEEPS)) is not None}
    if not servers or not pools:
        return (), ()
    server, client = min(servers, key=lambda w: servers[w]), max(pools, key=lambda w: pools[w])
    wrong = servers[server] <= pools[client]
    seen = ctx.saw(
        "keep-alive",
        server,
        f"{servers[server]:g} s",
        f"longer than {pools[client]:g} s ({client})",
        basis="config",
        ratio=STRONG,
        group="keep-alive",
    )
    return ((seen,), ()) if wrong else ((), (seen,))


def _number(facts: Mapping[str, str], names: tuple[str, ...]) -> float | None:
    for name in names:
        try:
            return float(facts[name])
        except (KeyError, ValueError):
            continue
    return None


def _behind(ctx: Context, seen: Picture) -> tuple[Weighed, ...]:
    """Return that those who do not fail wait in the engines: who fails may have been turned away or given up there."""
    legs, client = _legs(ctx, None), _quantile(ctx, CLIENT, None)
    if not seen.ttft_high or legs.value is None or not client.below(TWICE * legs.value):
        return ()
    return (ctx.saw("ttft_seconds", CLIENT, client, legs.value, basis="physics", ratio=STRONG, group="legs"),)


def _slow(ctx: Context) -> Iterator[Finding]:
    legs = _legs(ctx, None)
    client = _quantile(ctx, CLIENT, None)
    if legs.value is None or client.value is None:
        return
    if not client.above(TWICE * legs.value):
        yield clear("router-fault", f"the engines' own legs make {legs.value:.3g} of {client.value:.3g} s")
        return
    for_ = [ctx.saw("ttft_seconds", CLIENT, client, legs.value, basis="physics", ratio=STRONG, group="legs")]
    before = _legs(ctx, ctx.view.base).value if ctx.view.base is not None else None
    if before is not None and legs.below(1.2 * before):
        for_.append(ctx.saw("ttft_seconds", None, legs, before, basis="history", ratio=MODERATE, group="steady"))
    yield Finding(
        status=Status.FIRED,
        cause="router-fault",
        scopes=tuple(ctx.scope(w.id) for w in ctx.cluster.of_role(Role.ROUTER)),
        for_=tuple(for_),
        symptoms=(Symptom.TTFT,),
        next=(
            "look at the router's own queue, its admission limit and its CPU: most of TTFT passes before an engine sees the request",
            "compare the time of arrival at the router and at prefill for one request",
        ),
        runbooks=("routing-rebalance",),
        do_not=_DO_NOT,
    )


def _legs(ctx: Context, window: Window | None) -> Reading:
    """Return the sum of the slowest prefill and decode TTFT; together they bound what the engines take from a request."""
    total = 0.0
    for role in (Role.PREFILL, Role.DECODE):
        known = [v for u in ctx.units(role) if (v := _quantile(ctx, u, window).value) is not None]
        if not known:
            return unknown(f"{role} does not tell its own TTFT")
        total += max(known)
    return Reading(total)


def _quantile(ctx: Context, scope: str, window: Window | None) -> Reading:
    for q in (ctx.slo.percentile, 0.99, 0.95):
        answer = ctx.ask.quantile(scope, "ttft_seconds", q, window)
        if answer.known:
            return answer
    return unknown("no quantile of TTFT")
