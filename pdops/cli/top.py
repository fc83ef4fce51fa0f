"""`pdops top`: every pool and worker, live or replayed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.cli.inputs import Inputs, live_source, source_options
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.model.report import Report
    from pdops.sources.recording.reader import Recording


@click.command(
    "top",
    epilog="Examples:\n\n\b\n  pdops top -c pdops.yaml\n  pdops top --replay incident.pdrec --speed 8\n"
    "  COLUMNS=120 pdops top --once --target prefill=http://10.0.3.11:8000 --target decode=http://10.0.3.12:8000",
)
@source_options()
@click.option("--once", is_flag=True, help="Print one screen and exit; obeys COLUMNS.")
@click.option("--at", metavar="T", help="With --replay: where to start, or what to print with --once.")
@click.option(
    "--speed", type=click.FloatRange(0.1, 64), default=1.0, show_default=True, help="With --replay: how fast."
)
@click.option(
    "--for",
    "watch_s",
    type=click.FloatRange(2, 900),
    default=10.0,
    show_default=True,
    metavar="S",
    help="With --once and live targets: how long to watch before printing.",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
def command(inputs: Inputs, once: bool, at: str | None, speed: float, watch_s: float, ascii_only: bool) -> int:
    """Show pools, workers, the split of TTFT and the diagnosis."""
    kind = inputs.kind()
    if at is not None and kind != "replay":
        raise UsageError("--at needs --replay", hint="live sources are shown now")
    _ = (once, at, speed, watch_s, ascii_only, live_source, os, sys)
    raise NotImplementedError


def open_replay(path: Path) -> None:
    """Open the screen on a recording."""
    raise NotImplementedError(path)


def once_text(record: Recording, report: Report, columns: int) -> str:
    """Return one screen of a recording at the instant a report is about."""
    raise NotImplementedError((record, report, columns))
