"""The first request after a silence is lost, and the next ones are well."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier
from pdops.model.cluster import CLIENT
from pdops.model.frame import EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.series import Series, Window

META = CheckMeta(
    id="network/idle-drop",
    title="Only the first requests after a silence are lost",
    causes=("idle-connection-drop",),
    needs=("request_success", "request_failure", "request_timeouts"),
    tier=Tier.PAIR,
    explains=("bootstrap-timeout", "timeout-too-short", "cold-start", "transport-error", "handshake-address"),
    no_alert="one lost request an hour is below any rate an alert could watch",
)

SILENT_S = 300.0
"""Seconds without a finished request that count as silence: firewalls and load balancers drop idle connections after five
minutes to an hour by default."""
_CAP = 0.9


def check(ctx: Context) -> Iterator[Finding]:
    """Look for losses right after a silence, with successes since and no loss among them."""
    base = ctx.view.base
    if base is None or base.span_s < SILENT_S or ctx.ask.increase(CLIENT, "request_success", base).value != 0.0:
        return
    if ctx.events((EventKind.RESTART, EventKind.SCALE_OUT, EventKind.ROLLOUT, EventKind.DOWN)):
        # Then the first requests pay for something else.
        return
    for signal in ("request_timeouts", "request_failure"):
        lost = ctx.ask.increase(CLIENT, signal)
        earlier = ctx.ask.increase(CLIENT, signal, base)
        last = _last_step(ctx, signal)
        if not lost.above(0) or earlier.above(0) or last is None:
            continue
        since = ctx.ask.increase(CLIENT, "request_success", Window(last, ctx.view.at_s))
        if not since.above(lost.value or 0.0):
            continue
        for_ = (
            ctx.saw("request_success", CLIENT, 0.0, None, basis="history", ratio=STRONG, group="silence"),
            ctx.saw(signal, CLIENT, lost, 0.0, basis="physics", ratio=MODERATE, group="lost"),
            ctx.saw("request_success", CLIENT, since, None, basis="physics", ratio=MODERATE, group="since"),
        )
        yield Finding(
            status=Status.FIRED,
            cause="idle-connection-drop",
            for_=for_,
            symptoms=(Symptom.ERRORS,),
            next=(
                "set TCP keep-alive below the idle limit of every load balancer and connection tracker between the workers",
                "or send a canary through each pair every ten seconds, and see whether the losses stop",
            ),
            do_not=(DoNot(action="raise-retries", why="a retry meets the same dead connection until it times out"),),
            cap=_CAP,
        )
        return


def _last_step(ctx: Context, signal: str) -> float | None:
    """Return when a counter of clients grew last in the judged window."""
    found = None
    for _, series in ctx.ask.parts(CLIENT, signal):
        if isinstance(series, Series):
            for t, before, after in zip(series.t[1:], series.v, series.v[1:], strict=False):
                if after > before and t >= ctx.view.now.start_s:
                    found = float(t) if found is None else max(found, float(t))
    return found
