"""`pdops status`: how far the reference deployment is, and how it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from pdops.cli.style import styler, warn
from pdops.cli.up import place_options

_LOOKS = {"serving": "good", "dead": "bad", "frozen": "warn", "not-ready": "warn", "never-started": "dim"}


@click.command(
    "status",
    epilog="Examples:\n\n\b\n  pdops status\n  pdops status --json | jq .phase\n  pdops status --name other\n"
    "  pdops status --spans traces.jsonl     # where each engine's start went, with `pdops up --otlp`",
)
@place_options
@click.option(
    "--spans",
    "spans_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="OTLP/JSON that a collector wrote of the start; shows where each engine's start went.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the published JSON (see `pdops schema status`).")
def command(name: str, state_dir: Path | None, spans_file: Path | None, as_json: bool) -> int:
    """Show each stage of the start, why it waits, and every process.

    Exit status: 0 all of it serves, 1 a part does not, 3 nothing is up.
    """
    from pdops.reference import startup
    from pdops.reference.running import Running
    from pdops.reference.state import home
    from pdops.reference.status import hints, status

    running = Running.open(home(name, state_dir))
    spans = startup.read(spans_file) if spans_file is not None else None
    if spans is not None and spans.unreadable:
        warn(f"{spans.unreadable} lines of {spans_file} are no OTLP/JSON export and were left out")
    found = status(running, spans)
    if as_json:
        click.echo(json.dumps(found, indent=1))
    else:
        look = styler(sys.stdout)
        phase = found["phase"]
        click.echo(
            look(f"{found['name']}: {phase}", "good" if phase == "up" else "warn")
            + f"  profile {found['profile']}, {found['network']}, {found['state_dir']}"
        )
        for stage in found["stages"]:
            click.echo(f"  {stage['state']:<9} {stage['id']:<13} {stage['detail']}")
        for worker in found["workers"]:
            state = look(f"{worker['state']:<13}", _LOOKS[worker["state"]])
            up = f"{worker['up_s']:.0f} s" if worker["up_s"] is not None else "-"
            click.echo(f"  {state} {worker['id']:<12} {worker['url']:<28} pid {worker['pid'] or '-':<8} up {up}")
            if worker["why"]:
                click.echo(f"                {worker['why']}")
            for line in _start(worker, asked=spans is not None):
                click.echo(f"                {line}")
        for service in found["services"]:
            state = look(f"{service['state']:<13}", _LOOKS[service["state"]])
            click.echo(f"  {state} {service['id']:<12} {service['url']:<28} pid {service['pid'] or '-'}")
            if service["why"]:
                click.echo(f"                {service['why']}")
        if phase == "up":
            for line in hints(running):
                click.echo(f"  {line}")
    return 0 if found["phase"] == "up" else 1


def _start(worker: dict[str, Any], *, asked: bool) -> list[str]:
    """Return where a start went, one part a line, from the first to the last."""
    if not asked or worker["role"] not in ("prefill", "decode"):
        return []
    parts = worker["startup"]
    if not parts:
        return ["start: no spans of it"]
    first = min(part["begin_s"] for part in parts)
    return [f"start: +{part['begin_s'] - first:6.2f} s  {part['seconds']:7.2f} s  {part['span']}" for part in parts]
