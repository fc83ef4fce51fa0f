"""The router leaves out workers that would serve."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, WEAK, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.rollout import ROLLS_S, came_s, silences
from pdops.diagnose.symptoms import ERROR_SHARE
from pdops.model.cluster import CLIENT, Pair, Role
from pdops.model.frame import EventKind, ProbeKind
from pdops.model.report import DoNot, Missing, Symptom
from pdops.model.series import Reading, Series
from pdops.model.view import Presence

META = CheckMeta(
    id="router/excludes-healthy",
    title="The router leaves out workers that are well",
    causes=("breaker-open", "health-check-misfire", "sticky-blacklist"),
    needs=(
        "router_breaker_state",
        "worker_health",
        "running_requests",
        "worker_selection",
        "kv_transfer_bytes",
        "kv_transfer_failures",
        "process_start_seconds",
        "request_failure",
    ),
    tier=Tier.PAIR,
    explains=(
        "router-imbalance",
        "prefix-hotspot",
        "prefill-undersized",
        "decode-undersized",
        "traffic-burst",
        "ratio-wrong",
        "router-fault",
        "keepalive-mismatch",
        "timeout-too-short",
        "silent-local-prefill",
    ),
    alert="PDRouterExcludesHealthy",
    panel="routing/excluded",
)

CLOSED = 0.5
"""`router_breaker_state` is 0 when closed, 1 open, 2 half-open; `worker_health` is 1 when the router trusts a worker."""
FLAPS = 3
"""Times within the view (15 min) that a router calls a worker dead and takes it back: one outage makes one, a probe that one
slow answer fails makes many."""
LIKELY = 0.85
"""Most that a pair which stopped moving KV carries: a cut link between the two looks the same until it is tested."""
PROBED_S = 60.0
"""A router asks for a worker's health at least this often (longest default of the catalog's routers): what was just begun
anew, or away a moment ago, it may not have asked yet."""
LASTS_S = 15.0
"""Time that a worker which answers must be left out for to be left out wrongly: what the two see is never of one instant."""

_DO_NOT = (
    DoNot(action="restart-victim", why="the worker is well; a restart only empties its cache"),
    DoNot(action="disable-prefix-cache", why="store and transfers are not the fault; it would only add prefill work"),
    DoNot(action="raise-retries", why="each failed try counts against the next worker's breaker"),
)


def check(ctx: Context) -> Iterator[Finding]:
    """Set what the router thinks of a worker beside what the worker says of itself."""
    breakers: list[str] = []
    unhealthy: list[str] = []
    asked = False
    for role in (Role.PREFILL, Role.DECODE, Role.COLOCATED):
        for worker in ctx.cluster.of_role(role):
            state, health = ctx.ask.last(worker.id, "router_breaker_state"), ctx.ask.last(worker.id, "worker_health")
            asked = asked or state.known or health.known
            if _is_away(ctx, worker.id):
                continue
            if state.above(CLOSED):
                breakers.append(worker.id)
            elif (health.below(CLOSED) and _lasts(ctx, worker.id)) or _falls(ctx, worker.id) >= FLAPS:
                unhealthy.append(worker.id)
    if asked and not breakers and not unhealthy:
        yield clear("breaker-open", "the router leaves out no worker that answers")
    if breakers:
        yield _excluded(
            ctx,
            "breaker-open",
            "router_breaker_state",
            breakers,
            (
                "look at what opened the breaker: client errors (4xx) must not count, only 5xx and timeouts",
                "reset the breaker, or make its recovery shorter than the clients' retries",
            ),
        )
    if unhealthy:
        yield _excluded(
            ctx,
            "health-check-misfire",
            "worker_health",
            unhealthy,
            (
                "send the router's own health probe by hand and time it while the worker is busy",
                "let a worker fail several probes or scrapes in a row, not one, before it is left out",
            ),
        )
    yield from _blacklisted(ctx)


def _is_away(ctx: Context, worker: str) -> bool:
    """Whether the router may be right: the worker does not answer now, a moment ago did not, or was just begun."""
    health = ctx.health(worker)
    gone = health.presence in (Presence.DOWN, Presence.NEVER, Presence.STALE) or health.why is not None
    began_s = came_s(ctx, worker)
    return gone or ctx.is_down(worker) or (began_s is not None and ctx.view.at_s - began_s < PROBED_S)


def _lasts(ctx: Context, worker: str) -> bool:
    """Whether the router has called a worker dead for some while."""
    for _, series in ctx.ask.parts(worker, "worker_health"):
        if isinstance(series, Series):
            lately = series.v[series.t >= ctx.view.at_s - LASTS_S]
            if len(lately) and (lately >= CLOSED).any():
                return False
    return True


def _excluded(ctx: Context, cause: str, signal: str, workers: list[str], steps: tuple[str, ...]) -> Finding:
    wanted = 0.0 if signal == "router_breaker_state" else 1.0
    for_ = [
        ctx.saw(signal, w, _seen(ctx, w, signal), wanted, basis="physics", ratio=MODERATE, group="excluded")
        for w in workers
    ]
    missing: list[Missing] = []
    against: list[Weighed] = []
    for worker in workers:
        well = _is_well(ctx, worker)
        for_ += well
        if not well:
            why = "nobody but the router tells whether the worker answers"
            missing.append(Missing(signal="running_requests", why=why, fix="scrape it", scope=ctx.scope(worker)))
        against += _is_ill(ctx, worker)
    errors = ctx.error_share()
    failing = errors.above(ERROR_SHARE)
    if failing:
        for_.append(
            ctx.saw("request_failure", CLIENT, errors, ERROR_SHARE, basis="physics", ratio=MODERATE, group="failures")
        )
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=tuple(ctx.scope(w) for w in workers),
        for_=tuple(for_),
        against=tuple(against),
        missing=tuple(missing),
        symptoms=(Symptom.ERRORS,) if failing else (),
        next=steps,
        runbooks=("routing-rebalance",),
        do_not=_DO_NOT,
    )


def _seen(ctx: Context, worker: str, signal: str) -> Reading | str:
    falls = _falls(ctx, worker) if signal == "worker_health" else 0
    return f"left out {falls} times" if falls >= FLAPS else ctx.ask.last(worker, signal)


def _falls(ctx: Context, worker: str) -> int:
    """Return how many times the router called a worker dead that did not end or hang, over all that the view knows."""
    found = 0
    for _, series in ctx.ask.parts(worker, "worker_health"):
        if isinstance(series, Series):
            well = series.v > CLOSED
            found += int((well[:-1] & ~well[1:]).sum())
    ended = len(ctx.events((EventKind.RESTART, EventKind.ROLLOUT), ctx.view.at_s - ctx.view.start_s, worker))
    return found - max(ended, len(silences(ctx, worker)))


def _is_well(ctx: Context, worker: str) -> list[Weighed]:
    found = []
    running = ctx.ask.level(worker, "running_requests")
    if running.known:
        found.append(ctx.saw("running_requests", worker, running, None, basis="probe", ratio=STRONG, group="answers"))
    for probe in ctx.view.probes:
        touches = worker in (probe.worker, *_ends(probe.pair))
        if probe.kind is ProbeKind.CANARY and probe.ok and touches:
            found.append(ctx.saw("canary", worker, "right", "right", basis="probe", ratio=STRONG, group="canary"))
    return found


def _is_ill(ctx: Context, worker: str) -> list[Weighed]:
    found = []
    for signal in ("request_failure", "kv_transfer_failures"):
        failed = ctx.ask.increase(worker, signal)
        if failed.above(0):
            found.append(ctx.saw(signal, worker, failed, 0.0, basis="physics", ratio=STRONG, group="ill"))
    if any(e.kind is EventKind.RESTART for e in ctx.events((EventKind.RESTART,), within_s=120.0, worker=worker)):
        found.append(
            ctx.saw("process_start_seconds", worker, "just started", None, basis="log", ratio=WEAK, group="new")
        )
    if others := _rolls(ctx, worker):
        found.append(ctx.saw("process_start_seconds", worker, others, None, basis="log", ratio=STRONG, group="rollout"))
    return found


def _rolls(ctx: Context, worker: str) -> str:
    """Return which others of the pool were just replaced or restarted: a rollout drains the next one, which still serves."""
    known = ctx.cluster.get(worker)
    if known is None:
        return ""
    others = [w.id for w in ctx.cluster.of_pool(known.pool) if w.id != worker]
    replaced = [w for w in others if ctx.events((EventKind.ROLLOUT,), worker=w)]
    restarted = [w.id for w, _ in ctx.restarted(known.role, ROLLS_S) if w.id in others and w.id not in replaced]
    told = (
        f"{', '.join(replaced)} replaced" if replaced else "",
        f"{', '.join(restarted)} restarted" if restarted else "",
    )
    return "; ".join(t for t in told if t)


def _ends(pair: str | None) -> tuple[str, ...]:
    if pair is None:
        return ()
    both = Pair.parse(pair)
    return both.src, both.dst


def _blacklisted(ctx: Context) -> Iterator[Finding]:
    """Look for a pair that stopped after a failure, while both of its ends move KV with others."""
    pairs = ctx.pairs_with("kv_transfer_bytes")
    moved = {p: ctx.ask.increase(p.key, "kv_transfer_bytes") for p in pairs}
    for pair in pairs:
        if moved[pair].value != 0.0 or ctx.view.base is None:
            continue
        before = ctx.ask.increase(pair.key, "kv_transfer_bytes", ctx.view.base)
        if not before.above(0):
            continue
        others = [p for p in pairs if p != pair and moved[p].above(0)]
        ends = [next((p for p in others if getattr(p, end) == getattr(pair, end)), None) for end in ("src", "dst")]
        failed = ctx.ask.increase(pair.key, "kv_transfer_failures")
        earlier = ctx.ask.increase(pair.key, "kv_transfer_failures", ctx.view.base)
        if None in ends or not (failed.above(0) or earlier.above(0)):
            continue
        worst = failed if failed.above(0) else earlier
        yield Finding(
            status=Status.FIRED,
            cause="sticky-blacklist",
            scopes=(ctx.scope(pair.key),),
            for_=(
                ctx.saw(
                    "kv_transfer_bytes",
                    pair.key,
                    moved[pair],
                    before.value,
                    basis="history",
                    ratio=MODERATE,
                    group="idle",
                ),
                *(
                    ctx.saw("kv_transfer_bytes", p.key, moved[p], None, basis="peer", ratio=MODERATE, group="others")
                    for p in ends
                    if p is not None
                ),
                ctx.saw("kv_transfer_failures", pair.key, worst, 0.0, basis="physics", ratio=MODERATE, group="failed"),
            ),
            next=(
                f"test the link of {pair} itself; if it is fine, one side still refuses the other after one failure",
                f"restart or re-register the side that refuses, first {pair.src}",
            ),
            runbooks=("restart-pair",),
            do_not=(DoNot(action="restart-victim", why="the refused worker is well; its peer keeps the old verdict"),),
            cap=LIKELY,
        )
