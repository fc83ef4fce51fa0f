"""`pdops diagnose`: one answer from any source."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from pdops.cli.inputs import Inputs, source_options
from pdops.cli.judge import judge
from pdops.cli.style import Number

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
    type=Number(2, 900),
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
    judged, answered = judge(inputs, at, watch_s)
    report = judged.report
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
