"""The pool tables: rows are made when they are asked for, so a thousand workers cost what is on the screen."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pdops.model.cluster import Role, Worker, pool_key
from pdops.model.view import Presence
from pdops.sources.validate import did_you_mean
from pdops_tui.models.ask import AWAY, Ask
from pdops_tui.models.columns import COLUMNS, VITAL, Column
from pdops_tui.models.format import Cell, Style
from pdops_tui.models.text import cells, clean

_FITS = 8
"""Up to so many workers are on the screen anyway, and stay where they are."""
ROLES = (Role.PREFILL, Role.DECODE, Role.COLOCATED)


@dataclass(frozen=True, slots=True)
class Order:
    """Which column sorts a table; an empty `key` keeps the inventory's order."""

    key: str = ""
    descending: bool = True

    def next(self, key: str) -> Order:
        """Return the order after one more press on a column: descending, ascending, inventory."""
        if self.key != key:
            return Order(key)
        return Order(key, descending=False) if self.descending else Order()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a worker's or a pool's. `dim` says that its numbers are not about now."""

    id: str
    name: str
    state: Cell
    cells: tuple[Cell, ...]
    is_pool: bool = False
    dim: bool = False


@dataclass(slots=True)
class Table:
    """The workers of one role, filtered and ordered, with a row for each pool at the end."""

    role: Role
    columns: tuple[Column, ...]
    ids: tuple[str, ...]
    pools: tuple[str, ...]
    total: int
    up: int
    away: int
    order: Order
    filter: str
    name_width: int
    _ask: Ask
    _rows: dict[tuple[bool, str], Row] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids) + len(self.pools)

    @property
    def title(self) -> str:
        """The role, how many of its workers are up, and what limits or orders the rows."""
        known = "up" if self.away or self.up else "given"
        parts = [f"{self.role.value.upper()} {self.total - self.away}/{self.total} {known}"]
        if self.filter:
            parts.append(f"filter '{clean(self.filter, 40)}' shows {len(self.ids)}")
        if self.order.key:
            titles = {c.key: c.title for c in self.columns} | {"worker": "WORKER", "state": "STATE"}
            way = "down" if self.order.descending else "up"
            parts.append(f"by {titles.get(self.order.key, self.order.key)} {way}")
        return " · ".join(parts)

    def row(self, index: int) -> Row:
        """Return a row, workers first.

        Raises:
            IndexError: there is no such row.
        """
        if index >= len(self.ids):
            return self._made(True, self.pools[index - len(self.ids)])
        return self._made(False, self.ids[index])

    def rows(self, start: int = 0, stop: int | None = None) -> tuple[Row, ...]:
        """Return rows `start` to `stop` (exclusive) as far as they exist."""
        return tuple(self.row(i) for i in range(max(0, start), min(len(self), len(self) if stop is None else stop)))

    def _made(self, is_pool: bool, name: str) -> Row:
        key = (is_pool, name)
        made = self._rows.get(key)
        if made is None:
            made = self._pool(name) if is_pool else self._worker(name)
            self._rows[key] = made
        return made

    def _worker(self, worker_id: str) -> Row:
        worker = self._ask.view.cluster.get(worker_id)
        assert worker is not None
        return Row(
            id=worker_id,
            name=clean(worker_id),
            state=self._ask.state(worker, VITAL[self.role]),
            cells=tuple(c.make(self._ask, worker_id) for c in self.columns),
            dim=self._ask.health(worker_id).presence in AWAY,
        )

    def _pool(self, name: str) -> Row:
        members = [w.id for w in self._ask.view.cluster.of_pool(name)]
        away = self._ask.away_in(pool_key(name))
        made = tuple(c.make(self._ask, pool_key(name)) for c in self.columns)
        label = f"pool {clean(name)}" if clean(name) != self.role.value else "pool"
        return Row(f"pool:{name}", label, self._pool_state(name, members, away), made, is_pool=True)

    def _pool_state(self, name: str, members: list[str], away: tuple[str, ...]) -> Cell:
        said = self._ask.named.get(f"pool {name}")
        if said is not None:
            return Cell(said[0], said[1], said[3])
        up = f"{len(members) - len(away)}/{len(members)}"
        style: Style = "bad" if members and len(away) == len(members) else "warn" if away else ""
        if away and self._ask.awaited(away):
            style = "unknown"
        return Cell(up, style, f"{up} workers are there", sort=0.0)


def tables(
    ask: Ask,
    *,
    filter_text: str = "",
    orders: Mapping[Role, Order] | None = None,
    hidden: Mapping[Role, frozenset[str]] | None = None,
) -> tuple[Table, ...]:
    """Return a table for each role that has workers, without the columns of the `hidden` keys."""
    found = []
    for role in ROLES:
        members = ask.view.cluster.of_role(role)
        if members:
            columns = tuple(c for c in COLUMNS[role] if c.key not in (hidden or {}).get(role, ()))
            found.append(_table(ask, role, members, filter_text, (orders or {}).get(role, Order()), columns))
    return tuple(found)


def one_pool(
    ask: Ask, role: Role, pool: str, filter_text: str = "", orders: Mapping[Role, Order] | None = None
) -> Table | None:
    """Return the table of one pool, or None when it has no worker of a role that has tables."""
    members = ask.view.cluster.of_pool(pool)
    if role not in COLUMNS or not members:
        return None
    return _table(ask, role, members, filter_text, (orders or {}).get(role, Order()), COLUMNS[role])


def _table(
    ask: Ask, role: Role, members: tuple[Worker, ...], filter_text: str, order: Order, columns: tuple[Column, ...]
) -> Table:
    wanted = matcher(filter_text)
    shown = tuple(w for w in members if wanted(w, ask)) if wanted else members
    presence = [ask.health(w.id).presence for w in members]
    made = Table(
        role=role,
        columns=columns,
        ids=tuple(w.id for w in shown),
        pools=tuple(dict.fromkeys(w.pool for w in members)),
        total=len(members),
        up=sum(p is Presence.UP for p in presence),
        away=sum(p in AWAY for p in presence),
        order=order,
        filter=filter_text,
        name_width=max((cells(clean(w.id)) for w in members), default=0),
        _ask=ask,
    )
    if order.key:
        made.ids = _sorted(made, ask, order)
    elif len(made.ids) > _FITS:
        made.ids = tuple(sorted(made.ids, key=lambda w: _rank(ask, w)))
    return made


def _rank(ask: Ask, worker_id: str) -> int:
    return 0 if ask.health(worker_id).presence in AWAY else 1 if worker_id in ask.named else 2


def _sorted(table: Table, ask: Ask, order: Order) -> tuple[str, ...]:
    if order.key == "worker":
        return tuple(sorted(table.ids, reverse=not order.descending))
    if order.key == "state":
        states = {w: _state(ask, w, table.role) for w in table.ids}
    else:
        column = next((c for c in table.columns if c.key == order.key), None)
        if column is None:
            return table.ids
        states = {w: column.make(ask, w) for w in table.ids}
    known = [w for w in table.ids if states[w].sort is not None]
    silent = [w for w in table.ids if states[w].sort is None]
    known.sort(key=lambda w: states[w].sort or 0.0, reverse=order.descending)
    return (*known, *silent)


def _state(ask: Ask, worker_id: str, role: Role) -> Cell:
    worker = ask.view.cluster.get(worker_id)
    assert worker is not None
    return ask.state(worker, VITAL[role])


def matcher(text: str) -> Callable[[Worker, Ask], bool] | None:
    """Return a test of workers for a filter, or None for one that lets all pass.

    Every word must be part of the worker's id, role, pool, node, zone or state; a word after `!` must not be. `role:x`, `pool:x`
    and the like look there only; `kv>80` compares what a column shows, a number that is not known passes neither way.
    """
    tests = [_test(word) for word in text.split() if word != "!"]
    if not tests:
        return None
    return lambda worker, ask: all(test(worker, ask) for test in tests)


def mistaken(text: str) -> tuple[str, str] | None:
    """Return the first word of a filter that can match nobody, whoever is there, and a hint; None when each may."""
    columns = {name for of_role in COLUMNS.values() for column in of_role for name in _names(column)}
    for word in text.split():
        bare = word.removeprefix("!").casefold()
        compared = _COMPARED.fullmatch(word.removeprefix("!"))
        if compared is not None:
            if compared[1].casefold() not in columns:
                return word, did_you_mean(compared[1], sorted(columns), label="columns")
        elif any(sign in bare for sign in "<>="):
            return word, "compare a column with a number, as kv>80 or ttft95>500ms"
        elif ":" in bare and (name := bare.partition(":")[0]) not in _FIELDS:
            return word, did_you_mean(name, _FIELDS, label="places")
    return None


def _test(word: str) -> Callable[[Worker, Ask], bool]:
    compared = _COMPARED.fullmatch(word.removeprefix("!"))
    if compared is not None:
        return _comparison(compared[1].casefold(), compared[2], compared[3], wanted_truth=not word.startswith("!"))
    if word.startswith("!"):
        inner = _test(word[1:])
        return lambda worker, ask: not inner(worker, ask)
    field_name, colon, part = word.casefold().partition(":")
    if colon and field_name in _FIELDS:
        return lambda worker, ask: part in _place(worker, ask)[field_name]
    return lambda worker, ask: any(word.casefold() in text for text in _place(worker, ask).values())


_FIELDS = ("id", "role", "pool", "node", "zone", "state")
_COMPARED = re.compile(r"([A-Za-z][\w%/]*)(>=|<=|>|<|=)(-?\d+(?:\.\d+)?(?:us|ms|s|%|k|M|G)?)")
_SCALE = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "%": 0.01, "k": 1e3, "M": 1e6, "G": 1e9, "": 1.0}
_BY: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq,
}  # fmt: skip


def _place(worker: Worker, ask: Ask) -> dict[str, str]:
    state = ask.state(worker, VITAL.get(worker.role, ())).text
    found = (worker.id, worker.role, worker.pool, worker.node, worker.zone, state)
    return {name: (value or "").casefold() for name, value in zip(_FIELDS, found, strict=True)}


def _comparison(name: str, sign: str, amount: str, *, wanted_truth: bool) -> Callable[[Worker, Ask], bool]:
    unit = amount.lstrip("-0123456789.")
    number = float(amount.removesuffix(unit))

    def wanted(worker: Worker, ask: Ask) -> bool:
        column = next((c for c in COLUMNS.get(worker.role, ()) if name in _names(c)), None)
        value = column.make(ask, worker.id).sort if column is not None else None
        if column is None or value is None:
            return False
        # A column of per cent is compared in per cent, as it is shown.
        scale = 0.01 if not unit and column.title.endswith("%") else _SCALE[unit]
        return _BY[sign](value, number * scale) is wanted_truth

    return wanted


def _names(column: Column) -> tuple[str, ...]:
    return column.key, column.title.casefold(), column.title.casefold().rstrip("%").replace("/s", "").replace(" ", "")
