"""The rendered cell grid of the app as text: what stands in the cells, and below it in which style."""

from __future__ import annotations

import os
from pathlib import Path

from rich.segment import Segment

from pdops_tui.app import TopApp
from pdops_tui.desk import Desk
from pdops_tui.places import Place
from pdops_tui.session import Session
from pdops_tui.shot import Still
from pdops_tui.snapshot import Snapshot

GOLDEN = Path(__file__).parent / "golden"


async def drawn(
    snapshot: Snapshot,
    places: tuple[Place, ...],
    size: tuple[int, int],
    *,
    session: Session | None = None,
    desk: Desk | None = None,
) -> str:
    """Return the grid of the app at a place, reached through the places before it."""
    app = TopApp(Still(snapshot), session=session, desk=desk)
    app.animation_level = "none"
    async with app.run_test(size=size) as pilot:
        await app.settled()
        for place in places:
            app.action_open(place.kind, place.id)
            await pilot.pause()
            await app.settled()
        await pilot.pause()
        return grid(app)


def grid(app: TopApp) -> str:
    """Return the lines without trailing blanks, a rule, then for each line its runs of style as `first-last style`."""
    strips = app.screen._compositor.render_strips(app.size)
    texts = [strip.text.rstrip() for strip in strips]
    styles = [f"{y:>3} {runs}" for y, strip in enumerate(strips) if (runs := _runs(list(strip)))]
    return "\n".join([*texts, "~" * 20, *styles, ""])


def _runs(segments: list[Segment]) -> str:
    found: list[list[object]] = []
    at = 0
    for segment in segments:
        style, width = _named(segment), segment.cell_length
        if style and width:
            if found and found[-1][2] == style and found[-1][1] == at - 1:
                found[-1][1] = at + width - 1
            else:
                found.append([at, at + width - 1, style])
        at += width
    return "  ".join(f"{first}-{last} {style}" for first, last, style in found)


def _named(segment: Segment) -> str:
    style = segment.style
    if style is None:
        return ""
    words = [word for word in ("bold", "reverse", "dim", "underline") if getattr(style, word)]
    if style.color is not None and not style.color.is_default:
        words.append(style.color.name)
    return "+".join(words)


def golden(name: str, found: str) -> None:
    """Compare with the golden of a name, or write it when PDOPS_UPDATE_GOLDEN is set."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PDOPS_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")
