"""`pdops demo`: a recorded incident, without a cluster."""

from __future__ import annotations

import sys
from pathlib import Path

import click

INCIDENT = "prefill-killed"
HEALTHY = "healthy-load"


@click.command("demo", epilog="Examples:\n\n\b\n  pdops demo\n  pdops demo --healthy\n  pdops demo | less")
@click.option("--healthy", is_flag=True, help="Show the recording of a sound pair instead of the incident.")
@click.option("--once", is_flag=True, help="Print instead of opening the screen.")
def command(healthy: bool, once: bool) -> int:
    """Show a recorded incident of a real vLLM and NIXL prefill/decode pair.

    In a terminal it opens `pdops top` on the recording; piped, or with --once, it prints the pools and the diagnosis of
    the instant that says most.
    """
    from pdops.cli.inputs import open_played
    from pdops.cli.style import styler, width
    from pdops.cli.top import open_replay, screen_text
    from pdops.diagnose import scan
    from pdops.diagnose.text import render

    path = recording_path(HEALTHY if healthy else INCIDENT)
    if sys.stdout.isatty() and not once:
        return open_replay(path)
    played = open_played(path)
    record = played.record
    judged = scan.strongest(record.iter_frames(), record.cluster, interval_s=record.interval_s)
    after_s = judged.report.at_s - played.start_s
    click.echo(f"{path.stem}: recorded from a real pair, judged {after_s:.0f} s after its start\n")
    click.echo(screen_text(judged, source=f"replay {path.name}"), nl=False)
    click.echo()
    click.echo(render(judged.report, width=width(), style=styler(sys.stdout)), nl=False)
    if not healthy:
        click.echo("\nnext: pdops top --replay " + str(path))
    return 0


def recording_path(name: str) -> Path:
    """Return where a recording that ships with pdops lies on disk."""
    from importlib import resources

    return Path(str(resources.files("pdops.recordings").joinpath(f"{name}.pdrec")))
