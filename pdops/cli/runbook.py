"""`pdops runbook`: what may be done about a diagnosis. Its commands are imported when they are run."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "list": ("runbook_read", "list_runbooks", "List the runbooks"),
    "show": ("runbook_read", "show", "Show one runbook: what starts it, guards, steps, what it will not fix"),
    "lint": ("runbook_read", "lint_runbooks", "Check runbook files"),
    "plan": ("runbook_plan", "plan", "Print what a runbook would change now, and what speaks against it"),
    "apply": ("runbook_run", "apply", "Carry a plan out"),
    "approve": ("runbook_run", "approve", "Approve a run that waits for it"),
    "resume": ("runbook_run", "resume", "Go on with a run that was held or interrupted"),
    "abort": ("runbook_run", "abort", "End a run and take back what it did"),
    "log": ("runbook_log", "log", "List runs, or show what happened in one"),
    "timeline": ("runbook_log", "timeline", "Print what happened as Markdown, for a channel or a review"),
    "verify-audit": ("runbook_log", "verify_audit", "Check that the journal is what was written"),
}
"""Name → module of this package, function in it, help."""


class _Lazy(click.Group):
    """Imports a command when it is run, and lists commands without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  click's signature
        if cmd_name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[cmd_name]
        found = getattr(importlib.import_module(f"pdops.cli.{module}"), function)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(name, told) for name, (_, _, told) in COMMANDS.items()])


@click.group(
    "runbook",
    cls=_Lazy,
    epilog="Examples:\n\n\b\n  pdops runbook list\n  pdops runbook plan scale-out-prefill -c pdops.yaml",
)
def command() -> None:
    """Plan what a diagnosis asks for: every step, guard and way back is shown before anything is changed."""
