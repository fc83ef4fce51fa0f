"""Engines on one node cannot map each other's GPU memory, because their PID namespaces differ."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.devices import gpus
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_HOST, NO_PAIR, same_host
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, engines, fact, must, not_applicable, unread

META = CheckMeta(
    id="host/pid-namespace",
    title="PID namespace: engines with GPUs on one node share it",
    causes=("transport-fallback-slow",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "transport-fallback-slow"
FACT = "host.pid_namespace"


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the namespaces of each pair that shares a node and has GPUs."""
    if not engines(ctx):
        yield not_applicable(CAUSE, NO_PAIR)
        return
    good: list[str] = []
    apart: list[str] = []
    vague: dict[str, list[str]] = {}
    judged = False
    for pair in ctx.cluster.pairs():
        ends = (pair.src, pair.dst)
        here = same_host(ctx, *ends)
        found = [gpus(ctx, end) for end in ends]
        if here is False or () in found:
            continue
        judged = True
        told = [fact(ctx, end, FACT) for end in ends]
        if here is None:
            vague.setdefault("host.name", []).append(str(pair))
        elif None in found:
            vague.setdefault("host.gpus", []).extend(e for e, g in zip(ends, found, strict=True) if g is None)
        elif None in told:
            vague.setdefault(FACT, []).extend(e for e, t in zip(ends, told, strict=True) if t is None)
        elif told[0] == told[1]:
            good.append(f"{pair} {told[0]}")
        else:
            apart += ends
    for name, who in vague.items():
        yield unread(CAUSE, dict.fromkeys(who), name, f"{name} was not read", FIX_HOST)
    if apart:
        yield must(
            CAUSE,
            [Seen(end, FACT, fact(ctx, end, FACT)) for end in dict.fromkeys(apart)],
            "the same for engines that hand KV to each other on one node",
            "run both with one PID namespace (hostPID: true, or shareProcessNamespace in one pod; --pid=host) and let "
            "each see the other's GPUs, or place them on different nodes",
        )
    if good:
        yield agrees(CAUSE, f"shared: {', '.join(good)}")
    if not judged:
        yield not_applicable(CAUSE, "no two engines with GPUs share a node")
