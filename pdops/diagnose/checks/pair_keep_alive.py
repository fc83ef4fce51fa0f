"""Servers keep idle connections longer than the router's pool does."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.pairing import is_vllm
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    amount,
    engines,
    must,
    not_applicable,
    unread,
    was_configured,
)
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="pair/keep-alive",
    title="Engines keep idle connections open longer than the router reuses them",
    causes=("keepalive-mismatch",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "keepalive-mismatch"
CLIENT = "keepalive_s"
VLLM = "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"
SGLANG = "SGLANG_TIMEOUT_KEEP_ALIVE"
DEFAULT_S = 5.0
"""How long vLLM 0.32 and SGLang 0.5.23 keep an idle connection when not told otherwise, in seconds."""


def check(ctx: Context) -> Iterator[Finding]:
    """Compare each engine's keep-alive with how long the router may reuse an idle connection."""
    workers, routers = engines(ctx), ctx.cluster.of_role(Role.ROUTER)
    if not workers or not routers:
        yield not_applicable(CAUSE, "the inventory has no router in front of a prefill and decode pair")
        return
    servers = {w.id: _server(ctx, w) for w in workers}
    lost = [name for name, seconds in servers.items() if seconds is None]
    for router in routers:
        idle = amount(ctx, router.id, CLIENT)
        if idle is None:
            yield unread(CAUSE, router.id, CLIENT, "how long the router reuses an idle connection was not read")
            continue
        # Zero means that the router opens a connection for each request.
        short = [w for w in workers if idle and (s := servers[w.id]) is not None and s <= idle]
        if short:
            yield must(
                CAUSE,
                [
                    Seen(router.id, CLIENT, idle, "s"),
                    *(Seen(w.id, VLLM if is_vllm(w) else SGLANG, servers[w.id], "s") for w in short),
                ],
                "longer on the engines than on the router",
                f"set {VLLM if is_vllm(short[0]) else SGLANG} on the engines above {idle:g}, or lower the router's idle time"
                " below theirs: a connection that the engine just closed is reused and the request fails",
            )
        elif not lost:
            least = min(s for s in servers.values() if s is not None)
            yield agrees(
                CAUSE, f"{router.id} reuses idle connections for {idle:g} s, engines keep them {least:g} s or more"
            )
    if lost:
        yield unread(CAUSE, lost, VLLM, "how long the engine keeps an idle connection was not read")


def _server(ctx: Context, worker: Worker) -> float | None:
    given = amount(ctx, worker.id, VLLM, SGLANG, "timeout_keep_alive")
    return DEFAULT_S if given is None and was_configured(ctx, worker.id) else given
