"""The command line: parse, call a room, render. No logic lives here, and no command is imported before it is used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from pdops import __version__
from pdops.errors import PdopsError

COMMANDS = {
    "canary": "Send one tiny request with a known answer through every pair",
    "demo": "Show a recorded incident of a real prefill/decode pair",
    "diagnose": "Name the layer at fault, with the evidence for, against and missing",
    "down": "Stop the reference deployment, without losing requests",
    "drill": "Break the reference deployment on purpose, and put it back",
    "exporter": "Serve every engine's signals under one name, for Prometheus",
    "explain": "Explain a check, a cause or any log line",
    "preflight": "Check what must match between prefill and decode, and on each host",
    "record": "Record a cluster to a file",
    "replay": "Play a recording back as text: frames and events",
    "router": "Route completions: prefill on one worker, decode on another",
    "schema": "Print the JSON Schema of a format",
    "status": "Show how far the reference deployment is, and how it is",
    "top": "Show every pool and worker live",
    "up": "Start a real prefill/decode cluster on this host: vLLM with NIXL",
}


INTERNAL_ERROR = 70
"""Exit status of a defect in pdops itself, as sysexits.h has it; no documented outcome uses it."""


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
    try:
        status = cli.main(given, prog_name="pdops", standalone_mode=False)
    except PdopsError as error:
        if debug:
            raise
        click.echo(f"pdops: {error}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader went away; point stdout elsewhere so that the interpreter's own flush at exit stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
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
    sys.exit(status if isinstance(status, int) else 0)
