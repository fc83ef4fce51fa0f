"""A picture of the screen, for documents and tickets.

`python -m pdops_tui.shot RECORDING SECONDS` prints the one of a recording that many seconds after its start.
"""

from __future__ import annotations

import asyncio
import sys

from pdops.diagnose import scan
from pdops.sources.recording import open_recording
from pdops_tui.app import TopApp
from pdops_tui.snapshot import Command, Snapshot
from pdops_tui.widgets.picture import picture


class Still:
    """A feed of one snapshot that never changes."""

    failure = None

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""

    def latest(self) -> Snapshot:
        """Return the snapshot."""
        return self._snapshot

    def control(self, command: Command) -> None:
        """Ignore it."""


async def screenshot(
    snapshot: Snapshot, *, width: int = 120, height: int = 36, ascii: bool = False, title: str = "pdops top"
) -> str:
    """Return the screen of a snapshot as an SVG picture."""
    app = TopApp(Still(snapshot), ascii=ascii)
    async with app.run_test(size=(width, height)) as pilot:
        await app.settled()
        await pilot.pause()
        return picture(app, title)


def main(path: str, after_s: str) -> None:
    """Print the picture of a recording, `after_s` seconds after its start."""
    record = open_recording(path)
    at_s = record.start_s + float(after_s)
    judged = scan.at(record.iter_frames(), record.cluster, at_s, interval_s=record.interval_s)
    snapshot = Snapshot(
        seq=0, view=judged.view, report=judged.report, source=f"replay {record.path.rpartition('/')[2]}"
    )
    sys.stdout.write(asyncio.run(screenshot(snapshot, height=40)))


if __name__ == "__main__":
    main(*sys.argv[1:3])
