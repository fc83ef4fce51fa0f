"""`pdops router`: become the router's own program."""

from __future__ import annotations

import os
import sys

import click


@click.command(
    "router",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(args: tuple[str, ...]) -> None:
    """Route completions between prefill and decode workers; `pdops router --help` lists the options."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pdops.router", *args])  # noqa: S606  our own program, no shell
