"""Compare how prefill and decode workers are set up; shared by checks and preflight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdops.diagnose.context import Context
from pdops.diagnose.options import (
    KV_HEADS,
    LENGTH,
    OPTIONS,
    TENSOR_PARALLEL,
    Option,
    Value,
    differ,
    number,
    parallel_ratio,
    read,
)
from pdops.model.cluster import Pair, Role, Worker
from pdops.model.report import Scope

_MOST = 8
_Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Difference:
    """One option with the pairs it differs on, what that weighs, and one of them with both values."""

    option: Option
    ratio: float
    pairs: frozenset[Pair]
    sample: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of comparing all pairs.

    `apart` are options that differ, `unclear` those where one side names no value, with the reason; `agreed` counts, by
    cause, the options known for every worker and equal. `silent` are workers without any configuration.
    """

    apart: tuple[Difference, ...]
    unclear: tuple[tuple[Option, str], ...]
    agreed: Mapping[str, int]
    silent: tuple[str, ...]


def compare(ctx: Context) -> Comparison:
    """Compare every option that must match over all prefill and decode workers."""
    senders, receivers = ctx.cluster.of_role(Role.PREFILL), ctx.cluster.of_role(Role.DECODE)
    silent = tuple(w.id for w in (*senders, *receivers) if not ctx.view.facts.get(w.id) and not w.version)
    apart: list[Difference] = []
    unclear: list[tuple[Option, str]] = []
    agreed: dict[str, int] = {}
    for option in OPTIONS:
        left, right = (_values(ctx, option, side) for side in (senders, receivers))
        if not left or not right:
            continue
        why, difference = _compare(option, left, right)
        if why:
            unclear.append((option, why))
        if difference is not None:
            apart.append(difference)
        elif not why and len(left) == len(senders) and len(right) == len(receivers):
            agreed[option.cause] = agreed.get(option.cause, 0) + 1
    apart += _parallelism(ctx, senders, receivers) + _lengths(ctx, senders, receivers)
    return Comparison(tuple(apart), tuple(unclear), agreed, silent)


def _values(ctx: Context, option: Option, workers: tuple[Worker, ...]) -> dict[str, Value]:
    found = {w.id: read(option, ctx.view.facts.get(w.id, {}), w) for w in workers}
    return {name: value for name, value in found.items() if value is not None}


def _compare(option: Option, senders: _Values, receivers: _Values) -> tuple[str, Difference | None]:
    """Return what could not be compared, and the pairs that differ."""
    pairs: set[Pair] = set()
    sample = unclear = ""
    for left in dict.fromkeys(senders.values()):
        for right in dict.fromkeys(receivers.values()):
            apart = differ(option, left, right)
            if apart is False:
                continue
            these = [Pair(p, d) for p, v in senders.items() if v == left for d, w in receivers.items() if w == right]
            text = _both(these[0], left.raw, right.raw)
            if apart is None:
                unclear = unclear or f"{text}: it is not known what that amounts to"
            else:
                pairs.update(these)
                sample = sample or text
    return unclear, Difference(option, option.ratio, frozenset(pairs), sample) if pairs else None


def _both(pair: Pair, left: object, right: object) -> str:
    return f"{left} on {pair.src}, {right} on {pair.dst}"


def _numbers(ctx: Context, option: Option, workers: tuple[Worker, ...]) -> dict[str, int]:
    found = {w.id: number(option.aliases, ctx.view.facts.get(w.id, {})) for w in workers}
    return {name: value for name, value in found.items() if value is not None}


def _parallelism(ctx: Context, senders: tuple[Worker, ...], receivers: tuple[Worker, ...]) -> list[Difference]:
    left, right = (_numbers(ctx, TENSOR_PARALLEL, side) for side in (senders, receivers))
    heads = next((h for f in ctx.view.facts.values() if (h := number(KV_HEADS, f)) is not None), None)
    apart = {Pair(p, d): r for p, a in left.items() for d, b in right.items() if (r := parallel_ratio(a, b, heads))}
    if not apart:
        return []
    pair = max(sorted(apart), key=lambda p: apart[p])
    sample = _both(pair, left[pair.src], right[pair.dst]) + (f", {heads} KV heads" if heads is not None else "")
    return [Difference(TENSOR_PARALLEL, apart[pair], frozenset(apart), sample)]


def _lengths(ctx: Context, senders: tuple[Worker, ...], receivers: tuple[Worker, ...]) -> list[Difference]:
    left, right = (_numbers(ctx, LENGTH, side) for side in (senders, receivers))
    short = frozenset(Pair(p, d) for p, a in left.items() for d, b in right.items() if b < a)
    if not short:
        return []
    pair = min(short)
    return [Difference(LENGTH, LENGTH.ratio, short, _both(pair, left[pair.src], right[pair.dst]))]


def scopes(ctx: Context, pairs: frozenset[Pair]) -> tuple[Scope, ...]:
    """Name the odd worker out, else the pools when all pairs differ, else the pairs."""
    every = frozenset(ctx.cluster.pairs())
    if len(pairs) == 1:
        return (Scope("pair", str(min(pairs))),)
    if pairs == every:
        return tuple(ctx.scope(pool) for role in (Role.PREFILL, Role.DECODE) for pool in ctx.pools(role))
    for role, end in ((Role.DECODE, "dst"), (Role.PREFILL, "src")):
        odd = [w.id for w in ctx.cluster.of_role(role) if all(p in pairs for p in every if getattr(p, end) == w.id)]
        if odd and len(odd) * len(every) == len(pairs) * len(ctx.cluster.of_role(role)):
            return tuple(Scope("worker", name) for name in odd[:_MOST])
    return tuple(Scope("pair", str(pair)) for pair in sorted(pairs)[:_MOST])
