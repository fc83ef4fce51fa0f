"""`pdops diagnose`: one answer from any source."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.cli.inputs import Inputs, source_options
from pdops.cli.judge import judge
from pdops.cli.style import Number
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.diagnose.scan import Judged
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
    "  pdops diagnose --case case.yaml --fail-on fault\n"
    "  pdops diagnose -c pdops.yaml --html report.html --format markdown\n"
    "  pdops diagnose -c pdops.yaml --watch --json",
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
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    help="How to print the report; markdown is for an incident channel. [default: text]",
)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write one self-contained page with plots of the evidence.",
)
@click.option(
    "--watch",
    "watching",
    is_flag=True,
    help="Keep judging and print changes only, until Ctrl-C or the end of the recording; with --json one diagnosis a line.",
)
@click.option("--full", is_flag=True, help="List everything that was ruled out and is missing; JSON always does.")
@click.option(
    "--fail-on",
    type=click.Choice(list(_FAIL_ON)),
    default="unknown",
    show_default=True,
    help="Least verdict that makes the exit status 1.",
)
@click.pass_context
def command(
    ctx: click.Context,
    inputs: Inputs,
    at: str | None,
    watch_s: float,
    as_json: bool,
    form: str | None,
    page: Path | None,
    watching: bool,
    full: bool,
    fail_on: str,
) -> int:
    """Name the layer at fault, with the evidence for, against and missing.

    Exit status: 0 healthy, 1 a verdict at or above --fail-on, 2 usage, 3 no target answered.
    """
    form = _form(form, as_json)
    if watching:
        report, answered = _watch(inputs, at, watch_s, form, page, full)
    else:
        judged, answered = judge(inputs, at, watch_s)
        report = judged.report
        _print(report, form, full)
        if page is not None:
            _write(page, judged)
    if not answered:
        click.echo("pdops: no target answered", err=True)
        click.echo("hint: check addresses and ports; `curl URL/metrics` shows what a target says", err=True)
        ctx.exit(3)
    return 1 if report.verdict in _FAIL_ON[fail_on] else 0


def _form(form: str | None, as_json: bool) -> str:
    if as_json and form not in (None, "json"):
        raise UsageError("two formats are given", why=f"--json and --format {form}", hint="give one of them")
    return "json" if as_json else form or "text"


def _watch(
    inputs: Inputs, at: str | None, watch_s: float, form: str, page: Path | None, full: bool
) -> tuple[Report, bool]:
    moment = {
        "--at": at is not None,
        "--html": page is not None,
        "--format markdown": form == "markdown",
        "--full": full,
    }
    if what := next((option for option, given in moment.items() if given), None):
        raise UsageError("--watch prints changes only", why=f"{what} is about one moment", hint=f"leave {what} out")
    from pdops.cli.watch import watch

    return watch(inputs, watch_s, as_json=form == "json")


def _print(report: Report, form: str, full: bool) -> None:
    if form == "json":
        from pdops.diagnose.encode import to_json

        click.echo(to_json(report), nl=False)
        return
    if form == "markdown":
        from pdops.diagnose.report_markdown import render as markdown

        click.echo(markdown(report, full=full), nl=False)
        return
    from pdops.cli.style import styler, width
    from pdops.diagnose.text import render

    click.echo(render(report, width=width(), style=styler(sys.stdout), full=full), nl=False)


def _write(page: Path, judged: Judged) -> None:
    from pdops.diagnose.report_html import render

    page.write_text(render(judged.view, judged.report), encoding="utf-8")
    click.echo(f"{page}: written", err=True)
