"""What the person at the screen asked for: one immutable state for all screens, replaced as a whole when it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pdops.model.cluster import Role, Slo
from pdops_tui.models.pools import Order

MatrixValue = Literal["bandwidth", "p99", "failures", "bytes", "handoff"]
MATRIX_VALUES: tuple[MatrixValue, ...] = ("bandwidth", "p99", "failures", "bytes", "handoff")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixWish:
    """How the P×D matrix is shown: which value, as it is or beside the matrix's median, in which order."""

    value: MatrixValue = "bandwidth"
    relative: bool = False
    worst_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The state of one session.

    Attributes:
        filter: words that workers must match; see `models.pools.matcher`.
        orders: how each table is ordered.
        slo: stands for the inventory's own SLO while the session lasts.
        paused: the screen holds still; data is still taken in.
        theme: name of the palette.
        hidden: keys of the columns that are not shown, by role.
        notice: what the last command answered; the next key takes it away.
        matrix: how the P×D matrix is shown.
    """

    filter: str = ""
    orders: Mapping[Role, Order] = field(default_factory=dict)
    slo: Slo | None = None
    paused: bool = False
    theme: str = "terminal"
    hidden: Mapping[Role, frozenset[str]] = field(default_factory=dict)
    notice: str = ""
    matrix: MatrixWish = MatrixWish()
