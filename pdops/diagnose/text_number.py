"""Numbers for people."""

from __future__ import annotations

from pdops.model.report import Bound, Observed

_UNITS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def number(value: Observed, unit: str = "") -> str:
    """Return a value with its unit, three significant digits, bounds marked."""
    if value is None:
        return "?"
    if isinstance(value, str):
        return value
    sign = ""
    if isinstance(value, Bound):
        sign = "≥" if value.bound == "ge" else "≤"
        value = value.value
    if unit == "ratio":
        return f"{sign}{value:.1%}"
    if unit == "seconds":
        return f"{sign}{value * 1000:.3g} ms" if 0 < abs(value) < 0.1 else f"{sign}{value:.3g} s"
    short = unit.replace("bytes", "B")
    for prefix, scale in _UNITS:
        if abs(value) >= scale * (1 if short.startswith("B") else 10):
            return f"{sign}{value / scale:.3g} {prefix}{short}".rstrip()
    written = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{sign}{written} {short}".rstrip()
