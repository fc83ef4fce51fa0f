"""Something was called ready before a real request had gone through all of it."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import NO_PAIR
from pdops.diagnose.preflight import Seen, agrees, engines, must, not_applicable, unread
from pdops.model.cluster import Role
from pdops.model.frame import EventKind, Probe, ProbeKind

META = CheckMeta(
    id="startup/readiness",
    title="Ready means that a request went through router, prefill, KV transfer and decode",
    causes=("startup-order",),
    needs=(),
    tier=Tier.PAIR,
    no_alert="a canary on demand is no metric; a canary that fails is weighed by pair/canary-mismatch",
    preflight=True,
)

CAUSE = "startup-order"
_FIX = "run `pdops canary`"
_LOST = (EventKind.RESTART, EventKind.DOWN, EventKind.ROLLOUT)


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the newest canary of every pair and of every router."""
    if not engines(ctx):
        yield not_applicable(CAUSE, NO_PAIR)
        return
    good: list[str] = []
    bad: list[Seen] = []
    ways: dict[str, tuple[str, ...]] = {str(pair): (pair.src, pair.dst) for pair in ctx.cluster.pairs()}
    ways |= {w.id: (w.id,) for w in ctx.cluster.of_role(Role.ROUTER)}
    for way, ends in ways.items():
        probe = _newest(ctx, way)
        if probe is None:
            yield unread(CAUSE, way, "canary", "no request was sent through it", _FIX)
        elif (since := _changed(ctx, ends, probe)) is not None:
            yield unread(CAUSE, way, "canary", f"{since} went away or came back after its canary", _FIX)
        elif probe.ok is None:
            yield unread(CAUSE, way, "canary", probe.detail or "the canary could not be judged", _FIX)
        elif probe.ok:
            good.append(way)
        else:
            bad.append(Seen(way, "canary", probe.detail or "failed"))
    if bad:
        yield must(
            CAUSE,
            bad,
            "the prefill worker's own answer, with its KV moved to decode",
            "keep traffic away until the canary passes; `pdops canary --json` names what each pair lacked, and the other "
            "checks here say why",
            basis="probe",
        )
    if good:
        yield agrees(CAUSE, f"a request went through {', '.join(good)}")


def _newest(ctx: Context, way: str) -> Probe | None:
    ours = [
        p
        for p in ctx.view.probes
        if p.kind is ProbeKind.CANARY and (p.pair == way or (p.pair is None and p.worker == way))
    ]
    return max(ours, key=lambda p: p.t_s, default=None)


def _changed(ctx: Context, ends: tuple[str, ...], probe: Probe) -> str | None:
    """Return which end restarted after a canary, so that the canary tells of another process."""
    later = [e for e in ctx.view.events if e.kind in _LOST and e.worker in ends and e.t_s > probe.t_s]
    return later[0].worker if later else None
