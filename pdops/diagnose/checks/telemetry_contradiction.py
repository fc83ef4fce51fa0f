"""Numbers contradict each other: one of them is wrong, and what rests on it is not to be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import STRONG, CheckMeta, Finding, Status, Tier
from pdops.diagnose.physics import Law, broken
from pdops.model.report import Scope, Verdict

META = CheckMeta(
    id="telemetry/contradiction",
    title="Measurements contradict each other",
    causes=("telemetry-gap",),
    needs=("e2e_seconds", "running_requests", "queue_depth", "ttft_seconds", "kv_transfer_bytes", "request_success"),
    tier=Tier.DATA,
    no_alert="it sets several workers' numbers side by side over one window; a rule on one of them would not know",
)

_NEXT = {
    "little": "compare the time between scrapes with the age of the page: gauges or histogram of this pool are old",
    "prefill-within-ttft": "see whether prefill serves requests that do not come through this router, and whether clocks step",
    "sent-received": "look for a prefill worker that is not in the inventory: decode receives KV that nobody known sent",
    "counts": "look for a decode worker that is not in the inventory: the router answers requests that no known one finished",
}


def check(ctx: Context) -> Iterator[Finding]:
    """Name every law that cannot be broken and is."""
    for law in broken(ctx):
        seen = ctx.saw(
            law.signal, law.scope or None, law.left, law.right, basis="physics", ratio=STRONG, group=law.name
        )
        yield Finding(
            status=Status.FIRED,
            cause="telemetry-gap",
            scopes=_scopes(ctx, law),
            for_=(seen,),
            next=(_NEXT[law.name],),
            verdict=Verdict.UNKNOWN,
        )


def _scopes(ctx: Context, law: Law) -> tuple[Scope, ...]:
    return (ctx.scope(law.scope),) if law.name == "little" else ()
