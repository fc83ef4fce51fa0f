"""`pdops dashboards`: build, check and push the Grafana dashboards."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pdops.cli.style import styler, warn
from pdops.errors import UsageError

PACKAGE = "pdops_dashboards"


@click.group(
    "dashboards", epilog="Example: pdops dashboards push --url https://grafana.example --token-file token --dry-run"
)
def command() -> None:
    """Six Grafana dashboards, generated from the catalog's names."""


@command.command(epilog="Examples:\n\n\b\n  pdops dashboards build -o grafana/\n  pdops dashboards build --check")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder; default: the package's own."
)
@click.option("--check", is_flag=True, help="Write nothing; fail when a file differs from what would be built.")
def build(output: Path | None, check: bool) -> int:
    """Write the dashboards as JSON, or say whether the written ones have drifted."""
    from pdops.grafana.dashboards.build import files

    folder = output or shipped()
    drifted = []
    for name, text in files().items():
        path = folder / name
        same = path.is_file() and path.read_bytes() == text.encode()
        if same:
            continue
        drifted.append(path)
        if not check:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        click.echo(f"{'differs' if check else 'wrote'} {path}")
    if not drifted:
        click.echo("all dashboards are as they would be built")
    return 1 if check and drifted else 0


@command.command(epilog="Example: pdops dashboards check")
def check() -> int:
    """Read every query as a reviewer would: known names, rates of counters, roles kept apart."""
    from pdops.grafana.dashboards.build import DASHBOARDS
    from pdops.grafana.promlint import known, lint

    names, wrong, queries = known(), 0, 0
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries:
                queries += 1
                for said in lint(query.expr, names, fixed_windows=False):
                    wrong += 1
                    click.echo(f"{panel.id}: {said}\n  {query.expr}", err=True)
    panels = sum(len(d.panels) for d in DASHBOARDS)
    click.echo(f"{len(DASHBOARDS)} dashboards, {panels} panels, {queries} queries, {wrong} objections")
    return 1 if wrong else 0


@command.command(
    epilog="Examples:\n\n\b\n  pdops dashboards push --url https://grafana.example --token-file token --dry-run\n"
    "  pdops dashboards push --url http://localhost:3000 --token-file token"
)
@click.option("--url", required=True, help="Address of the Grafana server; https, or this host.")
@click.option(
    "--token-file", required=True, type=click.Path(path_type=Path), help="File with a service account's token."
)
@click.option("--folder", default="pdops", show_default=True, help="Title of the folder, when it has to be made.")
@click.option("--dry-run", is_flag=True, help="Show the difference and write nothing.")
def push(url: str, token_file: Path, folder: str, dry_run: bool) -> int:
    """Bring the dashboards to a Grafana server.

    Shows first what differs. Dashboards that are not ours are left alone, also when they have one of our uids; nothing
    is ever deleted. A second run writes nothing.

    Exit status: 0 ours are there as they should be, 1 a dashboard that is not ours stands where one of ours belongs.
    """
    from pdops import __version__
    from pdops.grafana.dashboards.build import files
    from pdops.grafana.dashboards.client import connect
    from pdops.grafana.dashboards.push import plan
    from pdops.grafana.dashboards.push import push as carry_out

    server, made = connect(url, token_file), files()
    steps = plan(server, made)
    look = styler(sys.stdout)
    for step in steps:
        click.echo(look(f"{step.change:<8}", "warn" if step.change == "foreign" else "good") + step.uid)
        for line in step.diff if dry_run else step.diff[:12]:
            click.echo(f"  {line}")
        if not dry_run and len(step.diff) > 12:
            click.echo(f"  … {len(step.diff) - 12} more lines (--dry-run shows all)")
    if dry_run:
        click.echo("nothing was written (--dry-run)")
        return 0
    written = carry_out(server, made, steps, f"pdops {__version__}", folder)
    click.echo(f"{written} written, {len(steps) - written} left as they are")
    foreign = [step.uid for step in steps if step.change == "foreign"]
    if foreign:
        warn(f"not ours and left alone: {', '.join(foreign)}; give those another uid, and push again")
    return 1 if foreign else 0


def shipped() -> Path:
    """Return the folder of the dashboards that come with pdops.

    Raises:
        UsageError: it is not part of this installation.
    """
    import importlib.util

    spec = importlib.util.find_spec(PACKAGE)
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    if not folders:
        raise UsageError("the dashboards are not part of this installation", hint="give a folder with -o")
    return folders[0]
