"""`pdops freeze`: stop all automation at once."""

from __future__ import annotations

from pathlib import Path

import click

from pdops.cli.runbook_run import journal_options, opened, who

FROZEN = 6


@click.command(
    "freeze",
    epilog="Examples:\n\n\b\n  pdops freeze on --why 'network maintenance'\n  pdops freeze status\n  pdops freeze off",
)
@click.argument("what", type=click.Choice(["on", "off", "status"]))
@click.option("--cluster", default="*", show_default=True, help="Only this cluster.")
@click.option("--why", default="", help="What the next person should know.")
@journal_options
def command(what: str, cluster: str, why: str, journal_path: Path | None, actor: str | None) -> int:
    """Let no runbook change anything, from the next effect on; running ones are held, taking back included.

    `status` exits with 6 when frozen. PDOPS_FREEZE=1 in the environment of pdops freezes too, and so does the file FREEZE
    beside the journal.
    """
    from pdops.runbook.killswitch import KillSwitch

    with opened(journal_path) as journal:
        switch = KillSwitch(journal)
        if what == "on":
            switch.on(who(actor), why, cluster)
        elif what == "off":
            switch.off(who(actor), cluster)
        found = switch.why(cluster)
    click.echo(found or "not frozen")
    return FROZEN if what != "on" and found is not None else 0
