"""Clients or the router give up before the work is done, and what they leave behind costs the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear, not_known
from pdops.diagnose.load import WAITING, size
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Layer, Symptom
from pdops.model.series import Reading, unknown

META = CheckMeta(
    id="client/abort-storm",
    title="Requests are given up before their work is done",
    causes=("timeout-too-short", "kv-strand-prefill"),
    needs=(
        "request_timeouts",
        "client_aborts",
        "ttft_seconds",
        "kv_cache_usage",
        "kv_transfer_seconds",
        "gpu_util",
        "kv_transfer_expired",
        "kv_transfer_failures",
        "queue_depth_capacity",
        "queue_depth_deferred",
        "request_success",
    ),
    tier=Tier.STAGE,
    explains=("prefill-undersized", "backpressure-to-prefill", "traffic-burst", "router-fault"),
    alert="PDAbortStorm",
    panel="overview/aborts",
)

SHARE = 0.01
"""Given-up over finished requests above which it is no longer the usual few impatient clients."""
FASTER = 2.0
"""Given-up requests per second this many times as many as before are a storm, not a habit."""
NEAR = 0.8
"""Share of a timeout from which the slowest hundredth of the work no longer fits."""
HELD = 0.85
"""KV in use on prefill above which it holds finished KV nobody takes (from public incidents)."""
IDLE_GPU = 0.3
"""GPU busy below this with requests waiting means that compute is not what they wait for."""

_ROUTER_KEYS = (
    "prefill_timeout_s",
    "request_timeout_s",
    "request_timeout",
    "timeout_s",
    "timeout",
    "upstream_timeout_s",
)
_TRANSFER_KEYS_S = ("VLLM_NIXL_ABORT_REQUEST_TIMEOUT", "kv_lease_duration", "kv_transfer_timeout_s")
_FIRST_TOKEN_KEYS = ("first_token_timeout_s",)
"""Of the router: from prefill's answer to the first token of decode, so the transfer has to fit in."""
_TRANSFER_KEYS_MS = ("kv_transfer_timeout_ms",)


def check(ctx: Context) -> Iterator[Finding]:
    """Join given-up requests with timeouts below the time the work takes, and with KV that stays behind."""
    storm = _storm(ctx)
    late = _transfer_over_deadline(ctx)
    if not storm and not late:
        if any(ctx.ask.increase(CLIENT, s).known for s in ("request_timeouts", "client_aborts")):
            yield clear("timeout-too-short", "no more requests than before are given up")
        return
    drowning = _decode_is_behind(ctx)
    over, fits = _work_over_timeout(ctx)
    if storm and not over and not fits and not late:
        why = "the router's timeout is not known"
        fix = "give the router's options as facts, or compare by hand with prefill p99"
        yield not_known("timeout-too-short", "request_timeout", why, fix)
    yield Finding(
        status=Status.FIRED,
        cause="timeout-too-short",
        for_=(*storm, *over, *late),
        against=(*fits, *drowning),
        symptoms=(Symptom.ERRORS,),
        next=(
            "compare the router's timeout with prefill p99 plus the wait for a decode slot plus the transfer",
            "raise the timeout above that sum and stop blind retries; shed load if the sum is too long to promise",
        ),
        runbooks=("backpressure-break",),
        do_not=(
            DoNot(action="shorten-timeout", why="more requests would be given up after their work is paid for"),
            DoNot(action="raise-retries", why="each retry computes the prompt again and leaves another copy of its KV"),
            DoNot(action="scale-out-prefill", why="retries would spread to the new workers too"),
        ),
    )
    held = _held(ctx)
    if storm and held:
        yield Finding(
            status=Status.FIRED,
            cause="kv-strand-prefill",
            layer=Layer.TRANSFER,
            scopes=tuple(dict.fromkeys(w.evidence.scope for w in held if w.evidence.scope)),
            for_=(*(_as(w, STRONG) for w in storm), *held),
            against=drowning,
            next=(
                "look for requests given up between the end of prefill and decode's pull: router timeout, retries, client aborts",
                "stop retries and let the leases run out; the held KV goes with them",
            ),
            runbooks=("backpressure-break", "kv-transfer-relief"),
            do_not=(
                DoNot(action="scale-out-prefill", why="more prefill gives the retries more workers to strand KV on"),
                DoNot(
                    action="enable-chunked-prefill", why="prefill does not lack compute, and chunking can deadlock here"
                ),
                DoNot(action="raise-retries", why="each retry strands another copy of the same KV"),
            ),
        )


def _as(weighed: Weighed, ratio: float) -> Weighed:
    return Weighed(weighed.evidence, ratio, weighed.group)


def _storm(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    good = ctx.ask.rate(CLIENT, "request_success").value or 0.0
    for signal in ("request_timeouts", "client_aborts"):
        for scope in (CLIENT, *ctx.units(Role.PREFILL)):
            now, before = ctx.ask.rate(scope, signal), past.rate(ctx, scope, signal)
            if now.value is None or not now.above(FASTER * (before or 0.0)):
                continue
            if now.value > SHARE * (good + now.value):
                found.append(
                    ctx.saw(f"{signal}.rate", scope, now, before, basis="history", ratio=MODERATE, group="given-up")
                )
    return tuple(found)


def _work_over_timeout(ctx: Context) -> tuple[tuple[Weighed, ...], tuple[Weighed, ...]]:
    """Return that the slowest hundredth of prefill takes as long as the router waits, and that it does not."""
    limits = _facts(ctx, (Role.ROUTER,), _ROUTER_KEYS, 1.0)
    work = _prefill_p99(ctx)
    if not limits or work.value is None:
        return (), ()
    worker, limit = min(limits.items(), key=lambda item: item[1])
    if work.above(NEAR * limit):
        return (ctx.saw("ttft_seconds.p99", worker, work, limit, basis="config", ratio=STRONG, group="limit"),), ()
    if work.below(limit / 2):
        return (), (ctx.saw("ttft_seconds.p99", worker, work, limit, basis="config", ratio=STRONG, group="limit"),)
    return (), ()


def _prefill_p99(ctx: Context) -> Reading:
    known = [ctx.ask.quantile(u, "ttft_seconds", 0.99) for u in ctx.units(Role.PREFILL)]
    values = [r for r in known if r.value is not None]
    if values:
        return max(values, key=lambda r: r.value or 0.0)
    return ctx.ask.quantile(CLIENT, "ttft_seconds", 0.99)


def _transfer_over_deadline(ctx: Context) -> tuple[Weighed, ...]:
    """Return that transfers legitimately take longer than the deadline set for them, and fail or expire for it."""
    roles = (Role.PREFILL, Role.DECODE)
    limits = _facts(ctx, roles, _TRANSFER_KEYS_S, 1.0) | _facts(ctx, roles, _TRANSFER_KEYS_MS, 0.001)
    lost = [(u, s) for r in roles for u in ctx.units(r) for s in ("kv_transfer_failures", "kv_transfer_expired")]
    limits |= _facts(ctx, (Role.ROUTER,), _FIRST_TOKEN_KEYS, 1.0)
    lost.append((CLIENT, "request_timeouts"))
    if not limits or not any(ctx.ask.increase(u, s).above(0) for u, s in lost):
        return ()
    worker, limit = min(limits.items(), key=lambda item: item[1])
    found = []
    for unit in ctx.units(Role.DECODE):
        took = ctx.ask.quantile(unit, "kv_transfer_seconds", 0.99)
        if took.above(NEAR * limit):
            found.append(
                ctx.saw("kv_transfer_seconds.p99", unit, took, limit, basis="config", ratio=STRONG, group="deadline")
            )
            found.append(
                ctx.saw("kv_transfer_timeout", worker, limit, took.value, basis="config", ratio=MODERATE, group="limit")
            )
    return tuple(found)


def _facts(ctx: Context, roles: tuple[Role, ...], names: tuple[str, ...], scale: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for worker in ctx.cluster.of_role(*roles):
        value = _number(ctx.view.facts.get(worker.id, {}), names)
        if value.value is not None and value.value > 0:
            found[worker.id] = value.value * scale
    return found


def _number(facts: Mapping[str, str], names: tuple[str, ...]) -> Reading:
    for name in names:
        try:
            return Reading(float(facts[name].removesuffix("s")))
        except (KeyError, ValueError):
            continue
    return unknown("not configured")


def _held(ctx: Context) -> tuple[Weighed, ...]:
    found = []
    for unit in ctx.units(Role.PREFILL):
        usage = ctx.ask.level(unit, "kv_cache_usage")
        if not usage.above(HELD):
            continue
        found.append(ctx.saw("kv_cache_usage", unit, usage, HELD, basis="physics", ratio=MODERATE, group="held"))
        busy = ctx.ask.level(unit, "gpu_util")
        if busy.below(IDLE_GPU):
            found.append(ctx.saw("gpu_util", unit, busy, IDLE_GPU, basis="physics", ratio=MODERATE, group="idle"))
    return tuple(found)


def _decode_is_behind(ctx: Context) -> tuple[Weighed, ...]:
    """Return that decode does not keep up: then requests are given up because of it, whatever the timeout."""
    found = []
    for unit in ctx.units(Role.DECODE):
        for signal in ("queue_depth_deferred", "queue_depth_capacity"):
            waiting = ctx.ask.level(unit, signal)
            if waiting.above(WAITING * size(ctx, unit)):
                found.append(ctx.saw(signal, unit, waiting, WAITING, basis="physics", ratio=STRONG, group="behind"))
    return tuple(found)
