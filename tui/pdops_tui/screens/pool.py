"""One pool: what it does over time, its workers beside each other, what it does not tell."""

from __future__ import annotations

from pdops.model.cluster import pool_key
from pdops_tui.draw.line import span, wrap
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.draw.table import grid, head_line, row_line
from pdops_tui.draw.vitals import vital_lines
from pdops_tui.models.pools import one_pool
from pdops_tui.models.text import clean
from pdops_tui.models.trend import span_of
from pdops_tui.models.vitals import lacking, vitals
from pdops_tui.places import DIAGNOSIS, WORKER, Place
from pdops_tui.screens.scene import Scene

BINS = 60
MOST = 200
"""Workers listed; those that are away or named come first, and more are not read one by one."""


def sheet(scene: Scene) -> Sheet:
    """Return the pool of the place."""
    ask, pool = scene.ask, scene.place.id
    out = Draft(scene.width)
    members = ask.view.cluster.of_pool(pool)
    if not members:
        out.add(span(f" there is no pool {clean(pool, 60)} now", "unknown"))
        return out.sheet()
    role = members[0].role
    away = ask.away_in(pool_key(pool))
    out.title(
        f"{role.value.upper()} POOL {clean(pool, 60)} · {len(members) - len(away)}/{len(members)} there", span_of(ask)
    )
    out.extend(vital_lines(vitals(ask, role, pool_key(pool), BINS), scene.width, peers=False))
    said = ask.named.get(f"pool {pool}")
    if said is not None:
        out.spot(((f" {said[0]} ", said[1]), (said[3], "")), Place(DIAGNOSIS))
    table = one_pool(ask, role, pool, scene.session.filter, scene.session.orders)
    if table is not None:
        out.title(table.title, "enter opens a worker")
        layout = grid(table, scene.width)
        out.add(head_line(table, layout))
        for index in range(min(len(table.ids), MOST)):
            out.spot(row_line(table, table.row(index), layout), Place(WORKER, table.ids[index]))
        if len(table.ids) > MOST:
            text = (
                f" {len(table.ids) - MOST} more are not shown here; the main screen has them all, to filter and to sort"
            )
            out.add(span(text, "dim"))
        for index in range(len(table.ids), len(table)):
            out.add(row_line(table, table.row(index), layout))
    silent = lacking(ask, role, pool)
    if silent:
        out.title("NOT KNOWN OF THIS POOL")
        for title, why in silent:
            first, *rest = wrap(why, max(10, scene.width - 12))
            out.add(((f" ? {title:<8} ", "unknown"), (first, "")))
            out.extend(span(f"{'':12}{line}") for line in rest)
    return out.sheet()
