"""The command line of a simulation that is shown on loopback."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import resource
import sys
from pathlib import Path

import click

from pdops.errors import PdopsError, UsageError
from pdops.model.frame import Frame
from pdops.sim.page_server import PageServer
from pdops.sim.run import Simulation
from pdops.sim.serve import MOST_SPEED, Show, serve, until_signal
from pdops.sim.source import Simulated
from pdops.sim.spec import load_spec

FOREVER_S = 10 * 365 * 86_400.0
"""A shown simulation goes on until somebody stops it."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--spec", type=click.Path(path_type=Path), required=True, help="The simulation (`pdops schema sim`).")
@click.option("--speed", type=float, default=1.0, show_default=True, help="Virtual seconds per second, at most 60.")
@click.option("--ports", type=click.Path(path_type=Path), help="JSON file with ports by page; others are free ones.")
@click.option("--inventory", type=click.Path(path_type=Path), help="Write the inventory there, for -c.")
@click.option("--logs", type=click.Path(path_type=Path), help="Folder for the workers' logs.")
def command(spec: Path, speed: float, ports: Path | None, inventory: Path | None, logs: Path | None) -> None:
    """Show a simulated cluster on loopback until told to stop; prints its inventory or pages once they answer."""
    if not 0 < speed <= MOST_SPEED:
        raise click.BadParameter(f"{speed} is not above 0 and at most {MOST_SPEED:g}", param_hint="--speed")
    show = Show(speed=speed, ports=_ports(ports), inventory=inventory, logs=logs)
    asyncio.run(_run(simulation(spec), show))


class Endless(Simulation):
    """A simulation that nobody judges: requests that have ended are forgotten, so that it can go on for days."""

    def frame(self) -> Frame:
        """Return all pages now, and what happened since the last frame."""
        self.router.records.clear()
        return super().frame()


def simulation(path: Path) -> Simulated:
    """Return the simulation a file describes, without an end.

    Raises:
        SimError: it describes none.
    """
    return Endless(dataclasses.replace(load_spec(str(path)), duration_s=FOREVER_S))


async def _run(shown: Simulated, show: Show) -> None:
    stop = asyncio.Event()
    await until_signal(stop)
    pages = [str(show.inventory)] if show.inventory is not None else None

    def ready(server: PageServer) -> None:
        for line in pages or [f"{name} {server.url(name)}" for name in shown.instruments]:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()

    await serve(shown, show, stop, ready)


def _ports(path: Path | None) -> dict[str, int]:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_bytes())
        return {str(name): int(port) for name, port in found.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise UsageError(
            "ports of a simulation cannot be read",
            where=str(path),
            why=str(error),
            hint='write a JSON object such as {"prefill-0": 8100}',
        ) from error


def main() -> None:
    """Run it and exit with a documented status."""
    # A large cluster has more pages and readers' connections than the usual soft limit of open files.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    logging.basicConfig(level=logging.WARNING, format="pdops-sim: %(message)s", stream=sys.stderr)
    try:
        command.main(prog_name="python -m pdops.sim", standalone_mode=False)
    except PdopsError as error:
        click.echo(f"pdops: {error}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
