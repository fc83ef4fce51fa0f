"""KV was read after prefill had freed it: answers are probably wrong although their status is 200."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, STRONG, CheckMeta, Finding, Status, Tier, clear
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom

META = CheckMeta(
    id="transfer/read-after-expiry",
    title="KV is read after its lease expired: wrong text with HTTP 200",
    causes=("kv-lease-expiry",),
    needs=("kv_notifications_after_expiry", "kv_transfer_expired"),
    tier=Tier.CORRECTNESS,
    explains=("transport-slow", "backpressure-to-prefill", "kv-strand-prefill", "silent-corruption"),
    alert="PDKvReadAfterExpiry",
    panel="kv-transfer/read-after-expiry",
)

_LINE = "Potentially invalid KV blocks"


def check(ctx: Context) -> Iterator[Finding]:
    """Count reads that were announced after expiry; the counter lags on an idle prefill worker, the log does not."""
    guilty = {
        u: r for u in ctx.units(Role.PREFILL) if (r := ctx.ask.increase(u, "kv_notifications_after_expiry")).above(0)
    }
    lines = [line for line in ctx.view.logs if _LINE in line.line and line.t_s >= ctx.view.now.start_s]
    if not guilty and not lines:
        if any(ctx.ask.increase(u, "kv_notifications_after_expiry").known for u in ctx.units(Role.PREFILL)):
            yield clear("kv-lease-expiry", "no KV was read after its lease expired")
        return
    for_ = [
        ctx.saw("kv_notifications_after_expiry", u, r, 0.0, basis="physics", ratio=DECISIVE, group="late")
        for u, r in guilty.items()
    ]
    for worker in sorted({line.worker for line in lines}):
        for_.append(ctx.saw("log", worker, _LINE, None, basis="log", ratio=DECISIVE, group="late"))
    for unit in sorted({*guilty, *(line.worker for line in lines)}):
        expired = ctx.ask.increase(unit, "kv_transfer_expired")
        if expired.above(0):
            for_.append(
                ctx.saw("kv_transfer_expired", unit, expired, 0.0, basis="physics", ratio=STRONG, group="expired")
            )
    places = tuple(sorted({*guilty, *(line.worker for line in lines)}))
    yield Finding(
        status=Status.FIRED,
        cause="kv-lease-expiry",
        scopes=tuple(ctx.scope(p) for p in places),
        for_=tuple(for_),
        symptoms=(Symptom.WRONG_ANSWERS,),
        next=(
            f"treat answers served through {', '.join(places)} since the first expiry as wrong; compare one greedy answer with prefill's own",
            "find why decode pulls late: its deferred queue, its restarts, the KV link",
            "set kv_lease_duration above the longest wait for a decode slot plus the transfer",
        ),
        runbooks=("wrong-answer-quarantine", "kv-transfer-relief"),
        do_not=(DoNot(action="raise-retries", why="status is 200, so retries change nothing and add load"),),
    )
