"""The router repeats work for longer than a client waits, or takes healthy workers out for longer than that."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, amount, fact, flag, must, not_applicable, unread, warn
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="startup/router-retries",
    title="The router's retries and breaker end before clients give up",
    causes=("timeout-too-short", "breaker-open", "kv-strand-prefill"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

SHORT = "timeout-too-short"
BREAKER = "breaker-open"
STRAND = "kv-strand-prefill"
OWN = "pdops_router"
_OFF = ("0", "none", "off", "false")
_FIX = "let pdops read the router's command line or admin page, or give the value as a fact"


def check(ctx: Context) -> Iterator[Finding]:
    """Judge every router of the inventory."""
    routers = ctx.cluster.of_role(Role.ROUTER)
    if not routers:
        yield not_applicable(SHORT, "the inventory has no router")
    for router in routers:
        if router.engine == OWN and fact(ctx, router.id, "retries") in (None, "0"):
            yield agrees(SHORT, f"{router.id} is pdops' own router, which repeats nothing and has no breaker")
            continue
        yield from _retries(ctx, router)
        yield from _breaker(ctx, router)


def _retries(ctx: Context, router: Worker) -> Iterator[Finding]:
    retries = amount(ctx, router.id, "retries")
    if retries is None:
        yield unread(SHORT, router.id, "retries", "how often it tries again was not read", _FIX)
        return
    if retries == 0:
        yield agrees(SHORT, f"{router.id} tries nothing twice")
        return
    yield warn(
        STRAND,
        [Seen(router.id, "retries", retries)],
        "0: a hand-off that is tried again leaves the first try's KV on prefill for a lease",
        "set retries to 0, or retry only what failed before prefill took it in",
    )
    limits = {name: amount(ctx, router.id, name) for name in ("deadline_s", "prefill_timeout_s")}
    lost = [name for name, value in limits.items() if value is None]
    if lost:
        yield unread(SHORT, router.id, lost[0], "it is not known how long all tries may take", _FIX)
        return
    deadline, each = (value for value in limits.values() if value is not None)
    first_token, backoff = amount(ctx, router.id, "first_token_timeout_s"), _backoff(ctx, router)
    worst = (retries + 1) * (each + (first_token or 0.0)) + retries * (backoff or 0.0)
    if worst > deadline:
        yield must(
            SHORT,
            [Seen(router.id, "retries", retries), Seen(router.id, "deadline_s", deadline, "s")],
            f"all tries within the deadline; they may take {worst:.0f} s",
            "lower retries or the timeout of each try, or raise the deadline and the clients' own timeout",
        )
    elif first_token is None or backoff is None:
        # What is known is only the least that all tries may take.
        name = "first_token_timeout_s" if first_token is None else "retry_backoff_s"
        yield unread(SHORT, router.id, name, f"all tries may take {worst:.0f} s and more", _FIX)
    else:
        yield agrees(SHORT, f"all tries of {router.id} take at most {worst:.0f} of {deadline:.0f} s")


def _backoff(ctx: Context, router: Worker) -> float | None:
    seconds, ms = amount(ctx, router.id, "retry_backoff_s"), amount(ctx, router.id, "retry_backoff_ms")
    return ms / 1000 if seconds is None and ms is not None else seconds


def _breaker(ctx: Context, router: Worker) -> Iterator[Finding]:
    threshold = fact(ctx, router.id, "breaker_threshold")
    disabled = flag(fact(ctx, router.id, "disable_circuit_breaker"))
    if disabled or (threshold is not None and threshold.casefold() in _OFF):
        yield agrees(BREAKER, f"{router.id} has its breaker off")
        return
    if threshold is None:
        yield unread(BREAKER, router.id, "breaker_threshold", "whether it has a breaker was not read", _FIX)
        return
    recovery = amount(ctx, router.id, "breaker_recovery_s", "cb_timeout_duration_secs")
    deadline = amount(ctx, router.id, "client_deadline_s", "deadline_s")
    if recovery is None or deadline is None:
        name = "breaker_recovery_s" if recovery is None else "deadline_s"
        yield unread(BREAKER, router.id, name, "it is not known whether a breaker closes before clients give up", _FIX)
    elif recovery >= deadline:
        yield must(
            BREAKER,
            [Seen(router.id, "breaker_recovery_s", recovery, "s"), Seen(router.id, "deadline_s", deadline, "s")],
            "a breaker that closes before clients give up, else a flood at start opens all for good",
            "lower the time a breaker stays open, or raise the clients' budget",
        )
    else:
        yield agrees(BREAKER, f"breakers of {router.id} close after {recovery:.0f} s, clients wait {deadline:.0f} s")
    counts = flag(fact(ctx, router.id, "breaker_counts_4xx"))
    if counts:
        yield must(
            BREAKER,
            [Seen(router.id, "breaker_counts_4xx", "true")],
            "false: a client's mistake says nothing about a worker",
            "let the breaker count 5xx and connection failures only",
        )
    elif counts is None:
        yield unread(BREAKER, router.id, "breaker_counts_4xx", "whether 4xx answers open it was not read", _FIX)
