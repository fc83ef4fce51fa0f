"""Requests fail, and nothing that is read tells at which step."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.cache import stores
from pdops.diagnose.context import Context
from pdops.diagnose.finding import WEAK, CheckMeta, Finding, Status, Tier
from pdops.diagnose.symptoms import ERROR_SHARE
from pdops.model.cluster import CLIENT, Role
from pdops.model.report import Missing, Symptom, Verdict

META = CheckMeta(
    id="telemetry/errors-unsplit",
    title="Requests fail and the step at which they fail is not told",
    causes=("telemetry-gap",),
    needs=("request_failure", "kv_transfer_failures", "kv_handshake_failures"),
    tier=Tier.DATA,
    no_alert="it only says what to read next; failing requests have their own alert",
)

CAP = 0.3
"""This names no fault, only where to look, so it stays behind whatever has evidence."""
_COUNTED = ("kv_transfer_failures", "kv_handshake_failures")


def check(ctx: Context) -> Iterator[Finding]:
    """Say what to read when requests fail and no log line was read and no failed transfer or handshake was counted."""
    errors = ctx.error_share()
    units = (*ctx.units(Role.DECODE), *ctx.units(Role.PREFILL), *(p.key for p in ctx.pairs_with(*_COUNTED)))
    counted = [ctx.ask.increase(u, s) for u in units for s in _COUNTED]
    if not errors.above(ERROR_SHARE) or ctx.view.logs or any(r.above(0) for r in counted):
        return
    known = any(r.known for r in counted)
    stored = (
        "compare the times of put and get of a key that failed: a read before the write has landed fails like this",
    )
    yield Finding(
        status=Status.FIRED,
        cause="telemetry-gap",
        for_=(ctx.saw("request_failure", CLIENT, errors, ERROR_SHARE, basis="physics", ratio=WEAK, group="failures"),),
        missing=()
        if known
        else (Missing(signal=_COUNTED[0], why="nobody counts failed transfers", fix="scrape decode"),),
        verdict=Verdict.UNKNOWN,
        symptoms=(Symptom.ERRORS,),
        next=(
            "read the log of decode, then of the router, for requests that failed, and count them by reason",
            *(stored if stores(ctx) else ()),
            "send one request by hand and see at which of router, prefill, transfer and decode it ends",
        ),
        cap=CAP,
    )
