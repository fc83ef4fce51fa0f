"""KV was read after prefill had freed it: answers are probably wrong although their status is 200."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.loglines import Match, evidence, matches
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
_EXPIRED = "Releasing expired KV blocks"


def check(ctx: Context) -> Iterator[Finding]:
    """Count reads that were announced after expiry; the counter lags on an idle prefill worker, the log does not."""
    guilty = {
        u: r for u in ctx.units(Role.PREFILL) if (r := ctx.ask.increase(u, "kv_notifications_after_expiry")).above(0)
    }
    lines = [line for line in ctx.view.logs if _LINE in line.line and line.t_s >= ctx.view.now.start_s]
    declined = tuple(m for m in matches(ctx) if m.spec.cause == m.cause == META.causes[0] and _LINE not in m.sample)
    wrong = _wrong(ctx)
    if not guilty and not lines and declined and wrong:
        yield _declined(ctx, declined, wrong)
        return
    if not guilty and not lines:
        if any(ctx.ask.increase(u, "kv_notifications_after_expiry").known for u in ctx.units(Role.PREFILL)):
            yield clear("kv-lease-expiry", "no KV was read after its lease expired")
        return
    for_ = [
        ctx.saw("kv_notifications_after_expiry", u, r, 0.0, basis="physics", ratio=DECISIVE, group="late")
        for u, r in guilty.items()
    ]
    against = []
    for worker in sorted({line.worker for line in lines}):
        paired = _expired(ctx, worker)
        ratio = DECISIVE if paired else MODERATE
        for_.append(ctx.saw("log", worker, _LINE, None, basis="log", ratio=ratio, group="late"))
        if paired is False and worker not in guilty:
            against.append(
                ctx.saw("kv_transfer_expired", worker, 0.0, None, basis="physics", ratio=MODERATE, group="expired")
            )
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
        against=tuple(against),
        symptoms=(Symptom.WRONG_ANSWERS,),
        next=(
            f"treat answers served through {', '.join(places)} since the first expiry as wrong; compare one greedy answer with prefill's own",
            "find why decode pulls late: its deferred queue, its restarts, the KV link",
            "set kv_lease_duration above the longest wait for a decode slot plus the transfer",
        ),
        runbooks=("wrong-answer-quarantine", "kv-transfer-relief"),
        do_not=(DoNot(action="raise-retries", why="status is 200, so retries change nothing and add load"),),
    )


def _wrong(ctx: Context) -> list[Weighed]:
    return [
        ctx.saw(
            "canary",
            p.pair or p.worker,
            p.detail or "another answer",
            None,
            basis="probe",
            ratio=STRONG,
            group="canary",
        )
        for p in ctx.canaries()
        if p.ok is False
    ]


def _declined(ctx: Context, lines: tuple[Match, ...], wrong: list[Weighed]) -> Finding:
    """Return that answers are wrong where reads came after the lease: one that was declined has had others before it."""
    return Finding(
        status=Status.FIRED,
        cause="kv-lease-expiry",
        scopes=tuple(dict.fromkeys(ctx.scope(m.worker) for m in lines)),
        for_=(*(evidence(ctx, m) for m in lines), *wrong),
        symptoms=(Symptom.WRONG_ANSWERS,),
        next=(
            "repeat the canary without a pause and with one longer than the lease: only the second one goes wrong",
            "set the lease of both sides above the longest pause between turns, and keep their clocks in step",
        ),
        runbooks=("wrong-answer-quarantine", "kv-transfer-relief"),
        do_not=(DoNot(action="raise-retries", why="status is 200, so retries change nothing and add load"),),
    )


def _expired(ctx: Context, worker: str) -> bool | None:
    """Return whether a lease of this worker ran out; None when nobody tells.

    A race in the engine's log can write the same line for KV that was read in time; then no lease has run out.
    """
    windows = [w for w in (ctx.view.now, ctx.view.base) if w is not None]
    grown = [ctx.ask.increase(worker, "kv_transfer_expired", w) for w in windows]
    if any(r.above(0) for r in grown) or any(_EXPIRED in e.line for e in ctx.view.logs if e.worker == worker):
        return True
    return False if any(r.known for r in grown) else None
