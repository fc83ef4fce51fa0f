"""`pdops rules`: recording rules, alerts and burn rates for Prometheus, and whether they hold."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from pdops.cli.style import Number


@click.group("rules", epilog="Example: pdops rules build -o /etc/prometheus/rules")
def command() -> None:
    """Make the rules for Prometheus from pdops' own data, and check them.

    They ask for what `pdops exporter` serves; every alert links its page, which `pdops explain NAME` shows offline.
    """


@command.command(
    "build",
    epilog="Examples:\n\n\b\n  pdops rules build -o /etc/prometheus/rules\n"
    "  pdops rules build -o rules --runbook-url https://wiki.example/pdops/ --dashboard-url https://grafana.example/d/pdops-\n"
    "  pdops rules build --check",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder to write to; without it the one that ships with pdops.",
)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; exit 1 when a file is not what it would be.")
@click.option("--runbook-url", metavar="URL", help="What stands before an alert's name in runbook_url.")
@click.option(
    "--dashboard-url", metavar="URL", help="What stands before the rest of a dashboard's uid in dashboard_url."
)
@click.option(
    "--objective",
    type=Number(0, 1),
    default=0.95,
    show_default=True,
    metavar="RATIO",
    help="slo.attainment of your inventory; one under which an alert could never fire is refused.",
)
def build(
    output: Path | None, only_check: bool, runbook_url: str | None, dashboard_url: str | None, objective: float
) -> int:
    """Write rules-recording.yaml, rules-alerts.yaml and rules-slo.yaml."""
    from pdops.grafana.rules import burn, shipped
    from pdops.grafana.rules.build import DASHBOARD_URL, RUNBOOK_URL, Links, link

    burn.reachable(objective)
    links = Links(
        RUNBOOK_URL if runbook_url is None else link(runbook_url),
        DASHBOARD_URL if dashboard_url is None else link(dashboard_url),
    )
    folder = output or shipped.place()
    if only_check:
        apart = shipped.drift(folder, links)
        for name in apart:
            click.echo(f"{folder / name}: not what `pdops rules build` makes")
        return 1 if apart else 0
    for name, changed in shipped.write(folder, links).items():
        click.echo(f"{folder / name}: {'written' if changed else 'unchanged'}")
    return 0


@command.command("check", epilog="Examples:\n\n\b\n  pdops rules check\n  pdops rules check --no-tests --json")
@click.option(
    "--tests/--no-tests", default=True, show_default=True, help="Run the unit tests of every alert (promtool)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check(tests: bool, as_json: bool) -> int:
    """Lint every expression; with promtool installed, check the files and run every alert's unit tests.

    Exit status: 0 nothing is wrong, 1 something is, 2 the lint cannot run.
    """
    from pdops.cli.style import warn
    from pdops.grafana.rules.check import SCHEMA
    from pdops.grafana.rules.check import check as judge

    found = judge(tests=tests)
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, **asdict(found)}, indent=1, ensure_ascii=False))
    else:
        for problem in found.problems:
            click.echo(problem)
        for said in found.skipped:
            warn(said)
        click.echo(
            f"{found.recordings} recording rules, {found.alerts} alerts with {found.cases} test cases: "
            + (f"{len(found.problems)} problems" if found.problems else "nothing wrong")
        )
    return 1 if found.problems else 0
