"""The handshake of vLLM's NIXL connector will accept the peer, and it is not told to accept any."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.options import COMPAT_HASH
from pdops.diagnose.pairing import all_nixl
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    engines,
    fact,
    flag,
    not_applicable,
    same,
    unread,
    warn,
    was_configured,
)

META = CheckMeta(
    id="pair/compat-hash",
    title="The handshake's compatibility hash is equal, and the handshake enforces it",
    causes=("config-asymmetry", "version-skew"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

ENFORCE = "enforce_handshake_compat"


def check(ctx: Context) -> Iterator[Finding]:
    """Compare what the handshake compares, and look whether it is enforced (vLLM 0.32: yes unless switched off)."""
    if not engines(ctx):
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    if all_nixl(ctx) is False:
        yield not_applicable("config-asymmetry", "only vLLM's NIXL connector compares such a hash")
        return
    yield from same(
        ctx,
        COMPAT_HASH,
        "align what goes into it: engine version, connector version and direction, model as written, dtype, KV heads, head"
        " size, layers, attention backend, KV type as written, hybrid KV manager, speculation; the other pair checks say"
        " which differs",
        seen_only=True,
    )
    yield from _enforced(ctx)


def _enforced(ctx: Context) -> Iterator[Finding]:
    told = {w.id: flag(fact(ctx, w.id, ENFORCE)) for w in engines(ctx)}
    off = [name for name, value in told.items() if value is False]
    lost = [
        n for n, v in told.items() if v is None and (fact(ctx, n, ENFORCE) is not None or not was_configured(ctx, n))
    ]
    if off:
        yield warn(
            "config-asymmetry",
            [Seen(name, ENFORCE, "false") for name in off],
            "true",
            f"take {ENFORCE}=false out of the connector's extra configuration: an unlike peer is then read as if it were alike",
        )
    if lost:
        yield unread("config-asymmetry", lost, ENFORCE, f"{ENFORCE} was not read")
    if not off and not lost:
        yield agrees("config-asymmetry", f"{ENFORCE} is not switched off on any of {len(told)} workers")
