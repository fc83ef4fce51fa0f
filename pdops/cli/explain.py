"""`pdops explain`: the page of a check, cause, alert or log line, offline."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from pdops.cli.style import warn
from pdops.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pdops.diagnose.pages import Page

_PASTED_BYTES = 4 * 1024 * 1024
_ALSO = 5
"""Further pages named below the first."""


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from pdops.diagnose import pages
    from pdops.grafana.rules import pages as alerts

    entries = (*pages.index(), *alerts.index())
    return [CompletionItem(e.id, help=e.title) for e in entries if e.id.startswith(incomplete)]


@click.command(
    "explain",
    epilog="Examples:\n\n\b\n  pdops explain transfer/link-slow\n  pdops explain cause/kv-lease-expiry\n"
    "  pdops explain PDKvTransferSlow\n  pdops explain 'NIXL_ERR_REMOTE_DISCONNECT'\n  tail -n 500 decode-0.log | pdops explain -\n"
    "  pdops explain --list",
)
@click.argument("topic", nargs=-1, metavar="[ID | TEXT | -]", shell_complete=_complete)
@click.option("--list", "listing", is_flag=True, help="List every id, one a line.")
@click.option("--json", "as_json", is_flag=True, help="Print what is known as JSON (see `pdops schema explain`).")
def command(topic: tuple[str, ...], listing: bool, as_json: bool) -> int:
    """Explain a check, a cause, an alert or a log line: what it means, what to look at first and what not to do.

    TEXT may be any error string or pasted log line; with - it is read from standard input, line by line.
    """
    from pdops.diagnose import explain_json, pages
    from pdops.grafana.rules import pages as alerts

    if listing:
        entries = (*pages.index(), *alerts.index())
        if as_json:
            click.echo(json.dumps(explain_json.listing(entries), indent=1, ensure_ascii=False))
        else:
            longest = max(len(e.id) for e in entries)
            for entry in entries:
                click.echo(f"{entry.id:<{longest}}  {entry.title}")
        return 0
    asked = _asked(topic)
    page = pages.find(asked) or alerts.find(asked)
    found = (page,) if page is not None else pages.about(asked)
    if not found:
        near = (alerts.close(asked) if asked[:2].lower() == "pd" else ()) or pages.close(asked)
        hint = f"did you mean {', '.join(near)}?" if near else "`pdops explain --list` lists what is known"
        raise UsageError("no check, cause, alert or known log line is this", where=repr(_cut(asked)), hint=hint)
    if as_json:
        click.echo(json.dumps(explain_json.answer(_cut(asked), found), indent=1, ensure_ascii=False))
        return 0
    text = _text(found)
    if sys.stdout.isatty():
        click.echo_via_pager(text)
    else:
        click.echo(text, nl=False)
    return 0


def _asked(topic: tuple[str, ...]) -> str:
    from pdops.sources.redact import clean

    if topic == ("-",):
        raw = sys.stdin.buffer.read(_PASTED_BYTES + 1)
        read = raw[:_PASTED_BYTES].decode("utf-8", "replace")
        _say_cuts(len(raw) > _PASTED_BYTES, read)
        asked = "\n".join(map(clean, read.splitlines())).strip("\n")
    else:
        asked = "\n".join(map(clean, " ".join(topic).splitlines())).strip()
    if not asked.strip():
        raise UsageError("no id or text is given", hint="`pdops explain --list` lists what is known")
    return asked


def _say_cuts(more: bool, read: str) -> None:
    """Say what of a pasted text is not looked at, where a known line may be missed."""
    from pdops.catalog.line_search import MAX_LINES
    from pdops.catalog.log_lines import LONGEST

    lines = read.splitlines()
    if more or len(lines) > MAX_LINES:
        warn(
            f"only the first {_PASTED_BYTES >> 20} MiB and {MAX_LINES} lines are looked at; give the newest with `tail`"
        )
    if long := sum(len(line) > LONGEST for line in lines):
        warn(f"of {long} lines only the first {LONGEST} characters are looked at")


def _text(found: tuple[Page, ...]) -> str:
    first, *others = found
    if not others:
        return first.text
    shown = [f"- {page.id}: {page.title}" for page in others[:_ALSO]]
    more = [f"- and {len(others) - _ALSO} more; --json has them all"] if len(others) > _ALSO else []
    return first.text + "\n".join(["", "It also fits:", "", *shown, *more]) + "\n"


def _cut(text: str) -> str:
    return text if len(text) <= 200 else text[:199] + "…"
