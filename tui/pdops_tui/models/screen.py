"""The whole screen as data: one pure function of a snapshot and what the person asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pdops.model.cluster import Role
from pdops_tui.models import diagnosis, events, header, others, pools, ttft
from pdops_tui.models.ask import Ask
from pdops_tui.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the person asked for: which workers to show and how each table is ordered."""

    filter: str = ""
    orders: Mapping[Role, pools.Order] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Everything there is to draw. Table rows are made when a drawing asks for them."""

    snapshot: Snapshot
    ask: Ask
    header: header.Header
    split: ttft.Split
    tables: tuple[pools.Table, ...]
    others: tuple[others.Other, ...]
    diagnosis: diagnosis.Diagnosis
    events: tuple[events.Happening, ...]


def build(snapshot: Snapshot, wishes: Wishes | None = None) -> Screen:
    """Return the screen of a snapshot."""
    wishes = wishes or Wishes()
    ask = Ask(snapshot.view, snapshot.report)
    return Screen(
        snapshot=snapshot,
        ask=ask,
        header=header.header(snapshot, ask),
        split=ttft.split(snapshot.report),
        tables=pools.tables(ask, filter_text=wishes.filter, orders=wishes.orders),
        others=others.others(ask),
        diagnosis=diagnosis.brief(snapshot.report),
        events=events.happenings(snapshot.view),
    )
