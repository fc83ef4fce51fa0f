"""The address an engine advertises for its side channel leads nowhere for its peers."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.fabric import side_channel
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import (
    FIX_ENVIRONMENT,
    FIX_HOST,
    NO_PAIR,
    alone,
    env,
    is_loopback,
    is_wildcard,
    reached,
    split,
)
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, engines, fact, must, not_applicable, unread
from pdops.model.cluster import Pair, Worker

META = CheckMeta(
    id="host/side-channel",
    title="Side channel: the advertised address leads to this worker from every peer",
    causes=("handshake-address",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "handshake-address"
VARIABLE = "VLLM_NIXL_SIDE_CHANNEL_HOST"
DEFAULT = "localhost"
"""What vLLM 0.32.0 binds and advertises where the variable is not set (`envs.py`)."""
DEFAULT_PORT = "5600"
REACH = "reach.side_channel"
_EXPECTED = "an address of this host that every peer can dial"


def check(ctx: Context) -> Iterator[Finding]:
    """Judge what each engine advertises, then whether each decode worker reaches each prefill worker."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, NO_PAIR)
        return
    known = {w.id: side_channel(ctx, w) for w in workers}
    lost = [name for name, has in known.items() if has is None]
    if lost:
        yield unread(CAUSE, lost, "kv_connector", "it is not known whether the connector has a side channel")
    nixl = [w for w in workers if known.get(w.id)]
    if nixl:
        yield from _addresses(ctx, nixl)
        yield from _reach(ctx, {w.id for w in nixl})
    elif not lost:
        yield not_applicable(CAUSE, "no worker uses vLLM's NIXL connector, whose side channel this is")


def _addresses(ctx: Context, workers: list[Worker]) -> Iterator[Finding]:
    told, lost = split([w.id for w in workers], lambda name: env(ctx, name, VARIABLE))
    if lost:
        yield unread(CAUSE, lost, VARIABLE, "the environment was not read", FIX_ENVIRONMENT)
    bad: list[Seen] = []
    homeless: list[str] = []
    good: list[str] = []
    for worker in workers:
        if worker.id not in told:
            continue
        address = told[worker.id] or DEFAULT
        shown = told[worker.id] or f"{DEFAULT} (default)"
        here = alone(ctx, worker)
        if is_wildcard(address) or (is_loopback(address) and here is False):
            bad.append(Seen(worker.id, VARIABLE, shown))
        elif is_loopback(address) and here is None:
            homeless.append(worker.id)
        else:
            good.append(f"{worker.id} {shown}")
    if bad:
        yield must(
            CAUSE,
            bad,
            _EXPECTED,
            f"set {VARIABLE} to the address peers reach this host by; the engine binds and advertises the same text",
        )
    if homeless:
        why = "it advertises loopback, and it is not known whether all its peers are on its host"
        yield unread(CAUSE, homeless, "host.name", why, FIX_HOST)
    if good:
        yield agrees(CAUSE, f"advertised: {', '.join(good)}")


def _reach(ctx: Context, nixl: set[str]) -> Iterator[Finding]:
    bad: list[Seen] = []
    good: list[str] = []
    for pair in ctx.cluster.pairs():
        if pair.src not in nixl:
            continue
        ok, answer = reached(ctx, pair.dst, pair.src, "side_channel")
        if ok:
            good.append(str(pair))
        elif ok is None:
            yield unread(CAUSE, str(pair), REACH, answer, FIX_HOST)
        elif answer == "refused" and not _listens(ctx, pair):
            why = f"nothing listens there yet: {pair.src} has not started"
            yield unread(CAUSE, str(pair), REACH, why, "start it and run preflight again")
        else:
            bad.append(Seen(str(pair), REACH, answer))
    if bad:
        yield must(
            CAUSE,
            bad,
            "ok",
            f"from each named decode worker open a TCP connection to the prefill worker's {VARIABLE} and port; mend "
            "name resolution, route or firewall, or advertise another address",
        )
    if good:
        yield agrees(CAUSE, f"decode reaches the side channel of {', '.join(good)}")


def _listens(ctx: Context, pair: Pair) -> bool:
    port = env(ctx, pair.src, "VLLM_NIXL_SIDE_CHANNEL_PORT") or DEFAULT_PORT
    return fact(ctx, pair.src, f"host.port.{port}") != "free"
