"""Run the preflight checks over a View."""

from __future__ import annotations

from collections.abc import Sequence

from pdops.diagnose.checks import PREFLIGHT
from pdops.diagnose.context import Context
from pdops.diagnose.finding import Check, CheckMeta, Finding
from pdops.diagnose.preflight import Result, unread
from pdops.model.view import View


def run_preflight(view: View, checks: Sequence[Check] = PREFLIGHT) -> tuple[Result, ...]:
    """Judge the configuration of a View by each preflight check, in the order of the registry."""
    ctx = Context(view)
    return tuple((check.meta, tuple(check.run(ctx)) or (_silent(check.meta),)) for check in checks)


def _silent(meta: CheckMeta) -> Finding:
    return unread(meta.causes[0], None, "facts", "the check had nothing to look at")
