"""`pdops freeze`: stop all automation at once."""

from __future__ import annotations

from pathlib import Path

import click

from pdops.cli.runbook_run import journal_options, named, opened, where, who
from pdops.cli.style import warn

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
    from pdops.errors import JournalError, UsageError
    from pdops.runbook.killswitch import freeze_by_file, frozen_by_file
    from pdops.sources.redact import clean

    if not cluster.strip() or clean(cluster) != cluster:
        hint = "name it as its inventory does, or leave --cluster out for all"
        raise UsageError("a cluster has no such name", where=clean(cluster), hint=hint)
    if what == "status" and frozen_by_file(where(journal_path)) is None:
        named(journal_path)
    if what != "on" or cluster != "*":
        return _switched(what, cluster, why, journal_path, actor)
    # First, because the switch has to work where the journal does not.
    file = freeze_by_file(where(journal_path), who(actor), why)
    try:
        return _switched(what, cluster, why, journal_path, actor)
    except JournalError:
        warn(f"frozen all the same, by the file {file}: where it is, nothing is changed")
        raise


def _switched(what: str, cluster: str, why: str, journal_path: Path | None, actor: str | None) -> int:
    from pdops.runbook.killswitch import KillSwitch

    with opened(journal_path) as journal:
        switch = KillSwitch(journal)
        if what == "on":
            switch.on(who(actor), why, cluster)
        elif what == "off":
            switch.off(who(actor), cluster)
        found = switch.why(cluster)
        known = journal.clusters()
        # Without a name the question is whether anything is frozen at all.
        others = {scope: why for scope, why in journal.freezes().items() if cluster == "*" and scope != "*"}
    if cluster != "*" and known and cluster not in known:
        warn(f"no run is about {cluster}; the journal knows {', '.join(known[:10])}")
    if found is not None or not others:
        click.echo(("" if cluster == "*" else f"{cluster}: ") + (found or "not frozen"))
    for scope, said in others.items():
        click.echo(f"{scope}: {said}")
    return FROZEN if what != "on" and (found is not None or others) else 0
