"""What a reading was in the base window, or None when there is no base or nothing was known then."""

from __future__ import annotations

from pdops.diagnose.context import Context


def level(ctx: Context, scope: str, signal: str) -> float | None:
    """Return a gauge's former level."""
    return ctx.ask.level(scope, signal, ctx.view.base).value if ctx.view.base is not None else None


def mean(ctx: Context, scope: str, signal: str) -> float | None:
    """Return the former mean of a histogram's events."""
    return ctx.ask.mean(scope, signal, ctx.view.base).value if ctx.view.base is not None else None


def rate(ctx: Context, scope: str, signal: str) -> float | None:
    """Return the former growth of a counter per second."""
    return ctx.ask.rate(scope, signal, ctx.view.base).value if ctx.view.base is not None else None
