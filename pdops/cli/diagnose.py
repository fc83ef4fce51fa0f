"""`pdops diagnose`: one answer from any source."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from pdops.cli.inputs import Inputs, cluster_of, live_source, open_played, source_options
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.model.report import Report

_FAIL_ON = {
    "unknown": ("fault", "overload", "unknown"),
    "overload": ("fault", "overload"),
    "fault": ("fault",),
    "never": (),
}


@click.command(
    "diagnose",
    epilog="Examples:\n\n"
    "\b\n  pdops diagnose --target prefill=http://10.0.3.11:8000 --target decode=http://10.0.3.12:8000\n"
    "  pdops diagnose --prometheus http://prometheus:9090 --selector '{cluster=\"prod-eu\"}' --json\n"
    "  pdops diagnose --replay incident.pdrec --at 120\n"
    "  pdops diagnose --case case.yaml --fail-on fault",
)
@source_options()
@click.option("--at", metavar="T", help="With --replay: seconds from the start, negative from the end, or RFC 3339.")
@click.option(
    "--for",
    "watch_s",
    type=click.FloatRange(2, 900),
    default=30.0,
    show_default=True,
    metavar="S",
    help="How long to watch live targets before answering; also the judged window.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the published JSON (see `pdops schema diagnosis`).")
@click.option("--full", is_flag=True, help="List everything that was ruled out and is missing.")
@click.option(
    "--fail-on",
    type=click.Choice(list(_FAIL_ON)),
    default="unknown",
    show_default=True,
    help="Least verdict that makes the exit status 1.",
)
@click.pass_context
def command(
    ctx: click.Context, inputs: Inputs, at: str | None, watch_s: float, as_json: bool, full: bool, fail_on: str
) -> int:
    """Name the layer at fault, with the evidence for, against and missing.

    Exit status: 0 healthy, 1 a verdict at or above --fail-on, 2 usage, 3 no target answered.
    """
    kind = inputs.kind()
    if at is not None and kind != "replay":
        raise UsageError("--at needs --replay", hint="live sources are judged now")
    answered = True
    if kind == "case":
        report = _case(inputs)
    elif kind == "replay":
        report = _replay(inputs, at)
    else:
        report, answered = asyncio.run(_live(inputs, watch_s))
    _print(report, as_json, full)
    if not answered:
        click.echo("pdops: no target answered", err=True)
        click.echo("hint: check addresses and ports; `curl URL/metrics` shows what a target says", err=True)
        ctx.exit(3)
    return 1 if report.verdict in _FAIL_ON[fail_on] else 0


def _print(report: Report, as_json: bool, full: bool) -> None:
    if as_json:
        from pdops.diagnose.encode import to_json

        click.echo(to_json(report), nl=False)
        return
    from pdops.cli.style import styler, width
    from pdops.diagnose.text import render

    click.echo(render(report, width=width(), style=styler(sys.stdout), full=full), nl=False)


def _case(inputs: Inputs) -> Report:
    import dataclasses

    from pdops.diagnose.engine import diagnose
    from pdops.sources.case import case_view, load_case

    assert inputs.case is not None
    view, aside = case_view(load_case(inputs.case))
    report = diagnose(view)
    return dataclasses.replace(report, missing=report.missing + aside)


def _replay(inputs: Inputs, at: str | None) -> Report:
    from pdops.cli.style import warn
    from pdops.diagnose import scan

    assert inputs.replay is not None
    played = open_played(inputs.replay)
    record = played.record
    cluster = cluster_of(inputs, record.cluster)
    if at is None:
        report = scan.strongest(record.iter_frames(), cluster, interval_s=record.interval_s)
    else:
        at_s = moment(at, played.start_s, played.end_s)
        report = scan.at(record.iter_frames(), cluster, at_s, interval_s=record.interval_s)
    for warning in record.warnings:
        warn(warning)
    return report


def moment(text: str, start_s: float, end_s: float) -> float:
    """Return Unix seconds of `--at`, which must lie inside the recording."""
    from pdops.model.times import parse_rfc3339, rfc3339

    try:
        seconds = float(text)
        at_s = end_s + seconds if text.startswith("-") else start_s + seconds
    except ValueError:
        try:
            at_s = parse_rfc3339(text)
        except ValueError as error:
            raise UsageError(
                "--at is not a time", where=repr(text), hint="give seconds or 2026-11-29T12:00:00Z"
            ) from error
    if not start_s <= at_s <= end_s + 1:
        raise UsageError(
            "--at lies outside the recording",
            where=text,
            why=f"it runs {end_s - start_s:.0f} s from {rfc3339(start_s)}",
            hint="give 0 to its length, or a negative number from its end",
        )
    return at_s


async def _live(inputs: Inputs, watch_s: float) -> tuple[Report, bool]:
    from pdops.cli.style import progress
    from pdops.diagnose.engine import diagnose
    from pdops.history.ring import Ring

    source = live_source(inputs)
    ring = Ring(source.cluster, interval_s=source.interval_s, window_s=min(60.0, watch_s))
    answered = False
    first_s: float | None = None
    try:
        with progress(f"watching {len(source.cluster.workers)} workers", watch_s) as tick:
            async for frame in source.frames():
                ring.cluster = source.cluster
                ring.add(frame)
                answered = answered or any(s.error is None for s in frame.scrapes)
                first_s = frame.at_s if first_s is None else first_s
                tick(frame.at_s - first_s)
                if frame.at_s - first_s >= watch_s:
                    break
    finally:
        await source.aclose()
    return diagnose(ring.view()), answered
