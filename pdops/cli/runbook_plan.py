"""`pdops runbook plan`: what would change, with the guards as they are now."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.cli.backends import backend_for
from pdops.cli.inputs import Inputs, source_options
from pdops.cli.judge import judge
from pdops.cli.runbook_read import complete
from pdops.cli.style import Number, styler, width
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.actuate.backend import Value

REFUSED = 6


@click.command(
    "plan",
    epilog="Examples:\n\n\b\n  pdops runbook plan scale-out-prefill -c pdops.yaml\n"
    "  pdops runbook plan restart-worker --set worker=decode-1 -c pdops.yaml -o plan.json\n"
    "  pdops runbook plan kv-store-outage --replay incident.pdrec --at 120",
)
@click.argument("runbook", shell_complete=complete)
@source_options()
@click.option(
    "--set", "chosen", multiple=True, metavar="NAME=VALUE", help="A parameter of the runbook; may be repeated."
)
@click.option("--recovery", is_flag=True, help="Plan the way back instead, where the runbook has one.")
@click.option(
    "--alert", is_flag=True, help="Plan as an alert would: the diagnosis must agree, whoever may ask by hand."
)
@click.option("--at", metavar="T", help="With --replay: seconds from the start, negative from the end, or RFC 3339.")
@click.option(
    "--for",
    "watch_s",
    type=Number(2, 900),
    default=30.0,
    show_default=True,
    metavar="S",
    help="How long to watch live targets before planning.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON (see `pdops schema plan`).")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Also write the plan here."
)
def plan(
    runbook: str,
    inputs: Inputs,
    chosen: tuple[str, ...],
    recovery: bool,
    alert: bool,
    at: str | None,
    watch_s: float,
    as_json: bool,
    out: Path | None,
) -> int:
    """Plan RUNBOOK, the id of a shipped one or a file. Nothing is changed.

    Exit status: 0 ready, 6 refused or held, with the reasons; 2 usage, 3 no target answered.
    """
    from pdops.clock import WallClock
    from pdops.errors import UnreachableError
    from pdops.runbook.encode import plan_to_json
    from pdops.runbook.load import find_runbook
    from pdops.runbook.make import BackendState, make_plan, without_backend
    from pdops.runbook.plan import Asked, Decision
    from pdops.runbook.targets import checked
    from pdops.runbook.text import render_plan
    from pdops.runbook.world import nothing_runs

    found = find_runbook(runbook)
    # Before targets are watched for half a minute.
    values = checked(found, _values(chosen))
    if recovery and found.recovery is None:
        raise UsageError("runbook has no recovery", where=found.id, hint="leave --recovery out")
    judged, answered = judge(inputs, at, watch_s)
    backend = backend_for(inputs)
    seen = backend.observe() if backend is not None else None
    # Where the backend is sure that nothing runs, silence is what there is to be seen.
    if not answered and not (seen is not None and nothing_runs(seen)):
        hint = "check addresses and ports; `curl URL/metrics` shows what a target says"
        raise UnreachableError("no target answered, so nothing can be planned", hint=hint)
    live = inputs.kind() in ("live", "prometheus")
    made = make_plan(
        found,
        judged.view,
        judged.report,
        without_backend(judged.view)
        if backend is None or seen is None
        else BackendState(backend.name, seen, backend.capabilities()),
        values,
        # What was recorded is planned as of then, and so can never be mistaken for a plan about now.
        made_at_s=WallClock().now() if live else judged.view.at_s,
        asked=Asked.ALERT if alert else Asked.PERSON,
        recovery=recovery,
    )
    text = plan_to_json(made)
    if out is not None:
        out.write_text(text, encoding="utf-8")
        click.echo(f"{out}: written", err=True)
    click.echo(text if as_json else render_plan(made, width=width(), style=styler(sys.stdout)), nl=False)
    return 0 if made.decision is Decision.READY else REFUSED


def _values(chosen: tuple[str, ...]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for text in chosen:
        name, sep, value = text.partition("=")
        if not (sep and name and value):
            raise UsageError("--set is not NAME=VALUE", where=repr(text)[:80], hint="write it as worker=decode-1")
        if name in found:
            raise UsageError("a parameter is given twice", where=name, hint="keep one of them")
        found[name] = value
    return found
