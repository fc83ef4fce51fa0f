"""The options that say who is told of a run, and the thread that tells them beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pdops.cli.style import warn
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.runbook.seen import Seen, Sink

F = TypeVar("F", bound=Callable[..., Any])
EVERY_S = 1.0
LAST_S = 15.0
"""How long the end of a command waits for the last of it to be told, in seconds."""


class Tell:
    """What the options ask for."""

    def __init__(
        self, notify: tuple[str, ...], otlp: str | None, grafana: str | None, grafana_token: Path | None
    ) -> None:
        self.notify, self.otlp, self.grafana, self.grafana_token = notify, otlp, grafana, grafana_token

    def sinks(self, write: Callable[[str], None] | None) -> list[Sink]:
        """Return who is told.

        Args:
            write: takes a line for standard output, None where that is taken.

        Raises:
            UsageError: an option cannot be used.
        """
        found: list[Sink] = []
        for asked in self.notify:
            found.append(_notified(asked, write))
        if self.otlp is not None:
            from pdops.runbook.sinks import Traced
            from pdops.telemetry.past import past_writer

            found.append(Traced(past_writer(self.otlp, "pdops-runbook"), self.otlp))
        if (self.grafana is None) != (self.grafana_token is None):
            raise UsageError(
                "annotations need an address and a token", hint="give --grafana URL with --grafana-token-file FILE"
            )
        if self.grafana is not None and self.grafana_token is not None:
            found.append(_annotated(self.grafana, self.grafana_token))
        return found


def telling_options(function: F) -> F:
    """Add the options that say who is told; the command receives them as one `tell` argument."""
    options: list[Callable[[F], F]] = [
        click.option(
            "--notify", multiple=True, metavar="WHERE",
            help="Tell of the run: stdout, webhook:FILE or slack:FILE, the file holding the address; may be repeated.",
        ),
        click.option("--otlp", metavar="URL", help="Send the run as a trace to this OTLP/HTTP receiver."),
        click.option("--grafana", metavar="URL", help="Mark beginning and end of the run in this Grafana."),
        click.option(
            "--grafana-token-file", "grafana_token", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
            help="Its service account's token.",
        ),
    ]  # fmt: skip

    def wrapped(
        *args: Any,
        notify: tuple[str, ...],
        otlp: str | None,
        grafana: str | None,
        grafana_token: Path | None,
        **kwargs: Any,
    ) -> Any:
        return function(*args, tell=Tell(notify, otlp, grafana, grafana_token), **kwargs)

    wrapped.__name__ = function.__name__
    wrapped.__doc__ = function.__doc__
    wrapped.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    result: Any = wrapped
    for option in reversed(options):
        result = option(result)
    return result  # type: ignore[no-any-return]


@contextmanager
def told(tell: Tell, journal: Path, write: Callable[[str], None] | None) -> Iterator[Seen | None]:
    """Tell, beside the block and once more at its end, what the journal gets; nothing of it stops the block.

    Raises:
        UsageError: an option cannot be used; nothing has begun then.
    """
    sinks = tell.sinks(write)
    if not sinks:
        yield None
        return
    from pdops.clock import WallClock
    from pdops.runbook.seen import Seen

    seen = Seen(journal, sinks, WallClock(), warn)
    over = threading.Event()

    def follow() -> None:
        while not over.wait(EVERY_S):
            seen.pump()
        seen.pump(last=True)

    thread = threading.Thread(target=_kept(follow), name="pdops-telling", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(LAST_S)
        if thread.is_alive():
            warn(f"not everybody was told within {LAST_S:.0f} s; the next command with these options goes on")


def _kept(follow: Callable[[], None]) -> Callable[[], None]:
    def guarded() -> None:
        try:
            follow()
        except Exception as error:  # noqa: BLE001  a defect in telling must be seen, and must not look like one of the run
            warn(f"telling has ended: {type(error).__name__}: {error}")

    return guarded


def _notified(asked: str, write: Callable[[str], None] | None) -> Sink:
    from pdops.actuate.notify import Lines, Webhook
    from pdops.runbook.sinks import Notified

    kind, _, file = asked.partition(":")
    if asked == "stdout":
        if write is None:
            raise UsageError("standard output is taken", why="--json prints there", hint="leave out --json or --notify")
        return Notified(Lines(write))
    if kind in ("webhook", "slack") and file:
        return Notified(Webhook(Path(file), slack=kind == "slack"))
    raise UsageError(
        "--notify does not know this",
        where=kind[:40],
        hint="give stdout, webhook:FILE or slack:FILE; addresses are secrets",
    )


def _annotated(url: str, token_file: Path) -> Sink:
    from pdops.actuate.notify import Annotations
    from pdops.grafana.dashboards.client import connect
    from pdops.runbook.notes import marking
    from pdops.runbook.sinks import Notified

    # Once now, so that what cannot be used is said before anything is done.
    connect(url, token_file)
    return Notified(Annotations(lambda: connect(url, token_file), url), marking)
