"""`pdops runbook list`, `show` and `lint`: read runbooks, shipped ones and files."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from pdops.cli.style import complain, styler, width

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return shipped runbooks that begin so."""
    from click.shell_completion import CompletionItem

    from pdops.runbook.load import shipped, shipped_ids

    return [CompletionItem(i, help=shipped(i).title) for i in shipped_ids() if i.startswith(incomplete)]


@click.command("list", epilog="Example: pdops runbook list --json | jq -r '.runbooks[] | select(.risk == \"safe\").id'")
@click.option("--json", "as_json", is_flag=True, help="Print all of them as JSON.")
def list_runbooks(as_json: bool) -> int:
    """List the runbooks that come with pdops, id first."""
    from pdops.runbook.encode import LISTING, runbook_to_json
    from pdops.runbook.load import shipped, shipped_ids

    found = [shipped(i) for i in shipped_ids()]
    if as_json:
        listing = {"schema": LISTING, "runbooks": [runbook_to_json(r) for r in found]}
        click.echo(json.dumps(listing, indent=1, ensure_ascii=False))
        return 0
    longest = max(len(r.id) for r in found)
    for runbook in found:
        click.echo(f"{runbook.id:<{longest}}  {runbook.risk:<10}  {runbook.title}")
    return 0


@click.command(
    "show", epilog="Examples:\n\n\b\n  pdops runbook show scale-out-prefill\n  pdops runbook show ./ours.yaml --json"
)
@click.argument("runbook", shell_complete=complete)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON (see `pdops schema runbook`).")
def show(runbook: str, as_json: bool) -> int:
    """Show RUNBOOK, the id of a shipped one or a file."""
    from pdops.runbook.encode import runbook_to_json
    from pdops.runbook.load import find_runbook
    from pdops.runbook.text import render_runbook

    found = find_runbook(runbook)
    if as_json:
        click.echo(json.dumps(runbook_to_json(found), indent=1, ensure_ascii=False))
    else:
        click.echo(render_runbook(found, width=width(), style=styler(sys.stdout)), nl=False)
    return 0


@click.command("lint", epilog="Examples:\n\n\b\n  pdops runbook lint ours.yaml\n  pdops runbook lint --list")
@click.argument("runbooks", nargs=-1, shell_complete=complete)
@click.option("--list", "listing", is_flag=True, help="List the actions and checks a runbook may use.")
@click.option("--json", "as_json", is_flag=True, help="Print the remarks as JSON.")
def lint_runbooks(runbooks: tuple[str, ...], listing: bool, as_json: bool) -> int:
    """Check RUNBOOKS, ids or files; without any, the shipped ones.

    Each file that cannot be used is an error with its line (exit status 2, and no JSON); remarks about one that can be make the exit status 1.
    """
    from pdops.errors import RunbookError
    from pdops.runbook.encode import LINT
    from pdops.runbook.lint import lint
    from pdops.runbook.load import find_runbook, shipped_ids

    if listing:
        return _list()
    remarks, errors = [], []
    for name in runbooks or shipped_ids():
        try:
            remarks += [(name, remark) for remark in lint(find_runbook(name))]
        except RunbookError as error:
            errors.append(error)
            complain(error)
    if errors and as_json:
        return errors[0].exit_code
    if as_json:
        told = [{"runbook": n, "where": r.where, "what": r.what, "hint": r.hint} for n, r in remarks]
        click.echo(json.dumps({"schema": LINT, "remarks": told}, indent=1, ensure_ascii=False))
    else:
        for name, remark in remarks:
            click.echo(f"{name}: {remark.where}: {remark.what}; {remark.hint}")
        if not remarks and not errors:
            click.echo(f"{len(runbooks or shipped_ids())} runbooks, nothing to say")
    return errors[0].exit_code if errors else 1 if remarks else 0


def _list() -> int:
    from pdops.runbook.actions import actions
    from pdops.runbook.questions import QUESTIONS

    look = styler(sys.stdout)
    for title, entries in (
        ("actions", [(a.name, f"{a.risk:<10}  {a.title}", a.params) for a in actions().values()]),
        ("checks", [(q.name, q.title, q.params) for q in QUESTIONS.values()]),
    ):
        click.echo(look(title, "title"))
        for name, told, params in entries:
            given = ", ".join(params.model_fields)
            click.echo(f"  {name:<20}  {told}" + (look(f"  [{given}]", "dim") if given else ""))
    return 0
