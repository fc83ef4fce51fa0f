"""The whole screen as data: one pure function of a snapshot and the session."""

from __future__ import annotations

from dataclasses import dataclass

from pdops_tui.models import diagnosis, events, header, matrix, others, pools, slo, trends, ttft
from pdops_tui.models.ask import Ask
from pdops_tui.session import Session
from pdops_tui.snapshot import Snapshot


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
    kept: slo.Kept
    matrix: matrix.Matrix
    trends: tuple[trends.Line, ...]
    relative: bool = False


def build(snapshot: Snapshot, session: Session | None = None) -> Screen:
    """Return the screen of a snapshot."""
    session = session or Session()
    ask = Ask(snapshot.view, snapshot.report)
    return Screen(
        snapshot=snapshot,
        ask=ask,
        header=header.header(snapshot, ask),
        split=ttft.split(snapshot.report),
        tables=pools.tables(ask, filter_text=session.filter, orders=session.orders, hidden=session.hidden),
        others=others.others(ask),
        diagnosis=diagnosis.brief(snapshot.report),
        events=events.happenings(snapshot.view),
        kept=slo.kept(ask),
        matrix=matrix.best(ask, session.matrix),
        trends=trends.trends(ask),
        relative=session.matrix.relative,
    )
