"""`pdops respond`: alerts in, runbook runs out."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.cli.inputs import Inputs, source_options
from pdops.cli.runbook_run import journal_option, where
from pdops.cli.style import Number, warn
from pdops.cli.telling import Tell, telling_options, told
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.actuate.backend import Backend
    from pdops.cli.looker import Looker
    from pdops.model.report import Report
    from pdops.model.view import View
    from pdops.respond.service import Service, Settings
    from pdops.runbook.model import Mode

PORT = 9466
"""Beside the exporter's."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@click.command(
    "respond",
    epilog="Examples:\n\n\b\n  pdops respond -c pdops.yaml --tokens tokens --alertmanager http://127.0.0.1:9093\n"
    "  pdops respond -c pdops.yaml --tokens tokens --mode scale-out-prefill=auto --mode restart-worker=approve\n"
    "  curl -H 'Authorization: Bearer TOKEN' http://127.0.0.1:9466/status",
)
@source_options(case=False, replay=False)
@journal_option
@telling_options
@click.option(
    "--tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Lines NAME:ROLE:TOKEN; roles viewer, operator, approver, admin. Read again when it changes. "
    "Default: `tokens` beside the journal.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    metavar="RUNBOOK=MODE",
    help="advise, approve or auto; may be repeated. Every shipped runbook advises.",
)
@click.option(
    "--runbook",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A runbook of your own, in place of a shipped one of its id; may be repeated.",
)
@click.option("--alertmanager", metavar="URL", help="Ask this Alertmanager what fires, at the start and again.")
@click.option("--receiver", metavar="NAME", help="With --alertmanager: only what is routed to this receiver.")
@click.option(
    "--max-alerts", type=click.IntRange(1, 100_000), default=500, show_default=True,
    help="Alerts of one delivery; its body may have 2100 bytes for each.",
)  # fmt: skip
@click.option(
    "--watchdog-s",
    type=Number(0, 86400),
    default=300.0,
    show_default=True,
    metavar="S",
    help="Nothing starts by itself when the Watchdog alert was not heard for S seconds; 0: do not watch for it.",
)
@click.option(
    "--for", "watch_s", type=Number(2, 900), default=30.0, show_default=True, metavar="S",
    help="How long to watch the targets before the first plan.",
)  # fmt: skip
def command(
    inputs: Inputs,
    journal_path: Path | None,
    tell: Tell,
    tokens: Path | None,
    host: str,
    port: int,
    modes: tuple[str, ...],
    files: tuple[Path, ...],
    alertmanager: str | None,
    receiver: str | None,
    max_alerts: int,
    watchdog_s: float,
    watch_s: float,
) -> int:
    """Receive Alertmanager's webhooks at /alerts, and make plans and runs of them.

    An alert names runbooks; the diagnosis must agree, every guard must pass, and the mode says what then happens: advise
    writes a plan down, approve waits for a person, auto starts. Alerts are in the journal before they are answered.

    Exit status: 130 interrupted or ended; 2 usage, 6 another process answers this cluster's alerts.
    """
    from pdops.respond.alone import alone
    from pdops.respond.candidates import acting, with_modes
    from pdops.respond.service import Settings
    from pdops.respond.tokens import FILE, Tokens
    from pdops.runbook.load import load_runbook, shipped, shipped_ids

    journal = where(journal_path)
    people = Tokens(tokens or journal.with_name(FILE))
    own = [load_runbook(path) for path in files]
    runbooks = with_modes([*(shipped(name) for name in shipped_ids()), *own], _modes(modes))
    if people.readable_by_others():
        warn(f"{people.path}: everybody on this host may read the tokens; chmod 600 it")
    if host not in _LOOPBACK:
        warn(f"listening on {host}: tokens cross the network as they are; put TLS in front of it")
    backend = _backend(inputs)
    if backend is None and (acts := acting(runbooks)):
        why = "nothing is known that could be changed"
        raise UsageError("runbooks may only advise here", where=", ".join(acts), why=why, hint="leave --mode out")
    with (
        alone(journal, _cluster(inputs)),
        _Looking(inputs, watch_s) as looking,
        told(tell, journal, click.echo),
    ):
        settings = Settings(
            cluster=_cluster(inputs), journal=journal, runbooks=runbooks, look=looking.look,
            backend=lambda: _backend(inputs), tokens=people, watchdog_s=watchdog_s,
            alertmanager=None if alertmanager is None else _address(alertmanager), receiver=receiver,
            max_alerts=max_alerts,
        )  # fmt: skip
        return asyncio.run(_serve(settings, host, port))


def _modes(given: tuple[str, ...]) -> dict[str, Mode]:
    from pdops.runbook.model import Mode

    found: dict[str, Mode] = {}
    for text in given:
        name, _, word = text.partition("=")
        if word not in set(Mode):
            hint = f"write it as scale-out-prefill={Mode.APPROVE}; modes are {', '.join(Mode)}"
            raise UsageError("--mode is not RUNBOOK=MODE", where=repr(text)[:80], hint=hint)
        if name in found:
            raise UsageError("a runbook is given two modes", where=name[:80], hint="keep one of them")
        found[name] = Mode(word)
    return found


def _address(text: str) -> str:
    from pydantic_core import PydanticCustomError

    from pdops.sources.validate import web_address

    try:
        return web_address(text)
    except PydanticCustomError as error:
        context = error.context or {}
        raise UsageError("--alertmanager cannot be used", why=context["why"], hint=context["hint"]) from None


def _backend(inputs: Inputs) -> Backend | None:
    from pdops.cli.backends import backend_for

    return backend_for(inputs)


def _cluster(inputs: Inputs) -> str:
    inventory = inputs.inventory()
    if inventory is None:
        raise UsageError("no cluster is named", hint="give -c pdops.yaml, which names one")
    return inventory.cluster.name


class _Looking:
    """Looks for as long as the process lives: where reading ended, it begins anew."""

    def __init__(self, inputs: Inputs, watch_s: float) -> None:
        self._inputs, self._watch_s = inputs, watch_s
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._looker: Looker | None = None

    def __enter__(self) -> _Looking:
        # Not at the first alert: what an alert is about is compared with what was before it.
        self._reading()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self) -> tuple[View, Report]:
        """Return what is seen now with its diagnosis.

        Raises:
            UnreachableError: nothing can be read; the next look begins anew.
        """
        from pdops.errors import UnreachableError

        looker = self._reading()
        try:
            return looker.look()
        except UnreachableError:
            with self._lock:
                if self._looker is looker and looker.ended:
                    self._stack.close()
                    self._looker = None
            raise

    def _reading(self) -> Looker:
        from pdops.cli.looker import Looker

        with self._lock:
            if self._looker is None:
                self._looker = self._stack.enter_context(Looker(self._inputs, self._watch_s))
            return self._looker


async def _serve(settings: Settings, host: str, port: int) -> int:
    from pdops.clock import WallClock
    from pdops.respond.listen import listen
    from pdops.respond.server import app
    from pdops.respond.service import Service

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    service = Service(settings, WallClock())
    try:
        await service.open()
        runner = await listen(app(service), host, port)
        try:
            bound = runner.addresses[0][:2]
            click.echo(f"pdops respond: http://{bound[0]}:{bound[1]}/alerts", err=True)
            await _until(stop, service)
        finally:
            await runner.cleanup()
    finally:
        await service.close()
    return 130


async def _until(stop: asyncio.Event, service: Service) -> None:
    """Wait for a signal; what ends a thread ends the process, so that a supervisor starts it again."""
    follow = asyncio.create_task(service.follow(), name="respond-alertmanager")
    waiter = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set():
            await asyncio.wait({waiter}, timeout=1.0)
            if (failure := service.failure()) is not None:
                raise failure
            if follow.done():
                follow.result()
    finally:
        for task in (follow, waiter):
            task.cancel()
        await asyncio.gather(follow, waiter, return_exceptions=True)
