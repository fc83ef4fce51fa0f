"""KV transfers of every prefill and decode pair: one value a pair, said by a source that knows pairs, or `?`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pdops.diagnose.limits import FALLBACK, SLOW
from pdops.model.cluster import Pair, Role
from pdops.model.series import Reading
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import Cell, cell, unknown_cell
from pdops_tui.models.groups import groups
from pdops_tui.models.pairs import IDLE, VALUES, Value, names_of, own, pairs_of, readings, signals_of
from pdops_tui.models.text import clean
from pdops_tui.session import MatrixValue, MatrixWish

MOST = 16
"""More senders or receivers than this are grouped: a larger table is not read."""
WORST = 12
"""Pairs that are listed one by one where the table is grouped."""
_FEW = 3
"""Fewer known pairs than this have no median worth comparing with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The table. `cells` are rows of senders over columns of receivers; `opens` names the pair behind a cell, or "".

    `received` and `sent` are what workers say of all their pairs together. `shares` are cells beside the median, None
    where that says nothing. `told` counts pairs that are known, of `pairs`; `worst` are the worst of
    them, one by one.
    """

    value: MatrixValue
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    opens: tuple[tuple[str, ...], ...]
    shares: tuple[tuple[float | None, ...], ...]
    received: tuple[Cell, ...]
    sent: tuple[Cell, ...]
    grouped: str
    told: int
    pairs: int
    median: float | None
    source: str
    says: tuple[str, ...]
    worst: tuple[tuple[str, Cell, float | None], ...] = ()

    @property
    def idle(self) -> bool:
        """Whether pairs are told of, and no transfer of them has a number."""
        return not self.told and any(c.text == IDLE for row in self.cells for c in row)


def best(ask: Ask, wish: MatrixWish, most: int = MOST) -> Matrix:
    """Return the matrix of the value that is wished, or of hand-off when only that is told by pair; without its edges."""
    told = frozenset[str]().union(*(names_of(ask, pair) for pair in pairs_of(ask)))
    if not told & signals_of(VALUES[wish.value]) and VALUES["handoff"].signal in told:
        wish = replace(wish, value="handoff")
    return matrix(ask, wish, most, edges=False)


def matrix(ask: Ask, wish: MatrixWish, most: int = MOST, *, edges: bool = True) -> Matrix:
    """Return the matrix of a View; without `edges` nobody is asked what workers say of all their pairs together."""
    value = VALUES[wish.value]
    senders = ask.view.cluster.of_role(Role.PREFILL)
    receivers = ask.view.cluster.of_role(Role.DECODE)
    grouped, row_of, column_of = groups(senders, receivers, most)
    found = readings(ask, value)
    tellers = {pair.dst for pair in found} if wish.value != "handoff" else {w.id for w in receivers if found}
    known = [r.value for r in found.values() if r.value is not None]
    middle = _middle(known, value) if len(known) >= _FEW else None
    row_at = {w: i for i, members in enumerate(row_of.values()) for w in members}
    column_at = {w: j for j, members in enumerate(column_of.values()) for w in members}
    told: dict[tuple[int, int], dict[Pair, Reading]] = {}
    for pair, reading in found.items():
        if pair.src in row_at and pair.dst in column_at:
            told.setdefault((row_at[pair.src], column_at[pair.dst]), {})[pair] = reading
    table: list[list[Cell]] = []
    opens: list[list[str]] = []
    shares: list[list[float | None]] = []
    for i, members in enumerate(row_of.values()):
        line, ways, parts = [], [], []
        for j, others in enumerate(column_of.values()):
            mine = told.get((i, j), {})
            made, share = _cell(value, mine, middle, relative=wish.relative)
            if made is None:
                made = _silent(value, mine, heard=all(o in tellers for o in others))
            line.append(made)
            parts.append(share)
            ways.append(str(_worst(value, mine) or Pair(members[0], others[0])))
        table.append(line)
        opens.append(ways)
        shares.append(parts)
    made_of = Matrix(
        value=wish.value,
        rows=tuple(map(clean, row_of)),
        columns=tuple(map(clean, column_of)),
        cells=tuple(map(tuple, table)),
        opens=tuple(map(tuple, opens)),
        shares=tuple(map(tuple, shares)),
        received=tuple(own(ask, value, members) for members in column_of.values()) if edges else (),
        sent=tuple(own(ask, value, members) for members in row_of.values()) if edges else (),
        grouped=grouped,
        told=len(known),
        pairs=len(senders) * len(receivers),
        median=middle,
        source=_source(ask, found, value),
        says=(),
        worst=_ranked(value, found, middle, relative=wish.relative),
    )
    if wish.worst_first:
        made_of = _ordered(made_of, value)
    return replace(made_of, says=_says(made_of))


def _cell(
    value: Value, told: Mapping[Pair, Reading], middle: float | None, *, relative: bool
) -> tuple[Cell | None, float | None]:
    """Return the cell of a pair or group and its share of the median; None when no number of it is known."""
    known = [r.value for r in told.values() if r.value is not None]
    if not known:
        return None, None
    joined = value.joins(known)
    worst = _worst(value, told)
    reading = replace(told[worst], value=joined) if worst is not None else Reading(joined)
    about = f"{value.title}; {worst}" if len(told) == 1 else f"{value.title}; {value.join_word} of {len(known)} known"
    share = joined / middle if middle and value.worse and value.joins is not sum else None
    made = cell(reading, value.form, value.unit, about=about)
    if value.signal == "kv_transfer_failures":
        made = replace(made, style="bad", mark="X") if joined > 0 else made
    elif share is not None:
        bad = share if value.worse < 0 else 1.0 / share if share else 1.0
        if bad < FALLBACK:
            made = replace(made, style="bad", mark="X", why=f"{made.why}; {share:.2g} of the median")
        elif bad < SLOW:
            made = replace(made, style="warn", mark="!", why=f"{made.why}; {share:.2g} of the median")
    if relative and share is not None:
        made = replace(made, text=f"{share:.2g}x")
    return made, share


def _middle(known: list[float], value: Value) -> float:
    """Return the median; of two middle ones the better, so that half of the pairs being bad does not make bad usual."""
    ordered = sorted(known)
    return ordered[len(ordered) // 2 if value.worse < 0 else (len(ordered) - 1) // 2]


def _ranked(
    value: Value, found: Mapping[Pair, Reading], middle: float | None, *, relative: bool
) -> tuple[tuple[str, Cell, float | None], ...]:
    """Return the pairs with the worst numbers."""
    known = sorted((r.value, p) for p, r in found.items() if r.value is not None)
    if value.worse >= 0:
        known.reverse()
    out = []
    for _, pair in known[:WORST]:
        made, share = _cell(value, {pair: found[pair]}, middle, relative=relative)
        if made is not None:
            out.append((str(pair), made, share))
    return tuple(out)


def _silent(value: Value, told: Mapping[Pair, Reading], *, heard: bool) -> Cell:
    """Return the cell of a pair or group without a number; `heard` says that its receivers do tell of pairs."""
    if told:
        return Cell(IDLE, "dim", clean("; ".join(sorted({r.why or "no transfer" for r in told.values()}))[:200]))
    if heard:
        return Cell(IDLE, "dim", "its receiver tells of its pairs and has counted none with this sender")
    return unknown_cell(f"nobody tells {value.signal} of this pair; engines name no peer")


def _worst(value: Value, told: Mapping[Pair, Reading]) -> Pair | None:
    known = [(r.value, p) for p, r in told.items() if r.value is not None]
    if not known:
        return None
    return min(known)[1] if value.worse < 0 else max(known)[1]


def _source(ask: Ask, found: Mapping[Pair, Reading], value: Value) -> str:
    if not found:
        handed = any("handoff_seconds" in names_of(ask, p) for p in pairs_of(ask))
        instead = "hand-off is told by pair here (v); " if handed else "pdops-router would tell hand-off by pair, "
        return (
            f"? nobody tells {value.signal} by pair: engines name no peer. {instead}"
            "the vLLM plugin of pdops would tell all of it. What workers say of all their pairs stands at the edges"
        )
    if value.signal == "handoff_seconds":
        return "by pair from the router"
    return "by pair from the engines' plugin, or as given"


def _ordered(made: Matrix, value: Value) -> Matrix:
    """Return the matrix with the worst rows and columns first; what is not known goes last."""

    def rank(cells: Iterable[Cell]) -> tuple[bool, float]:
        known = [c.sort for c in cells if c.sort is not None]
        if not known:
            return True, 0.0
        return False, min(known) if value.worse < 0 else -max(known)

    rows = sorted(range(len(made.rows)), key=lambda i: rank(made.cells[i]))
    columns = sorted(range(len(made.columns)), key=lambda j: rank(row[j] for row in made.cells))
    picked = partial(_picked, columns)
    return replace(
        made,
        rows=tuple(made.rows[i] for i in rows),
        columns=picked(made.columns),
        cells=tuple(picked(made.cells[i]) for i in rows),
        opens=tuple(picked(made.opens[i]) for i in rows),
        shares=tuple(picked(made.shares[i]) for i in rows),
        received=picked(made.received) if made.received else (),
        sent=tuple(made.sent[i] for i in rows) if made.sent else (),
    )


def _picked(order: list[int], items: tuple[object, ...]) -> tuple:  # type: ignore[type-arg]
    return tuple(items[i] for i in order)


def _says(made: Matrix) -> tuple[str, ...]:
    """Return what rows and columns say: one that is bad with all its peers is where the fault is, not its peers."""
    out = []
    for j, name in enumerate(made.columns):
        column = [row[j] for row in made.cells]
        if _all_bad(column) and not _all_bad([c for row in made.cells for c in row]):
            out.append(f"{name} is out of line with every sender it heard: the receiver's side")
    for i, name in enumerate(made.rows):
        if _all_bad(list(made.cells[i])) and not _all_bad([c for row in made.cells for c in row]):
            out.append(f"{name} is out of line with every receiver it served: the sender's side")
    return tuple(out[:4])


def _all_bad(cells: list[Cell]) -> bool:
    known = [c for c in cells if c.sort is not None]
    return len(known) > 1 and all(c.mark for c in known)
