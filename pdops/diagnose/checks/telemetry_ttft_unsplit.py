"""First tokens are slow, and nobody measures the stages the time may go to."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import WEAK, CheckMeta, Finding, Status, Tier, clear
from pdops.diagnose.load import WAITING, size
from pdops.diagnose.symptoms import picture
from pdops.diagnose.ttft import split
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import Symptom, Verdict

META = CheckMeta(
    id="telemetry/ttft-unsplit",
    title="First tokens are slow and the stage that takes the time is not measured",
    causes=("telemetry-gap",),
    needs=("ttft_seconds", "queue_depth", "queue_seconds", "prefill_seconds", "kv_transfer_seconds", "handoff_seconds"),
    tier=Tier.DATA,
    no_alert="it only says what to measure next; slow first tokens have their own alert",
)

CAP = 0.3
"""This names no fault, only where to look, so it stays behind whatever has evidence."""

_MEASURE = {
    "prefill_queue": "scrape prefill's queue time",
    "prefill_compute": "scrape prefill's compute time",
    "handoff": "add the router as a target: it knows the time from prefill's answer to the first token",
    "kv_fetch_wait": "scrape decode's KV fetch stages: requests may wait before their transfer begins",
    "kv_transfer": "measure one KV transfer and read which path it takes (UCX_PROTO_INFO=y): slow first tokens with a short "
    "prefill queue are often a slow transfer",
    "decode_wait": "scrape decode's queue time",
}
_ORDER = ("kv_transfer", "kv_fetch_wait", "handoff", "prefill_queue", "prefill_compute", "decode_wait")


def check(ctx: Context) -> Iterator[Finding]:
    """Name the stages of TTFT nobody measures, when TTFT is high and prefill has no queue to explain it."""
    seen = picture(ctx)
    if not seen.ttft_high:
        return
    unknown = {s.stage for s in split(ctx) if s.seconds is None}
    if not unknown:
        yield clear("telemetry-gap", "every stage of TTFT is measured")
        return
    if any(ctx.ask.level(u, "queue_depth").above(WAITING * size(ctx, u)) for u in ctx.units(Role.PREFILL)):
        return
    stages = [s for s in _ORDER if s in unknown]
    yield Finding(
        status=Status.FIRED,
        cause="telemetry-gap",
        verdict=Verdict.UNKNOWN,
        for_=(
            ctx.saw(
                "ttft_seconds",
                CLIENT,
                seen.ttft,
                ctx.slo.ttft_s or seen.ttft_before,
                basis="config" if ctx.slo.ttft_s else "history",
                ratio=WEAK,
                group="ttft",
            ),
        ),
        symptoms=(Symptom.TTFT,),
        next=tuple(_MEASURE[s] for s in stages[:3]),
        cap=CAP,
    )
