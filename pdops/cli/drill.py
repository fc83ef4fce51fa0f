"""`pdops drill`: break the reference deployment on purpose, keep a labelled recording, put it back."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdops.cli.style import styler
from pdops.cli.up import place_options

if TYPE_CHECKING:
    from pdops.reference.running import Running


@click.group("drill", epilog="Examples:\n\n\b\n  pdops drill list\n  pdops drill run prefill-frozen -o recordings")
def command() -> None:
    """Break the reference deployment on purpose, watch it, keep a labelled recording, and put it back."""


@command.command(
    "list",
    epilog="Examples:\n\n\b\n  pdops drill list\n  pdops drill list --json | jq '.drills[] | select(.available).name'",
)
@place_options
@click.option("--json", "as_json", is_flag=True, help="Print the published JSON.")
def list_drills(name: str, state_dir: Path | None, as_json: bool) -> int:
    """List all drills: what each does, and why one cannot be run here.

    Without a deployment that is up it tells what this machine allows, and how to bring one up.
    """
    from pdops.reference.drills.run import listing

    running = _running(name, state_dir)
    found = listing(running)
    if as_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    look = styler(sys.stdout)
    if running is None:
        click.echo("no deployment is up; drills are marked by what this machine allows\n")
    longest = max(len(drill["name"]) for drill in found["drills"])
    family = ""
    for drill in found["drills"]:
        if drill["family"] != family:
            family = drill["family"]
            click.echo(look(family.replace("_", " "), "title"))
        mark = look("yes", "good") if drill["available"] else look("no ", "warn")
        click.echo(f"  {mark}  {drill['name']:<{longest}}  {drill['summary']}")
        for line in (*drill["why"], *filter(None, [drill["note"]])):
            click.echo(look(f"       {'':<{longest}}  {line}", "dim"))
    able = sum(drill["available"] for drill in found["drills"])
    click.echo(f"\n{able} of {len(found['drills'])} can be run here")
    ways = dict.fromkeys(drill["up"] for drill in found["drills"])
    if running is None or able < len(found["drills"]):
        click.echo("bring up a deployment for them: " + " · ".join(ways))
    return 0


@command.command(
    "run",
    epilog="Examples:\n\n\b\n  pdops drill run decode-killed-replaced\n  pdops drill run link-slow -o recordings --force",
)
@click.argument("drill", metavar="NAME")
@place_options
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Folder for NAME.pdrec and NAME.truth.yaml; default: here.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done and seen as JSON; progress goes to stderr.")
def run_drill(drill: str, name: str, state_dir: Path | None, out: Path, force: bool, as_json: bool) -> int:
    """Run a drill: load, record, break, hold, put back, recover; then diagnose the recording and compare with the truth.

    Takes four to eight minutes. Ctrl-C puts everything back and keeps no recording. Exit status: 0 the diagnosis was
    right, 1 it was wrong, 3 the drill could not be run or did not take effect.
    """
    from pdops.errors import DeploymentError
    from pdops.reference.drills.play import Hands
    from pdops.reference.drills.registry import find
    from pdops.reference.drills.run import run

    chosen = find(drill)
    running = _running(name, state_dir)
    if running is None:
        raise DeploymentError("no deployment is up", where=name, hint=f"start one: {chosen.up_command()}")

    def say(line: str) -> None:
        # A terminal that was closed must not keep anything from being put back.
        with contextlib.suppress(OSError):
            click.echo(line, err=as_json)

    say(f"drill {chosen.name}: {chosen.summary}")
    say(f"  at least {chosen.least_s / 60:.0f} minutes; Ctrl-C puts everything back")
    say(f"  watch it in a second terminal: pdops top -c {shlex.quote(str(running.inventory))}")
    done, lines = run(chosen, running, out, Hands(say), force=force)
    if as_json:
        click.echo(json.dumps(done, indent=1, ensure_ascii=False))
    else:
        _report(done, lines)
    return 0 if done["diagnosis"]["right"] else 1


def _report(done: dict[str, Any], lines: list[str]) -> None:
    recording = shlex.quote(done["recording"])
    click.echo(f"kept {done['recording']} ({done['bytes'] / 1000:.0f} kB) and {done['truth']}")
    for line in lines:
        click.echo(line)
    click.echo(f"next: pdops diagnose --replay {recording}\n      pdops top --replay {recording}")


def _running(name: str, state_dir: Path | None) -> Running | None:
    from pdops.reference.running import Running
    from pdops.reference.state import home

    place = home(name, state_dir)
    return Running.open(place) if place.read() is not None else None
