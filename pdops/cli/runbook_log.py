"""`pdops runbook log` and `verify-audit`: what was done, and whether the journal says so truly."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pdops.cli.runbook_run import named, opened, where

_journal = click.option(
    "--journal", "journal_path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Where runs are written down; default: the user's state folder.",
)  # fmt: skip


@click.command("log", epilog="Examples:\n\n\b\n  pdops runbook log\n  pdops runbook log scale-out-prefill-1f3a --json")
@click.argument("run", required=False)
@_journal
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def log(run: str | None, journal_path: Path | None, as_json: bool) -> int:
    """List the runs, or show what happened in RUN."""
    from pdops.model.times import rfc3339
    from pdops.runbook.encode import RUNS
    from pdops.runbook.timeline import lines, run_json

    named(journal_path)
    with opened(journal_path) as journal:
        if run is not None:
            found = journal.run(run)
            if as_json:
                click.echo(json.dumps(run_json(journal, found), indent=1, ensure_ascii=False))
                return 0
            for line in lines(journal, found):
                click.echo(line)
            click.echo(f"{found.id} {found.state}" + (f": {found.why}" if found.why else ""))
            return 0
        runs = journal.runs()
        if as_json:
            told = [
                {
                    "id": r.id,
                    "state": r.state.value,
                    "why": r.why,
                    "cluster": r.cluster,
                    "opened_at": rfc3339(r.opened_at_s),
                }
                for r in runs
            ]
            click.echo(json.dumps({"schema": RUNS, "runs": told}, indent=1, ensure_ascii=False))
            return 0
        for one in runs:
            why = f"  {one.why}" if one.why else ""
            click.echo(f"{one.id}  {rfc3339(one.opened_at_s)}  {one.cluster}  {one.state}{why}")
        if not runs:
            click.echo("no run yet", err=True)
    return 0


@click.command(
    "timeline",
    epilog="Examples:\n\n\b\n  pdops runbook timeline scale-out-prefill-1f3a > timeline.md\n  pdops runbook timeline --since 3h",
)
@click.argument("run", required=False)
@click.option("--since", metavar="TIME", help="Everything from then on: 90m, 3h, 2d, or as 2026-11-30T02:00:00Z.")
@_journal
def timeline(run: str | None, since: str | None, journal_path: Path | None) -> int:
    """Print the timeline of RUN, or of everything since a time, as Markdown."""
    from pdops.clock import WallClock
    from pdops.errors import UsageError
    from pdops.runbook import incident
    from pdops.runbook.journal import Journal

    if (run is None) == (since is None):
        raise UsageError("what the timeline is of is not said", hint="give a run, or --since 3h")
    named(journal_path)
    place, clock = where(journal_path), WallClock()
    with Journal(place, clock, read_only=True) as journal:
        if run is not None:
            told = incident.of_run(journal, journal.run(run))
        else:
            told = incident.since(journal, _time(str(since), clock.now()))
    click.echo(told, nl=False)
    return 0


def _time(text: str, now_s: float) -> float:
    """Return Unix seconds for a time, or for so long ago."""
    from pdops.errors import UsageError
    from pdops.model.times import parse_rfc3339

    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:], 0)
    if unit and text[:-1].isascii() and text[:-1].isdigit() and len(text) < 8:
        return max(0.0, now_s - int(text[:-1]) * unit)
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError):
        raise UsageError("this is no time", where=text[:40], hint="as 90m, 3h, 2d, or 2026-11-30T02:00:00Z") from None


@click.command("verify-audit", epilog="Example: pdops runbook verify-audit --head $(cat head-of-last-week)")
@_journal
@click.option("--head", metavar="HASH", help="A head printed earlier, which must be a link of this chain.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def verify_audit(journal_path: Path | None, head: str | None, as_json: bool) -> int:
    """Check that no event of the journal was changed, and that its tables follow from them.

    A journal that was cut off at its end shows that only beside a head that was kept elsewhere. Exit status 1 when something
    is wrong.
    """
    from pdops.errors import UsageError
    from pdops.runbook.audit import verify
    from pdops.runbook.encode import AUDIT

    place = where(journal_path)
    # A deleted journal must not pass, and looking must not make one.
    if not place.is_file() or place.stat().st_size == 0:
        raise UsageError(
            "there is no journal", where=str(place), hint="name it with --journal; a missing one proves nothing"
        )
    with opened(journal_path) as journal:
        found = verify(journal, head)
    if as_json:
        content = {"schema": AUDIT, "events": found.events, "head": found.head, "problems": found.problems}
        click.echo(json.dumps(content, indent=1))
    else:
        for problem in found.problems:
            click.echo(problem)
        click.echo(f"{found.events} events, head {found.head}")
    return 1 if found.problems else 0
