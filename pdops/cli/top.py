"""`pdops top`: every pool and worker, live or replayed, of one cluster or several."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.cli import style
from pdops.cli.desk import desk_for
from pdops.cli.inputs import Inputs, open_played, source_options
from pdops.cli.top_sources import feed_of, screens_of, separate, verdict_of
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.diagnose.scan import Judged
    from pdops_tui.desk import Desk
    from pdops_tui.models.screen import Screen
    from pdops_tui.session import Session
    from pdops_tui.snapshot import Feed


@click.command(
    "top",
    epilog="Examples:\n\n\b\n  pdops top -c pdops.yaml\n  pdops top -c prod-eu.yaml -c prod-us.yaml\n"
    "  pdops top --replay incident.pdrec --speed 8\n"
    "  pdops top --replay before.pdrec --replay after.pdrec --once\n"
    "  pdops top -c pdops.yaml --json | jq '.sources[0].diagnosis.verdict'\n"
    "  COLUMNS=120 pdops top --once --target prefill=http://10.0.3.11:8000 --target decode=http://10.0.3.12:8000",
)
@source_options(replay=False)
@click.option(
    "--replay",
    "replays",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Show a recording; twice: before and after.",
)
@click.option("--once", is_flag=True, help="Print one screen and exit; obeys COLUMNS.")
@click.option("--json", "as_json", is_flag=True, help="Print one screen as data and exit: pdops/top/v1.")
@click.option("--at", metavar="T", help="With --replay: the instant to print or to start at; as in `pdops diagnose`.")
@click.option("--speed", type=style.Number(0.1, 64), default=1.0, show_default=True, help="With --replay: how fast.")
@click.option(
    "--for",
    "watch_s",
    type=style.Number(2, 900),
    default=10.0,
    show_default=True,
    metavar="S",
    help="With --once or --json and live targets: how long to watch before printing.",
)
@click.option(
    "--filter", "words", default="", metavar="WORDS", help="Workers to show, as `/` takes them: 'decode kv>80'."
)
@click.option("--readonly", is_flag=True, help="Refuse everything that would change the cluster.")
@click.option(
    "--theme",
    type=click.Choice(("terminal", "light", "blind", "contrast", "mono")),
    default="terminal",
    show_default=True,
    help="Colours; `z` changes them.",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only, as without a UTF-8 locale.")
def command(
    inputs: Inputs,
    replays: tuple[Path, ...],
    once: bool,
    as_json: bool,
    at: str | None,
    speed: float,
    watch_s: float,
    words: str,
    readonly: bool,
    theme: str,
    ascii_only: bool,
) -> int:
    """Show pools, workers, the split of TTFT and the diagnosis.

    Keys are listed under `?` on the screen. Piped, or with --once, one screen is printed as text. -c and --replay may be
    repeated: `n` shows the next one, `C` all of them beside each other.
    """
    sources = separate(inputs, replays)
    if at is not None and not replays:
        raise UsageError("--at needs --replay", hint="live sources are shown now")
    from pdops_tui.session import Session

    if words:
        from pdops_tui.models.pools import mistaken

        if (mistake := mistaken(words)) is not None:
            raise UsageError("--filter can match no worker", where=repr(mistake[0])[:80], hint=mistake[1])
    ascii_only = ascii_only or style.ascii_only()
    session = Session(filter=words, theme=theme)
    if once or as_json or not sys.stdout.isatty() or inputs.case is not None:
        screens, answered = screens_of(sources, at, watch_s, session, places=as_json or len(sources) > 1)
        click.echo(_json(screens) if as_json else _text(screens, session, ascii_only), nl=False)
        return 0 if answered else 3
    return _show(lambda: feed_of(sources, at=at, speed=speed), ascii_only, session, _desk(sources, readonly=readonly))


def _json(screens: list[Screen]) -> str:
    from pdops_tui.encode import to_json

    return to_json(screens)


def _text(screens: list[Screen], session: Session, ascii_only: bool) -> str:
    from pdops_tui.once import render_beside, render_screen

    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    if len(screens) > 1:
        return render_beside(
            [s.snapshot for s in screens], style.width(), ascii=ascii_only, color=color, session=session
        )
    return render_screen(screens[0], style.width(), ascii=ascii_only, color=color)


def open_replay(path: Path) -> int:
    """Open the screen on a recording; return the exit status."""
    from pdops_tui.replay import ReplayFeed
    from pdops_tui.session import Session

    return _show(
        lambda: ReplayFeed(open_played(path).record, verdict_of),
        style.ascii_only(),
        Session(),
        _desk((), readonly=True),
    )


def screen_text(judged: Judged, *, source: str) -> str:
    """Return one screen as text, as wide as COLUMNS or the terminal."""
    from pdops_tui.once import render_once

    dressed = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return render_once(
        judged.view, judged.report, style.width(), ascii=style.ascii_only(), color=dressed, source=source
    )


def _desk(sources: Sequence[Inputs], *, readonly: bool) -> Desk:
    """Return what is lent; nothing of one cluster while several are open, since a plan must not meet the wrong one."""
    from pdops_tui.desk import Desk

    return desk_for(sources[0], readonly=readonly) if len(sources) == 1 else Desk(readonly=readonly)


def _show(make: Callable[[], Feed], ascii_only: bool, session: Session, desk: Desk) -> int:
    # A fifth of a start's time goes into looking for garbage among what is loaded; the screen takes it up when it has drawn.
    gc.disable()
    try:
        with style.busy("pdops top: opening"):
            feed = make()
            run_top = _screen()
        no_color = bool(os.environ.get("NO_COLOR"))
        status = run_top(feed, ascii=ascii_only, no_color=no_color, session=session, desk=desk)
    finally:
        gc.enable()
    # A terminal that went away hears nothing any more.
    with contextlib.suppress(OSError):
        _say_recordings(feed)
    return status


def _screen() -> Callable[..., int]:
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
    return run_top


def _say_recordings(feed: Feed) -> None:
    """Say on standard error what became of recordings: one that breaks while the screen closes was seen by nobody."""
    from pdops_tui.habits import became

    latest = feed.latest()
    for each in (latest.beside or (latest,)) if latest is not None else ():
        if each.taping is None:
            continue
        if each.taping.trouble is not None or each.taping.lost or each.taping.running:
            style.warn(became(each.taping))
        else:
            click.echo(became(each.taping), err=True)
