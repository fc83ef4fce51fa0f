"""Ports are taken, shared by two listeners, or do not answer those who dial them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdops.diagnose.context import Context
from pdops.diagnose.fabric import side_channel
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import (
    FIX_ENVIRONMENT,
    FIX_HOST,
    NO_PAIR,
    env,
    is_loopback,
    is_wildcard,
    ranks,
    reached,
    same_network,
    split,
)
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    engines,
    fact,
    must,
    not_applicable,
    unread,
    was_configured,
)
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="host/ports",
    title="Ports: free, one for each listener, and open to those who dial them",
    causes=("handshake-address", "silent-local-prefill"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "handshake-address"
VARIABLE = "VLLM_NIXL_SIDE_CHANNEL_PORT"
DEFAULT = 5600
"""Port of vLLM 0.32.0 where the variable is not set (`envs.py`); each data-parallel rank takes the next one."""
BOOTSTRAP = "disaggregation_bootstrap_port"
BOOTSTRAP_DEFAULT = 8998
"""Port at which SGLang's prefill meets decode where none is given (`server_args.py`)."""
_LAST = 65_535


@dataclass(frozen=True, slots=True)
class Listener:
    """What one engine meets its peers at: a port for each data-parallel rank, from `first` to `last`."""

    worker: str
    option: str
    address: str
    first: int
    last: int

    def meets(self, other: Listener) -> bool:
        """Whether both want a port in common on one address."""
        everywhere = is_wildcard(self.address) or is_wildcard(other.address)
        alike = self.address == other.address or (is_loopback(self.address) and is_loopback(other.address))
        return (alike or everywhere) and self.first <= other.last and other.first <= self.last

    @property
    def shown(self) -> str:
        """The ports as a person writes them."""
        span = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.address}:{span}"


def check(ctx: Context) -> Iterator[Finding]:
    """Judge side-channel ports beside each other, then what hosts say of ports, then who answers."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, NO_PAIR)
        return
    yield from _side_channels(ctx, workers)
    yield from _taken(ctx, workers)
    yield from _answers(ctx, workers)


def _side_channels(ctx: Context, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    nixl = [w.id for w in workers if side_channel(ctx, w)]
    told, lost = split(nixl, lambda name: env(ctx, name, VARIABLE))
    if lost:
        yield unread(CAUSE, lost, VARIABLE, "the environment was not read", FIX_ENVIRONMENT)
    listeners: list[Listener] = []
    bad: list[Seen] = []
    for name, text in told.items():
        port = _number(text, DEFAULT)
        last = port + ranks(ctx, name, "data_parallel_size") - 1
        address = env(ctx, name, "VLLM_NIXL_SIDE_CHANNEL_HOST") or "localhost"
        if port >= 1 and last <= _LAST:
            listeners.append(Listener(name, VARIABLE, address, port, last))
        else:
            bad.append(Seen(name, VARIABLE, text))
    for worker in ctx.cluster.of_role(Role.PREFILL):
        if worker.engine != "sglang":
            continue
        given = fact(ctx, worker.id, BOOTSTRAP)
        if given is None and not was_configured(ctx, worker.id):
            yield unread(CAUSE, worker.id, BOOTSTRAP, "the port its peers meet it at was not read")
            continue
        port = _number(given or "", BOOTSTRAP_DEFAULT)
        if 1 <= port <= _LAST:
            listeners.append(Listener(worker.id, BOOTSTRAP, "0.0.0.0", port, port))  # noqa: S104  told, not bound
        else:
            bad.append(Seen(worker.id, BOOTSTRAP, given))
    if bad:
        yield must(
            CAUSE, bad, f"1 to {_LAST}, with room for every data-parallel rank", f"set {bad[0].option} to a free port"
        )
    clashes = [
        (a, b, same_network(ctx, a.worker, b.worker))
        for i, a in enumerate(listeners)
        for b in listeners[:i]
        if a.meets(b)
    ]
    both = list(dict.fromkeys(x for b, a, here in clashes if here for x in (a, b)))
    if both:
        yield must(
            CAUSE,
            [Seen(x.worker, x.option, x.shown) for x in both],
            "a port of its own for every engine and data-parallel rank on a host",
            f"give each a {both[0].option} of its own, as far apart as it has data-parallel ranks",
        )
    vague = list(dict.fromkeys(x.worker for b, a, here in clashes if here is None for x in (a, b)))
    if vague:
        yield unread(
            CAUSE, vague, "host.name", "they want the same port, and it is not known if they share a host", FIX_HOST
        )
    if listeners and not clashes:
        yield agrees(CAUSE, f"peers are met at {', '.join(f'{x.worker} {x.shown}' for x in listeners)}")


def _number(text: str, default: int) -> int:
    return int(text) if text.isdecimal() else default if not text else 0


def _taken(ctx: Context, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    ports = {
        worker.id: {k.removeprefix("host.port."): v for k, v in facts.items() if k.startswith("host.port.")}
        for worker in ctx.cluster.workers
        if (facts := ctx.view.facts.get(worker.id, {}))
    }
    bad = [
        Seen(name, f"host.port.{port}", state)
        for name, states in ports.items()
        for port, state in states.items()
        if state.startswith("taken")
    ]
    if bad:
        yield must(CAUSE, bad, "free, or held by this worker", "stop what holds the port, or choose another port")
    told = [name for name, states in ports.items() if states]
    lost = [w.id for w in workers if w.id not in told]
    if lost:
        yield unread(CAUSE, lost, "host.port", "whether its ports are free was not read", FIX_HOST)
    if told and not bad:
        yield agrees(CAUSE, f"the ports of {', '.join(told)} are free or their own")


def _answers(ctx: Context, workers: tuple[Worker, ...]) -> Iterator[Finding]:
    """Judge what the router, else decode, reaches by HTTP: a prefill that is not reached is left out unnoticed."""
    cause = "silent-local-prefill"
    routers = ctx.cluster.of_role(Role.ROUTER)
    bad: list[Seen] = []
    good: list[str] = []
    for router in routers:
        for worker in workers:
            ok, answer = reached(ctx, router.id, worker.id, "http")
            if ok:
                good.append(f"{router.id} to {worker.id}")
            elif ok is None:
                yield unread(cause, worker.id, "reach.http", answer, FIX_HOST)
            elif _idle(ctx, worker):
                yield unread(cause, worker.id, "reach.http", "it has not started", "start it and run preflight again")
            else:
                bad.append(Seen(worker.id, f"reach.http from {router.id}", answer))
    if bad:
        yield must(
            cause,
            bad,
            "ok",
            "compare the port the router or sidecar dials with the one the engine listens on, then routes and firewall",
        )
    if good:
        yield agrees(cause, f"HTTP answers: {', '.join(good)}")


def _idle(ctx: Context, worker: Worker) -> bool:
    port = _port(worker.url) if worker.url else None
    return port is not None and fact(ctx, worker.id, f"host.port.{port}") == "free"


def _port(url: str) -> int | None:
    """Return the port an address names, the scheme's own when it names none."""
    scheme, _, rest = url.partition("://")
    text = rest.partition("/")[0].rpartition("]")[2].rpartition(":")[2]
    return int(text) if text.isdecimal() else {"http": 80, "https": 443}.get(scheme)
