"""`pdops bench diagnosis`: how good the diagnosis is, on simulated clusters, beside every baseline."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.bench.grid import Split

_SPLITS = ("develop", "develop-bursty", "develop-stormy", "calibrate", "held-out")
_FILE = click.Path(path_type=Path, dir_okay=False)
_PLAYED = ("split", "held_out", "episodes", "healthy_hours", "jobs", "seed", "topologies", "log")
_UNUSED = {"replayed": _PLAYED, "healthy_hours": ("episodes", "fit"), "no_learnt": ("train",)}
"""What an option makes of no use: beside it, who gave such a one would believe that it counts."""


@click.group("bench", epilog="Example: pdops bench diagnosis --episodes 60 --topology 1P1D --topology 2P6D")
def command() -> None:
    """Measure pdops itself."""


@command.command(
    "diagnosis",
    epilog="Examples:\n\n"
    "\b\n  pdops bench diagnosis --episodes 60 --topology 1P1D --topology 2P6D --no-learnt\n"
    "  pdops bench diagnosis --healthy-hours 30 --topology 1P1D --topology 2P6D --no-learnt\n"
    "  pdops bench diagnosis --split calibrate --fit pdops/diagnose/data/calibration.yaml\n"
    "  pdops bench diagnosis --split held-out --held-out --train out/develop.outcomes.json.gz --out docs/measured",
)
@click.option("--split", type=click.Choice(_SPLITS), default="develop", show_default=True, help="Whose parameters.")
@click.option("--held-out", is_flag=True, help="Really play the held-out split; the run is logged.")
@click.option("--episodes", type=click.IntRange(1, 20_000), metavar="N", help="How many to play; default a full run.")
@click.option(
    "--healthy-hours", type=click.FloatRange(0, min_open=True), metavar="H", help="Only look-alikes, H simulated hours."
)
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="Processes; default one a core.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Another seed draws other episodes.")
@click.option(
    "--topology", "topologies", multiple=True, metavar="NAME", help="Only this one, such as 2P6D; repeatable."
)
@click.option(
    "--train", type=_FILE, metavar="FILE", help="Outcomes that learnt baselines learn from; default cross-fitted."
)
@click.option(
    "--rescore", "replayed", type=_FILE, multiple=True, metavar="FILE", help="Score these outcomes; repeatable."
)
@click.option("--no-learnt", is_flag=True, help="Leave tree, forest and prior out; they need pdops[bench].")
@click.option("--no-plots", is_flag=True, help="Leave plots out; they need pdops[bench].")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep report and outcomes."
)
@click.option("--fit", type=_FILE, metavar="FILE", help="With --split calibrate: write the calibration here.")
@click.option(
    "--log", type=_FILE, metavar="FILE", help="Log of held-out runs; default docs/measured/heldout-runs.yaml."
)
@click.option("--json", "as_json", is_flag=True, help="Print numbers as JSON instead of the report.")
def diagnosis(
    split: Split,
    held_out: bool,
    episodes: int | None,
    healthy_hours: float | None,
    jobs: int | None,
    seed: int,
    topologies: tuple[str, ...],
    train: Path | None,
    replayed: tuple[Path, ...],
    no_learnt: bool,
    no_plots: bool,
    out: Path | None,
    fit: Path | None,
    log: Path | None,
    as_json: bool,
) -> int:
    """Play faults and healthy look-alikes on a simulated cluster, and score what pdops and the baselines say."""
    from pdops.bench import encode, runlog, session

    _refuse_unused(click.get_current_context())
    choice = session.Choice(
        split=split,
        episodes=episodes or session.FULL,
        healthy_hours=healthy_hours,
        seed=seed,
        jobs=jobs or os.cpu_count() or 1,
        topologies=topologies,
        held_out=held_out,
        learnt=not no_learnt,
        train=train,
        replayed=replayed,
        out=out,
        drawn=not no_plots,
        fit=fit,
        log=log or runlog.DEFAULT,
        command=shlex.join(["pdops", *sys.argv[1:]]),
    )
    planned = session.choose(choice)
    with counted(len(planned)) as told:
        result = session.conduct(choice, planned, told)
    if as_json:
        click.echo(json.dumps(encode.encode(result.outcomes, result.failed), indent=1))
    else:
        click.echo(result.text, nl=False)
    for path in result.files:
        click.echo(f"pdops: wrote {path}", err=True)
    for failed in result.failed:
        click.echo(f"pdops: episode failed: {failed.name}: {failed.why}", err=True)
    return 1 if result.failed else 0


def _refuse_unused(ctx: click.Context) -> None:
    """Refuse an option that another one makes of no use."""
    flags = {p.name: p.opts[0] for p in ctx.command.params}
    given = {name for name in flags if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    for name, unused in _UNUSED.items():
        # Which split outcomes are of is asked for once more where they are fitted on.
        idle = [u for u in unused if u in given and not (u == "split" and "fit" in given)]
        if name in given and idle:
            raise UsageError(f"{flags[idle[0]]} has no use with {flags[name]}", hint="leave one of them out")


@contextmanager
def counted(total: int) -> Iterator[Callable[[int], None]]:
    """Show how many episodes are done on a terminal's standard error; nothing when piped."""
    shown = sys.stderr.isatty()

    def told(done: int) -> None:
        if shown:
            click.echo(f"\r{done} of {total} episodes, Ctrl-C stops", nl=False, err=True)

    try:
        yield told
    finally:
        if shown:
            click.echo("\r\x1b[K", nl=False, err=True)
