"""Prefill fails a request and decode waits for it until the client gives up."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import DoNot, Layer, Symptom

META = CheckMeta(
    id="router/hidden-prefill-failure",
    title="Requests that prefill fails reach clients as timeouts",
    causes=("no-timeout-hang",),
    needs=("request_failure", "request_timeouts"),
    tier=Tier.PAIR,
    explains=("timeout-too-short", "network-partition", "decode-undersized", "kv-strand-prefill"),
    alert="PDPrefillFailureHidden",
    panel="routing/prefill-failures",
)

HIDDEN = 0.5
"""Failures that clients see, over those of prefill, below which most are not passed on; and those of prefill over the
timeouts of clients below which most of these have another reason."""


def check(ctx: Context) -> Iterator[Finding]:
    """Set failures of prefill beside what clients see of them: errors at once, or timeouts."""
    failed = {u: r for u in ctx.units(Role.PREFILL) if (r := ctx.ask.increase(u, "request_failure")).above(0)}
    timeouts = ctx.ask.increase(CLIENT, "request_timeouts")
    seen = ctx.ask.increase(CLIENT, "request_failure")
    total = sum(r.value or 0.0 for r in failed.values())
    if not failed or not timeouts.above(0):
        return
    passed = (seen.value or 0.0) - (timeouts.value or 0.0)
    if seen.known and passed >= HIDDEN * total:
        yield clear("no-timeout-hang", f"{passed:.0f} of {total:.0f} failures of prefill reach clients as errors")
        return
    if total < HIDDEN * (timeouts.value or 0.0):
        few = f"{total:.0f} failures of prefill are too few for {timeouts.value:.0f} requests that timed out"
        yield clear("no-timeout-hang", few)
        return
    for_ = [
        ctx.saw("request_failure", u, r, 0.0, basis="physics", ratio=STRONG, group="prefill") for u, r in failed.items()
    ]
    for_.append(ctx.saw("request_timeouts", CLIENT, timeouts, 0.0, basis="physics", ratio=MODERATE, group="timeouts"))
    yield Finding(
        status=Status.FIRED,
        cause="no-timeout-hang",
        layer=Layer.ROUTER,
        scopes=tuple(ctx.scope(u) for u in failed),
        for_=tuple(for_),
        against=_away(ctx),
        symptoms=(Symptom.ERRORS,),
        next=(
            f"read why prefill fails them on {', '.join(list(failed)[:3])}: their log names the first error",
            "let the router abort the decode request when its prefill fails, and answer the client with an error at once",
        ),
        runbooks=("routing-rebalance",),
        do_not=(
            DoNot(
                action="raise-retries", why="each retry is a further decode request that waits for KV nobody computes"
            ),
            DoNot(action="scale-out-decode", why="decode waits for KV that does not come, not for capacity"),
        ),
    )


def _away(ctx: Context) -> tuple[Weighed, ...]:
    """Return prefill workers that are away: that explains failures and timeouts without any fault of the router."""
    return tuple(
        ctx.saw("request_failure", w.id, "does not answer", None, basis="probe", ratio=STRONG, group="away")
        for w in ctx.cluster.of_role(Role.PREFILL)
        if ctx.is_down(w.id)
    )
