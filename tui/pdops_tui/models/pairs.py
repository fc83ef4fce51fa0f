"""What is told of one prefill and decode pair: five values, each said by a source that knows pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from pdops.model.cluster import PAIR_PREFIX, Pair
from pdops.model.series import Reading
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import Cell, Form, cell, count, seconds, size, unknown_cell
from pdops_tui.models.text import clean
from pdops_tui.session import MatrixValue

IDLE = "--"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value of a pair: its title, unit, the signal it is made of, and how it is read.

    `worse` is -1 where less is worse, 1 where more is, 0 where neither; `joins` makes one of the pairs of a group.
    """

    title: str
    unit: str
    signal: str
    ask: Callable[[Ask, str], Reading]
    form: Form
    worse: int
    joins: Callable[[Iterable[float]], float]
    join_word: str


VALUES: Mapping[MatrixValue, Value] = {
    "bandwidth": Value(
        title="bytes/s of one transfer", unit="bytes/s", signal="kv_transfer_seconds",
        ask=lambda ask, key: ask.read.bandwidth(key), form=size, worse=-1, joins=min, join_word="slowest pair",
    ),
    "p99": Value(
        title="time of a transfer, p99", unit="s", signal="kv_transfer_seconds",
        ask=lambda ask, key: ask.read.quantile(key, "kv_transfer_seconds", 0.99), form=seconds, worse=1, joins=max,
        join_word="slowest pair",
    ),
    "failures": Value(
        title="failed transfers", unit="transfers", signal="kv_transfer_failures",
        ask=lambda ask, key: ask.read.increase(key, "kv_transfer_failures"), form=count, worse=1, joins=sum,
        join_word="sum",
    ),
    "bytes": Value(
        title="bytes moved a second", unit="bytes/s", signal="kv_transfer_bytes",
        ask=lambda ask, key: ask.read.rate(key, "kv_transfer_bytes"), form=size, worse=0, joins=sum, join_word="sum",
    ),
    "handoff": Value(
        title="prefill answer to first token, p95, at the router", unit="s", signal="handoff_seconds",
        ask=lambda ask, key: ask.read.quantile(key, "handoff_seconds", 0.95), form=seconds, worse=1, joins=max,
        join_word="slowest pair",
    ),
}  # fmt: skip


SHORT: Mapping[MatrixValue, str] = {
    "bandwidth": "B/s each", "p99": "p99", "failures": "failed", "bytes": "bytes/s", "handoff": "handoff p95",
}  # fmt: skip


def pairs_of(ask: Ask) -> list[Pair]:
    """Return the pairs that have data of their own."""
    return [Pair.parse(scope) for scope in ask.by_scope if scope.startswith(PAIR_PREFIX)]


def signals_of(value: Value) -> set[str]:
    """Return the signals of which one is enough to tell a value."""
    return {value.signal, "kv_transfer_bandwidth"} if value is VALUES["bandwidth"] else {value.signal}


def readings(ask: Ask, value: Value) -> dict[Pair, Reading]:
    """Return what is told of each pair that anybody tells of."""
    wanted = signals_of(value)
    return {pair: value.ask(ask, pair.key) for pair in pairs_of(ask) if names_of(ask, pair) & wanted}


def names_of(ask: Ask, pair: Pair) -> frozenset[str]:
    """Return the signals that are told of a pair, without their statistics."""
    return frozenset(name.partition(".")[0] for _, name in ask.by_scope.get(pair.key, ()))


def own(ask: Ask, value: Value, members: list[str]) -> Cell:
    """Return what workers say of all their pairs together."""
    if value.signal == "handoff_seconds":
        return unknown_cell("the router tells it by pair only")
    known = [(r.value, r) for m in members if (r := value.ask(ask, m)).value is not None]
    if not known:
        return unknown_cell(value.ask(ask, members[0]).why or "not known") if members else unknown_cell("nobody")
    joined = value.joins([v for v, _ in known])
    bound = known[0][1].bound if len(known) == 1 else None
    return cell(Reading(joined, bound=bound, n=len(known)), value.form, value.unit, about=f"{value.title}, all pairs")


def pair_cells(ask: Ask, pair: Pair) -> dict[str, Cell]:
    """Return every value of one pair, by its title in short."""
    given = names_of(ask, pair)
    out = {}
    for name, value in VALUES.items():
        reading = value.ask(ask, pair.key)
        known = value.signal in given
        made = cell(reading, value.form, value.unit, about=value.title)
        if made.sort is None and known:
            made = Cell(IDLE, "dim", clean(reading.why or "no transfer"))
        if name == "failures" and (reading.value or 0.0) > 0:
            made = replace(made, style="bad", mark="X")
        out[SHORT[name]] = made
    return out
