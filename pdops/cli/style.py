"""How text looks on a terminal, and how long work shows its progress."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from pdops.errors import PdopsError

_LOOKS: dict[str, dict[str, bool | str]] = {
    "title": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red", "bold": True},
    "warn": {"fg": "yellow", "bold": True},
    "dim": {"dim": True},
}
_BAR = 24
MIN_WIDTH, MAX_WIDTH = 40, 1000
"""Columns that text is made for; beyond the widest terminals lines would only be padded."""


class Number(click.FloatRange):
    """A number in a range; click lets NaN through every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail as click does."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def styler(stream: TextIO) -> Callable[[str, str], str]:
    """Return a function that dresses text for a terminal, and leaves it alone when piped or with NO_COLOR set."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return lambda text, _look: text
    return lambda text, look: click.style(text, **_LOOKS[look])  # type: ignore[arg-type]


def ascii_only() -> bool:
    """Whether standard output is for a terminal without box drawing: the locale or the stream is not UTF-8.

    Without any locale in the environment, as in many containers, the terminal is taken for a modern one.
    """
    asked = next((v for n in ("LC_ALL", "LC_CTYPE", "LANG") if (v := os.environ.get(n))), "")
    if asked and "utf" not in asked.casefold():
        return True
    return "utf" not in (getattr(sys.stdout, "encoding", None) or "utf-8").casefold()


def width(default: int = 100) -> int:
    """Return how wide text may be: COLUMNS, else the terminal, else a default when piped."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdigit():
        # Cut before it is converted: Python refuses numbers of thousands of digits.
        found = int(asked.lstrip("0")[:9] or "0")
    else:
        found = shutil.get_terminal_size((default, 24)).columns if sys.stdout.isatty() else default
    return min(MAX_WIDTH, max(MIN_WIDTH, found))


def warn(text: str) -> None:
    """Say something on standard error that does not stop the work."""
    click.echo(f"pdops: warning: {text}", err=True)


def complain(error: PdopsError) -> None:
    """Say on standard error what could not be done, and what to do about it."""
    from pdops.sources.redact import redact_urls

    # Errors name the address that failed, and their text is pasted into tickets.
    click.echo(f"pdops: {redact_urls(str(error))}", err=True)
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Say on a terminal's standard error what is being done, and take it away again; nothing when piped."""
    shown = sys.stderr.isatty()
    if shown:
        click.echo(f"{what}\r", nl=False, err=True)
    try:
        yield
    finally:
        if shown:
            click.echo("\x1b[K", nl=False, err=True)


@contextmanager
def progress(label: str, total_s: float) -> Iterator[Callable[[float], None]]:
    """Show seconds done on a terminal's standard error, as a bar when a total is known; nothing when piped."""
    shown = sys.stderr.isatty()

    def tick(done_s: float) -> None:
        if not shown:
            return
        if total_s > 0:
            full = round(_BAR * min(1.0, done_s / total_s))
            click.echo(
                f"\r{label} [{'#' * full}{'.' * (_BAR - full)}] {done_s:3.0f}/{total_s:.0f} s", nl=False, err=True
            )
        else:
            click.echo(f"\r{label} {done_s:.0f} s, Ctrl-C stops", nl=False, err=True)

    tick(0.0)
    try:
        yield tick
    finally:
        if shown:
            click.echo("\r\x1b[K", nl=False, err=True)
