"""`pdops explain`: the page of a check or cause, offline."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from pdops.errors import UsageError


@click.command(
    "explain",
    epilog="Examples:\n\n\b\n  pdops explain transfer/link-slow\n  pdops explain cause/kv-lease-expiry\n  pdops explain --list",
)
@click.argument("topic", required=False, metavar="[ID]")
@click.option("--list", "listing", is_flag=True, help="List every id, one a line.")
@click.option("--json", "as_json", is_flag=True, help="Print what is known as JSON.")
def command(topic: str | None, listing: bool, as_json: bool) -> int:
    """Explain a check or cause: what it looks at, what it concludes, what to do and what not to do."""
    from pdops.diagnose import pages

    if listing:
        entries = pages.index()
        if as_json:
            click.echo(
                json.dumps({"schema": "pdops/explain-list/v1", "topics": [asdict(e) for e in entries]}, indent=1)
            )
        else:
            longest = max(len(e.id) for e in entries)
            for entry in entries:
                click.echo(f"{entry.id:<{longest}}  {entry.title}")
        return 0
    if topic is None:
        raise UsageError("no id is given", hint="`pdops explain --list` lists them all")
    page = pages.find(topic)
    if page is None:
        close = pages.close(topic)
        hint = f"did you mean {', '.join(close)}?" if close else "`pdops explain --list` lists them all"
        raise UsageError("no page of that name", where=repr(topic), hint=hint)
    if as_json:
        click.echo(json.dumps({"schema": "pdops/explain/v1", **asdict(page)}, indent=1, ensure_ascii=False))
    elif sys.stdout.isatty():
        click.echo_via_pager(page.text)
    else:
        click.echo(page.text, nl=False)
    return 0
