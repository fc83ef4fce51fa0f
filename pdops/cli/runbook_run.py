"""`pdops runbook apply`, `approve`, `resume`, `abort`: carry plans out."""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pdops.cli.inputs import Inputs, source_options
from pdops.cli.style import Number, styler, warn
from pdops.cli.telling import Tell, telling_options, told
from pdops.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from pdops.runbook.execute import Executor
    from pdops.runbook.journal import Journal, Run

F = TypeVar("F", bound=Callable[..., Any])
_EXIT = {"done": 0, "rolled-back": 4, "failed": 5}
WAITS = 6


journal_option = click.option(
    "--journal",
    "journal_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where runs are written down; default: the user's state folder.",
)


def journal_options(function: F) -> F:
    """Add the options that say where runs are written down, and who asks."""
    asks = click.option("--as", "actor", metavar="NAME", help="Who asks; default: the user who is logged in.")
    return journal_option(asks(function))


_watch = click.option(
    "--for", "watch_s", type=Number(2, 900), default=30.0, show_default=True, metavar="S",
    help="How long to watch the targets before the first guard is asked.",
)  # fmt: skip
_json = click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")


@contextmanager
def opened(path: Path | None) -> Iterator[Journal]:
    """Open the journal."""
    from pdops.clock import WallClock
    from pdops.runbook.journal import Journal

    with Journal(where(path), WallClock()) as journal:
        yield journal


def where(path: Path | None) -> Path:
    """Return the journal's file: the one that is named, else the user's own."""
    from pdops.reference.folders import user_folder

    return path or user_folder("XDG_STATE_HOME", ".local/state") / "pdops" / "runbooks" / "journal.db"


def named(path: Path | None) -> None:
    """Look that a journal named by hand is there: a mistyped one must not read as one in which nothing happened.

    Raises:
        UsageError: there is none of that name.
    """
    if path is not None and not path.is_file():
        raise UsageError("there is no journal", where=str(path), hint="leave --journal out for your own, or correct it")


def who(actor: str | None) -> str:
    """Return who asks."""
    if actor:
        return actor
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # Containers run under numbers that no user list knows.
        return f"uid-{os.getuid()}"


@contextmanager
def _engine(inputs: Inputs, watch_s: float, journal_path: Path | None, actor: str | None) -> Iterator[Executor]:
    from pdops.cli.backends import needed_backend
    from pdops.cli.looker import Looker
    from pdops.clock import WallClock
    from pdops.runbook.execute import Executor
    from pdops.runbook.signals import Signals

    backend = needed_backend(inputs)
    with opened(journal_path) as journal, Looker(inputs, watch_s) as looker:

        def reached(point: str) -> None:
            if sys.stderr.isatty():
                click.echo(point, err=True)

        yield Executor(
            journal,
            backend,
            Signals(looker.look),
            clock=WallClock(),
            sleep=time.sleep,
            actor=who(actor),
            reached=reached,
        )


@click.command(
    "apply",
    epilog="Examples:\n\n\b\n  pdops runbook apply plan.json -c pdops.yaml\n  pdops runbook apply plan.json -c pdops.yaml --notify slack:slack-url --otlp http://collector:4318",
)
@click.argument("plan_file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@source_options(case=False, replay=False)
@journal_options
@telling_options
@_watch
@_json
def apply(
    plan_file: Path,
    inputs: Inputs,
    journal_path: Path | None,
    actor: str | None,
    tell: Tell,
    watch_s: float,
    as_json: bool,
) -> int:
    """Carry PLAN_FILE out: guards again, then each step with its verification, then the watch.

    One plan has one run: applying it again shows or continues that run. Exit status: 0 done, 3 targets cannot be read
    or not any more, 4 rolled back, 5 failed and not rolled back, 6 refused, held or waiting for approval.
    """
    from pdops.runbook.encode import plan_from_json

    try:
        text = plan_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "plan cannot be used",
            where=str(plan_file),
            why=str(error),
            hint="give what `pdops runbook plan --json` wrote",
        ) from error
    plan = plan_from_json(text, path=str(plan_file))
    with _engine(inputs, watch_s, journal_path, actor) as engine:
        _same(engine, plan.cluster, plan.backend, inputs)
        with _telling(tell, engine, as_json=as_json):
            run = engine.open(plan).id
            with _left_told(engine.journal, run):
                ended = engine.drive(run)
        return _told(engine.journal, ended, as_json=as_json)


@click.command("resume", epilog="Example: pdops runbook resume scale-out-prefill-1f3a -c pdops.yaml")
@click.argument("run")
@source_options(case=False, replay=False)
@journal_options
@telling_options
@_watch
@_json
def resume(
    run: str, inputs: Inputs, journal_path: Path | None, actor: str | None, tell: Tell, watch_s: float, as_json: bool
) -> int:
    """Go on with RUN where it was held or its process ended: what is there is looked at first. Exit status as for apply."""
    with _engine(inputs, watch_s, journal_path, actor) as engine:
        found = engine.journal.run(run)
        _same(engine, found.cluster, str(found.plan["backend"]), inputs)
        with _telling(tell, engine, as_json=as_json), _left_told(engine.journal, found.id):
            ended = engine.drive(found.id)
        return _told(engine.journal, ended, as_json=as_json)


@click.command("abort", epilog="Example: pdops runbook abort scale-out-prefill-1f3a -c pdops.yaml")
@click.argument("run")
@source_options(case=False, replay=False)
@journal_options
@telling_options
@_watch
@_json
def abort(
    run: str, inputs: Inputs, journal_path: Path | None, actor: str | None, tell: Tell, watch_s: float, as_json: bool
) -> int:
    """End RUN and take back what it did. One that another process carries out stops at its next safe point.

    Exit status: 0 ended, 5 not everything was taken back, 6 held.
    """
    from pdops.runbook.states import RunState

    with _engine(inputs, watch_s, journal_path, actor) as engine:
        found = engine.journal.run(run)
        _same(engine, found.cluster, str(found.plan["backend"]), inputs)
        with _telling(tell, engine, as_json=as_json), _left_told(engine.journal, found.id):
            ended = engine.abort(found.id)
        _told(engine.journal, ended, as_json=as_json)
        if ended.state in (RunState.ABORTED, RunState.ROLLED_BACK):
            return 0
        return _EXIT.get(ended.state, WAITS)


@click.command("approve", epilog="Example: pdops runbook approve restart-worker-1f3a")
@click.argument("run")
@journal_options
def approve(run: str, journal_path: Path | None, actor: str | None) -> int:
    """Approve RUN; from disruptive upwards by somebody else than who asked for it. `resume` then carries it out, or
    `pdops respond` where an alert asked for it.

    Where the file `tokens` is beside the journal, as `pdops respond` reads it, only an approver or admin of it may, under the
    name this host knows the user by. Else names are taken as they are given. Neither keeps out who may write the journal.
    """
    from pdops.respond.tokens import FILE
    from pdops.runbook.approval import approve as approved

    tokens = where(journal_path).with_name(FILE)
    name = _approver(tokens, actor) if tokens.exists() else who(actor)
    with opened(journal_path) as journal:
        found = approved(journal, run, name)
        click.echo(f"{found.id} approved by {found.approver}; next: pdops runbook resume {found.id} -c pdops.yaml")
    return 0


def _telling(tell: Tell, engine: Executor, *, as_json: bool) -> AbstractContextManager[object]:
    return told(tell, engine.journal.path, None if as_json else click.echo)


@contextmanager
def _left_told(journal: Journal, run_id: str) -> Iterator[None]:
    """Say how a run is left when its command is interrupted: a worker may be down just now."""
    try:
        yield
    except KeyboardInterrupt:
        run = journal.run(run_id)
        if not run.ended:
            warn(f"interrupted: {run.id} is left {run.state}, and what its step began may be half done")
            click.echo(f"hint: pdops runbook resume {run.id} goes on with it, abort takes it back", err=True)
        raise


def _approver(tokens: Path, actor: str | None) -> str:
    import pwd

    from pdops.respond.tokens import Role, Tokens

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid-{os.getuid()}"
    if actor is not None and actor != name:
        hint = "approve with that name's token: POST /runs/RUN/approve of `pdops respond`"
        raise RefusedError(
            "names are not taken as they are given here", where=actor[:80], why=f"this is {name}", hint=hint
        )
    role = Tokens(tokens).role_of(name)
    if role is None or not role.may(Role.APPROVER):
        why = f"it is {role}" if role is not None else "the file does not name it"
        raise RefusedError("this user may not approve", where=f"{name} in {tokens}", why=why, hint="ask an approver")
    return name


def _same(engine: Executor, cluster: str, backend: str, inputs: Inputs) -> None:
    inventory = inputs.inventory()
    here = inventory.cluster.name if inventory is not None else ""
    if here != cluster or engine.backend.name != backend:
        raise RefusedError(
            "the plan is for another cluster", where=f"{here}, {engine.backend.name}", why=f"it is for {cluster}, {backend}",
            hint="give the inventory it was made with",
        )  # fmt: skip


def _told(journal: Journal, run: Run, *, as_json: bool) -> int:
    from pdops.runbook.timeline import lines, run_json

    if as_json:
        click.echo(json.dumps(run_json(journal, run), indent=1, ensure_ascii=False))
    else:
        dress = styler(sys.stdout)
        for line in lines(journal, run):
            click.echo(line)
        look = {"done": "good", "rolled-back": "warn", "failed": "bad"}.get(run.state, "warn")
        click.echo(dress(f"{run.id} {run.state}", look) + (f": {run.why}" if run.why else ""))
        if run.state == "held":
            click.echo(f"next: pdops runbook resume {run.id}, or abort it")
    return _EXIT.get(run.state, WAITS)
