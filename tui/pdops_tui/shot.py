"""A picture of the screen, for documents and tickets."""

from __future__ import annotations

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
