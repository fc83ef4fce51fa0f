"""The command line: parse, call a room, render. No logic lives here, and no command is imported before it is used."""

from __future__ import annotations

import importlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from pdops import __version__
from pdops.errors import PdopsError

COMMANDS = {
    "bench": "Measure how good the diagnosis is, beside every baseline",
    "canary": "Send one tiny request with a known answer through every pair",
    "dashboards": "Build, check and push the Grafana dashboards",
    "demo": "Show a recorded incident of a real prefill/decode pair",
    "diagnose": "Name the layer at fault, with the evidence for, against and missing",
    "down": "Stop the reference deployment, without losing requests",
    "drill": "Break the reference deployment on purpose, and put it back",
    "exporter": "Serve every engine's signals under one name, for Prometheus",
    "explain": "Explain a check, a cause, an alert or any log line",
    "freeze": "Stop all automation at once, or let it go on",
    "preflight": "Check what must match between prefill and decode, and on each host",
    "record": "Record a cluster to a file",
    "replay": "Play a recording back as text: frames and events",
    "respond": "Receive alerts and make plans and runs of them, as far as the mode allows",
    "router": "Route completions: prefill on one worker, decode on another",
    "rules": "Make recording rules and alerts for Prometheus, and check them",
    "runbook": "Plan what a diagnosis asks for, with guards and the way back",
    "schema": "Print the JSON Schema of a format",
    "status": "Show how far the reference deployment is, and how it is",
    "top": "Show every pool and worker live",
    "up": "Start a prefill/decode cluster on this host: vLLM with NIXL, or simulated",
}


INTERNAL_ERROR = 70
"""Exit status of a defect in pdops itself, as sysexits.h has it; no documented outcome uses it."""


READER_GONE = 141
"""Exit status when the reader of standard output went away: what a shell shows of a program that SIGPIPE ended. What was
cut off says nothing of the outcome, so it is none of the documented ones."""


class _ReaderGoneError(Exception):
    """Standard output has no reader any more; no OSError, as click ends those with a status of its own."""


class _Lazy(click.Group):
    """Imports a command's module when it is run, and lists commands without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"pdops.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _told_of_readers():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with _told_of_readers():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's signature
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], list(COMMANDS), n=1)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from None


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PDOPS"},
    epilog="Example: pdops diagnose --target prefill=http://10.0.3.11:8000 --target decode=http://10.0.3.12:8000",
)
@click.version_option(__version__, prog_name="pdops")
@click.option("--debug", is_flag=True, help="Show tracebacks instead of short error messages.")
def cli(debug: bool) -> None:
    """Operate prefill/decode-disaggregated LLM inference clusters."""


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the documented status."""
    given = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in given
    # A stream that was closed by whoever started us is None; what is written to it goes nowhere, as it was meant to.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  as long as the process
    try:
        status = cli.main(given, prog_name="pdops", standalone_mode=False)
    except PdopsError as error:
        if debug:
            raise
        from pdops.cli.style import complain

        complain(error)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except _ReaderGoneError:
        _quiet_exit()
    except OSError as error:
        if debug:
            raise
        where = f": {error.filename}" if error.filename else ""
        click.echo(f"pdops: input or output failed{where}: {error.strerror or error}", err=True)
        click.echo("hint: check where the output goes, its permissions and the space left", err=True)
        sys.exit(2)
    except Exception as error:  # the last line of defence: a defect of ours must not greet a user with a traceback
        if debug:
            raise
        click.echo(f"pdops: internal error: {type(error).__name__}: {error}", err=True)
        click.echo("hint: run again with --debug and report what it prints", err=True)
        sys.exit(INTERNAL_ERROR)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _quiet_exit()
    sys.exit(status if isinstance(status, int) else 0)


@contextmanager
def _told_of_readers() -> Iterator[None]:
    """Tell standard output that nobody reads any more from every other pipe or connection that broke."""
    try:
        yield
    except BrokenPipeError as error:
        look = select.poll()
        look.register(sys.stdout.fileno(), select.POLLOUT)
        if any(seen & (select.POLLERR | select.POLLHUP) for _, seen in look.poll(0)):
            raise _ReaderGoneError from error
        raise OSError(f"{error.strerror}: a connection or pipe broke") from error


def _quiet_exit() -> NoReturn:
    # Pointed elsewhere, the interpreter's own flush at exit stays quiet.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(READER_GONE)
