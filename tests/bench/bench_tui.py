"""Print what one tick of the screen costs at 64, 512 and 2048 workers.

Three parts are timed apart, because they run in three threads: making the View, building the screen's data, drawing what
is in sight. Only the last one can hold up the keyboard. Run as a script: `python tests/bench/bench_tui.py [ROWS ...]`.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in (".", "tui")]

from pdops.history.ring import Ring  # noqa: E402
from pdops_tui.app import TopApp  # noqa: E402
from pdops_tui.models.screen import Screen, build  # noqa: E402
from pdops_tui.once import render_once  # noqa: E402
from pdops_tui.shot import Still  # noqa: E402
from pdops_tui.snapshot import Snapshot  # noqa: E402
from tests.tui import build as b  # noqa: E402

TICKS = 5
SECONDS = 12


def timed(work: Callable[[], object]) -> float:
    """Return the median wall milliseconds of a few runs."""
    found = []
    for _ in range(TICKS):
        begun = time.perf_counter()
        work()
        found.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(found)


def in_sight(screen: Screen) -> None:
    """Make the rows a large terminal shows."""
    for table in screen.tables:
        table.rows(0, 40)
        table.rows(len(table.ids))


async def drawing(snapshots: list[Snapshot]) -> float:
    """Return the median milliseconds the drawing thread takes for a new screen."""
    app = TopApp(Still(snapshots[0]))
    found = []
    async with app.run_test(size=(200, 60)) as pilot:
        await app.settled()
        await pilot.pause()
        for snapshot in snapshots[1:]:
            screen = build(snapshot)
            in_sight(screen)
            begun = time.perf_counter()
            app._draw(screen)
            await pilot.pause()
            found.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(found)


def measure(workers: int) -> None:
    """Print one line for a cluster of this many workers."""
    who = b.cluster(workers // 4, workers - workers // 4)
    ring = Ring(who)
    snapshots = []
    for number, frame in enumerate(b.frames(who, SECONDS)):
        ring.add(frame)
        if number > SECONDS - TICKS - 1:
            view = ring.view()
            snapshots.append(Snapshot(seq=number, view=view, report=b.fault_report(view), source="bench"))

    def built() -> None:
        last = snapshots[-1]
        fresh = Snapshot(seq=0, view=ring.view(), report=last.report, source="bench")
        in_sight(build(fresh))

    view_ms = timed(ring.view)
    build_ms = timed(built) - view_ms
    draw_ms = asyncio.run(drawing(snapshots))
    once_ms = timed(lambda: render_once(ring.view(), snapshots[-1].report, 120, 36))
    print(
        f"{workers:>6} workers: view {view_ms:8.1f} ms   build {build_ms:8.1f} ms   draw {draw_ms:8.1f} ms   once {once_ms:8.1f} ms"
    )


if __name__ == "__main__":
    for rows in [int(arg) for arg in sys.argv[1:]] or [64, 512, 2048]:
        measure(rows)
