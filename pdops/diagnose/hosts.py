"""What preflight checks ask about hosts: who shares one, who reaches whom, and what was read there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from math import prod
from typing import Any, TypeVar

from pdops.diagnose.context import Context
from pdops.diagnose.preflight import amount, fact
from pdops.model.cluster import Role, Worker

NO_PAIR = "the inventory has no prefill and decode pair"
FIX_HOST = "run `pdops preflight` on that host, or give the value as a fact"
FIX_ENVIRONMENT = "let pdops read the process or its pod spec, or give the variable as a fact"
ENVIRONMENT, WHOLE = "environment", "read"
"""The fact that tells how much of an environment was read, and its value for all of it."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
NETWORK, POD = "host.network", "pod"
"""The fact that tells whose network a pod has, and its value for one of its own."""
FROM_HERE = "(from here)"
"""Ends the answer of a connection that pdops made from its own host, not the worker from its."""
_MOST_RANKS = 65_536
_LOOPBACK = re.compile(r"localhost\.?|127(?:\.\d{1,3}){1,3}|::1|\[::1\]", re.IGNORECASE)
_WILDCARD = frozenset({"0.0.0.0", "::", "[::]", "*"})  # noqa: S104  an address that is looked for, not bound

T = TypeVar("T")


# who is where


def same_host(ctx: Context, a: str, b: str) -> bool | None:
    """Whether two workers share a host, or None.

    A Kubernetes node says more than a host name, which is the pod's own there.
    """
    if a == b:
        return True
    for where in (_node, _name):
        left, right = where(ctx, a), where(ctx, b)
        if left and right:
            return left == right
    return None


def same_network(ctx: Context, a: str, b: str) -> bool | None:
    """Whether two workers share addresses and ports, or None; pods of one node do so only with the host's network."""
    if a != b and POD in (fact(ctx, a, NETWORK), fact(ctx, b, NETWORK)):
        return False
    return same_host(ctx, a, b)


def host_of(ctx: Context, worker: str) -> str | None:
    """Return the name of a worker's host, or None."""
    return _node(ctx, worker) or _name(ctx, worker)


def _node(ctx: Context, worker: str) -> str | None:
    known = ctx.cluster.get(worker)
    return fact(ctx, worker, "host.node") or (known.node if known else None)


def _name(ctx: Context, worker: str) -> str | None:
    return fact(ctx, worker, "host.name")


def peers(ctx: Context, worker: Worker) -> tuple[str, ...]:
    """Return the workers that a prefill or decode worker exchanges KV with."""
    other = Role.DECODE if worker.role is Role.PREFILL else Role.PREFILL
    return tuple(w.id for w in ctx.cluster.of_role(other))


def alone(ctx: Context, worker: Worker) -> bool | None:
    """Whether all peers of a worker share its loopback; None when that is not known of one and no other is elsewhere."""
    told = [same_network(ctx, worker.id, peer) for peer in peers(ctx, worker)]
    if False in told:
        return False
    return None if None in told else True


def is_loopback(address: str) -> bool:
    """Whether an address leads back to the host that dials it."""
    return _LOOPBACK.fullmatch(address.strip()) is not None


def is_wildcard(address: str) -> bool:
    """Whether an address stands for all addresses of a host, so that a peer cannot dial it."""
    return address.strip() in _WILDCARD


def reached(ctx: Context, who: str, peer: str, what: str) -> tuple[bool | None, str]:
    """Return whether a worker gets a TCP connection to a peer's `side_channel` or `http`, and what was answered.

    What pdops' own host was answered counts only where the worker and its peer share a host, and then only when it was
    let in; else it is not known.
    """
    told = fact(ctx, who, f"reach.{peer}.{what}")
    if not told:
        return None, f"nobody dialled {peer} from {who}"
    answer = told.removesuffix(FROM_HERE).strip()
    if answer == "ok" and (told == answer or same_host(ctx, who, peer)):
        return True, told
    if told != answer:
        return None, f"{told}: dialled from pdops' own host, which says little about {who}"
    return False, answer


# what was read


def split(names: Iterable[str], read: Callable[[str], T | None]) -> tuple[dict[str, T], list[str]]:
    """Return what could be read, by name, and the names of those it could not be read of."""
    found = {name: read(name) for name in names}
    return {n: v for n, v in found.items() if v is not None}, [n for n, v in found.items() if v is None]


def env(ctx: Context, worker: str, name: str) -> str | None:
    """Return a variable of a worker's environment, empty when it is not set, None when that is not known.

    A collector that knows says so by the fact `environment`: `read`, or another word where only a part was read. Without
    it any variable among the facts stands for all having been read.
    """
    facts = ctx.view.facts.get(worker, {})
    if name in facts:
        return facts[name].strip()
    said = facts.get(ENVIRONMENT)
    whole = any(_VARIABLE.fullmatch(key) for key in facts) if said is None else said == WHOLE
    return "" if whole else None


def leaf(ctx: Context, worker: str, name: str) -> str | None:
    """Return an option by its own name, alone or at the end of a dotted path, or None; two different ones are none."""
    facts = ctx.view.facts.get(worker, {})
    if name in facts:
        return facts[name].strip()
    found = {text.strip() for key, text in facts.items() if key.rpartition(".")[2] == name}
    return found.pop() if len(found) == 1 else None


def ranks(ctx: Context, worker: str, *options: str) -> int:
    """Return the product of some degrees of parallelism; one that was not read, or makes no sense, counts as 1."""
    sizes = [amount(ctx, worker, name) for name in options]
    return prod(int(size) for size in sizes if size is not None and 1 <= size <= _MOST_RANKS)


def table(ctx: Context, worker: str, name: str) -> Any | None:
    """Return a fact that is JSON, decoded, or None when it is not there or cannot be read."""
    text = fact(ctx, worker, name)
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


def started(ctx: Context, worker: str) -> bool:
    """Whether an engine has told of the KV pool it made, so that it has taken its memory."""
    return fact(ctx, worker, "num_gpu_blocks", "kv_cache_size_tokens") is not None


def listed(text: str) -> tuple[str, ...]:
    """Return the entries of a comma list, lower case."""
    return tuple(part for entry in text.split(",") if (part := entry.strip().casefold()))
