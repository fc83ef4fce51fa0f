"""`pdops down`: stop the reference deployment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from pdops.cli.style import Number, warn
from pdops.cli.up import place_options


@click.command(
    "down",
    epilog="Examples:\n\n\b\n  pdops down\n  pdops down --deadline 5      # wait at most 5 s for requests that run\n"
    "  pdops down --dry-run         # only say what would be lost now\n  pdops down --force           # at once",
)
@place_options
@click.option(
    "--deadline",
    "deadline_s",
    type=Number(0, 3600),
    default=60.0,
    show_default=True,
    metavar="S",
    help="The longest to wait for requests in flight; those left then are lost, and counted.",
)
@click.option("--force", is_flag=True, help="Do not drain: stop everything of this deployment at once.")
@click.option("--dry-run", is_flag=True, help="Say which requests are in flight, and stop nothing.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print what was lost as JSON (see `pdops schema down`); null when it was not counted (--force).",
)
def command(name: str, state_dir: Path | None, deadline_s: float, force: bool, dry_run: bool, as_json: bool) -> int:
    """Stop it in drain order: no new requests, prefill when its KV is fetched, decode when it is idle, then the rest."""
    from pdops.cli.stages import Screen
    from pdops.reference.down import document, down, in_flight
    from pdops.reference.running import Running
    from pdops.reference.state import home

    place = home(name, state_dir)
    if dry_run:
        lost = in_flight(Running.open(place))
        click.echo(json.dumps(document(lost)) if as_json else f"requests in flight: {lost}")
        return 0
    with Screen(sys.stderr) as screen:
        given_up = down(place, deadline_s=deadline_s, force=force, say=screen.say, show=screen.show)
    if given_up is not None and (given_up.known or given_up.unknown) and not as_json:
        warn(f"requests lost at the deadline: {given_up}")
    if as_json:
        click.echo(json.dumps(document(given_up)))
    else:
        click.echo("down" if given_up is not None else "down; requests in flight were not counted")
    return 0
