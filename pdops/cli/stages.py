"""Show stages while they go on: redrawn on a terminal, a line a change when piped."""

from __future__ import annotations

import shutil
from types import TracebackType
from typing import TextIO

import click

from pdops.cli.style import styler
from pdops.clock import WallClock
from pdops.sequence.run import Progress, Status

_MARKS = {
    Status.WAITING: ("·", "dim"),
    Status.RUNNING: ("▸", "title"),
    Status.READY: ("✓", "good"),
    Status.SKIPPED: ("-", "dim"),
    Status.DEGRADED: ("!", "warn"),
    Status.FAILED: ("✗", "bad"),
}
_CLOCK = WallClock()


class Screen:
    """Draws to one stream, which is standard error as it is no result."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._live = out, out.isatty()
        self._look = styler(out)
        self._drawn = 0
        self._told: dict[str, tuple[Status, str]] = {}

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drawn = 0

    def say(self, text: str) -> None:
        """Print a line of progress above the stages."""
        self._erase()
        click.echo(text, file=self._out)

    def show(self, stages: tuple[Progress, ...]) -> None:
        """Show where all stages stand."""
        if self._live:
            self._erase()
            lines = [self._line(p) for p in stages]
            click.echo("\n".join(lines), file=self._out)
            self._drawn = len(lines)
            return
        for progress in stages:
            now = (progress.status, progress.detail if progress.status is not Status.WAITING else "")
            was = self._told.get(progress.stage.id)
            if was is None and progress.status is Status.WAITING:
                continue
            # A stage that only waits longer is one line; a change of status, or of what it waits for, is another.
            if was != now and (was is None or was[0] is not now[0] or now[0] is not Status.RUNNING):
                self._told[progress.stage.id] = now
                click.echo(self._line(progress), file=self._out)

    def _line(self, progress: Progress) -> str:
        mark, look = _MARKS[progress.status]
        age = f"{max(0.0, _CLOCK.now() - progress.since_s):4.0f} s" if progress.status is Status.RUNNING else " " * 6
        text = progress.detail or progress.stage.title
        line = f"{mark} {progress.stage.id:<13} {age}  {text}"
        columns = shutil.get_terminal_size((160, 24)).columns if self._live else 1000
        return self._look(line if len(line) < columns else line[: columns - 2] + "…", look)

    def _erase(self) -> None:
        if self._live and self._drawn:
            click.echo(f"\x1b[{self._drawn}A\x1b[J", file=self._out, nl=False)
            self._drawn = 0
