"""Timeouts are longer than what they wait for, and each outer one longer than those inside it."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.pairing import all_nixl
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    amount,
    engines,
    fact,
    must,
    not_applicable,
    unread,
    warn,
    was_configured,
)
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="pair/timeouts",
    title="Client, router, lease and engine timeouts are ordered and long enough",
    causes=("timeout-too-short",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "timeout-too-short"
LEASE = "kv_lease_duration"
LEASE_S = 30.0
"""vLLM 0.32's lease on finished KV when none is given, in seconds."""
BEAT = 6
"""A waiting decode renews the lease each (its own lease) // 6 seconds, so under 6 s the interval is none at all."""
RENEWAL = (2, 3)
"""Each beat extends the lease to 2/3 of prefill's own (vLLM 0.32, NIXL worker and scheduler)."""
ORDER = (
    ("prefill_timeout_s", "deadline_s"),
    ("first_token_timeout_s", "deadline_s"),
    ("deadline_s", "client_timeout_s"),
)
"""Router timeouts, seconds: the first of each runs inside the second; 0 is none at all."""
WAITING = ("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", 300.0)
"""How long an SGLang decode waits for KV, prefill's own time included, with the default of 0.5.23 in seconds."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the router's timeouts among each other and against the SLO, and the leases of prefill and decode."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, "the inventory has no prefill and decode pair")
        return
    routers = ctx.cluster.of_role(Role.ROUTER)
    for router in routers:
        yield from _router(ctx, router)
    if not routers:
        yield not_applicable(CAUSE, "the inventory has no router, so its timeouts are not compared")
    if all_nixl(ctx) is not False and not all(w.engine == "sglang" for w in workers):
        yield from _lease(ctx)
    yield from _waiting(ctx)


def _router(ctx: Context, router: Worker) -> Iterator[Finding]:
    names = dict.fromkeys(name for pair in ORDER for name in pair)
    known = {name: value for name in names if (value := _seconds(ctx, router.id, name)) is not None}
    lost = [name for name in names if name not in known and name != "client_timeout_s"]
    late = [(a, b) for a, b in ORDER if a in known and known[a] > known.get(b, known[a]) > 0]
    for inner, outer in late:
        yield warn(
            CAUSE,
            [Seen(router.id, inner, known[inner], "s"), Seen(router.id, outer, known[outer], "s")],
            f"{inner} at most {outer}",
            f"raise {outer} above {inner} ({known[inner]:g} s): the outer one ends the request while the inner still"
            " waits, and prefill then holds KV nobody reads until its lease ends",
        )
    slo = ctx.slo.ttft_s
    short = [name for name in names if slo is not None and name in known and 0 < known[name] <= slo]
    if short:
        yield must(
            CAUSE,
            [Seen(router.id, name, known[name], "s") for name in short],
            f"above the promised TTFT of {slo:g} s",
            f"raise {', '.join(short)} above {slo:g} s: what is a little slower than promised then fails instead",
        )
    for name in lost:
        yield unread(CAUSE, router.id, name, f"{name} was not read")
    if known and not lost and not short and not late:
        yield agrees(CAUSE, ", ".join(f"{name} {value:g} s" for name, value in known.items()))


def _seconds(ctx: Context, router: str, name: str) -> float | None:
    """Return a timeout, 0 for none at all, or None when it was not read."""
    return 0.0 if (fact(ctx, router, name) or "").casefold() in ("none", "null") else amount(ctx, router, name)


def _lease(ctx: Context) -> Iterator[Finding]:
    """Judge the leases. A decode that waits renews them, so the renewal has to come before the extension ends."""
    leases = {w.id: _lease_of(ctx, w.id) for w in engines(ctx)}
    lost = [name for name, lease in leases.items() if lease is None]
    seen = [Seen(name, LEASE, lease, "s") for name, lease in leases.items() if lease is not None]
    tiny = [s for s in seen if isinstance(s.value, float) and s.value < BEAT]
    senders = [v for w in ctx.cluster.of_role(Role.PREFILL) if (v := leases[w.id])]
    readers = [v for w in ctx.cluster.of_role(Role.DECODE) if (v := leases[w.id])]
    late = bool(senders and readers) and max(readers) // BEAT >= min(senders) * RENEWAL[0] // RENEWAL[1]
    if tiny:
        yield must(
            CAUSE,
            tiny,
            f"at least {BEAT} s",
            f"set {LEASE} to {LEASE_S:g} in the connector's extra configuration: KV is freed before a busy decode pulls it",
        )
    elif late:
        yield must(
            CAUSE,
            seen,
            "the same on prefill and decode",
            f"set the same {LEASE} on both sides: decode renews each {max(readers) // BEAT:g} s what prefill extends by"
            f" {min(senders) * RENEWAL[0] // RENEWAL[1]:g} s, so the lease ends between two renewals",
        )
    elif len({s.value for s in seen}) > 1:
        yield warn(CAUSE, seen, "the same on prefill and decode", f"set the same {LEASE} on both sides")
    elif seen and not lost:
        yield agrees(CAUSE, f"{LEASE} is {seen[0].value:g} s on all {len(seen)} workers")
    if lost:
        yield unread(CAUSE, lost, LEASE, f"{LEASE} was not read")


def _lease_of(ctx: Context, worker: str) -> float | None:
    given = amount(ctx, worker, LEASE)
    if given is None and fact(ctx, worker, LEASE) is None and was_configured(ctx, worker):
        return LEASE_S
    return given


def _waiting(ctx: Context) -> Iterator[Finding]:
    """Judge SGLang's wait for KV against the longest prefill the router allows."""
    name, default = WAITING
    ours = [w for w in ctx.cluster.of_role(Role.DECODE) if w.engine == "sglang"]
    allowed = [v for r in ctx.cluster.of_role(Role.ROUTER) if (v := amount(ctx, r.id, "prefill_timeout_s")) is not None]
    waits = {w.id: v if (v := amount(ctx, w.id, name)) is not None else default for w in ours}
    if not waits or not allowed:
        return
    short = [Seen(worker, name, value, "s") for worker, value in waits.items() if value <= max(allowed)]
    if short:
        fix = f"raise {name} above the router's prefill_timeout_s ({max(allowed):g} s): decode gives up on long prompts first"
        yield must(CAUSE, short, f"above {max(allowed):g} s", fix)
    else:
        yield agrees(CAUSE, f"{name} is above the {max(allowed):g} s that the router gives prefill")
