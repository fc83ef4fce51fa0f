"""`pdops top`: every pool and worker, live or replayed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.cli.desk import desk_for
from pdops.cli.inputs import Inputs, live_source, open_played, source_options
from pdops.cli.judge import judge, moment
from pdops.cli.style import Number
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.diagnose.scan import Judged
    from pdops_tui.desk import Desk
    from pdops_tui.snapshot import Feed


@click.command(
    "top",
    epilog="Examples:\n\n\b\n  pdops top -c pdops.yaml\n  pdops top --replay incident.pdrec --speed 8\n"
    "  COLUMNS=120 pdops top --once --target prefill=http://10.0.3.11:8000 --target decode=http://10.0.3.12:8000",
)
@source_options()
@click.option("--once", is_flag=True, help="Print one screen and exit; obeys COLUMNS.")
@click.option("--at", metavar="T", help="With --replay: the instant to print or to start at; as in `pdops diagnose`.")
@click.option("--speed", type=Number(0.1, 64), default=1.0, show_default=True, help="With --replay: how fast.")
@click.option(
    "--for",
    "watch_s",
    type=Number(2, 900),
    default=10.0,
    show_default=True,
    metavar="S",
    help="With --once and live targets: how long to watch before printing.",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
def command(inputs: Inputs, once: bool, at: str | None, speed: float, watch_s: float, ascii_only: bool) -> int:
    """Show pools, workers, the split of TTFT and the diagnosis.

    Keys are listed under `?` on the screen. Piped, or with --once, one screen is printed as text.
    """
    kind = inputs.kind()
    if at is not None and kind != "replay":
        raise UsageError("--at needs --replay", hint="live sources are shown now")
    if once or not sys.stdout.isatty() or kind == "case":
        judged, answered = judge(inputs, at, watch_s)
        click.echo(screen_text(judged, source=source_label(inputs), ascii_only=ascii_only), nl=False)
        return 0 if answered else 3
    if inputs.replay is not None:
        return open_replay(inputs.replay, at=at, speed=speed, ascii_only=ascii_only)
    from pdops.diagnose.engine import diagnose
    from pdops_tui.feed import LiveFeed

    feed = LiveFeed(live_source(inputs), diagnose, label=source_label(inputs))
    return _show(feed, ascii_only, desk_for(inputs))


def open_replay(path: Path, *, at: str | None = None, speed: float = 1.0, ascii_only: bool = False) -> int:
    """Open the screen on a recording; return the exit status."""
    from pdops.diagnose.engine import diagnose
    from pdops_tui.feed import ReplayFeed

    played = open_played(path)
    start_s = moment(at, played.start_s, played.end_s) if at is not None else None
    return _show(ReplayFeed(played.record, diagnose, speed=speed, start_s=start_s), ascii_only)


def screen_text(judged: Judged, *, source: str, ascii_only: bool = False) -> str:
    """Return one screen as text, as wide as COLUMNS or the terminal."""
    from pdops.cli.style import width
    from pdops_tui.once import render_once

    dressed = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return render_once(judged.view, judged.report, width(), ascii=ascii_only, color=dressed, source=source)


def source_label(inputs: Inputs) -> str:
    """Return where data comes from, in a few words."""
    if inputs.replay is not None:
        return f"replay {inputs.replay.name}"
    if inputs.case is not None:
        return f"case {inputs.case.name}"
    if inputs.prometheus is not None:
        return "prometheus"
    return "scrape"


def _show(feed: Feed, ascii_only: bool, desk: Desk | None = None) -> int:
    try:
        from pdops_tui.app import run_top
    except ModuleNotFoundError as error:
        if error.name not in ("textual", "rich"):
            raise
        raise UsageError(
            "the screen needs the `tui` extra",
            why="textual is not installed",
            hint="pip install 'pdops[tui]', or use --once",
        ) from error
    return run_top(feed, ascii=ascii_only, no_color=bool(os.environ.get("NO_COLOR")), desk=desk)
