"""Turn readings into cells: short text, a mark that needs no colour, and the reason behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pdops.model.report import Bound, Observed, Verdict
from pdops.model.series import Reading
from pdops.model.times import rfc3339
from pdops_tui.models.text import clean

Style = Literal["", "title", "good", "warn", "bad", "dim", "unknown", "key", "cursor"]
Mark = Literal["", "!", "X"]
Form = Callable[[float], str]

UNKNOWN = "?"
SIGNS = {"ge": ">=", "le": "<="}
VERDICT_MARK = {Verdict.FAULT: "[X]", Verdict.OVERLOAD: "[!]", Verdict.UNKNOWN: "[?]", Verdict.HEALTHY: "ok"}
VERDICT_STYLE: dict[Verdict, Style] = {
    Verdict.FAULT: "bad",
    Verdict.OVERLOAD: "warn",
    Verdict.UNKNOWN: "unknown",
    Verdict.HEALTHY: "good",
}
_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Cell:
    """One value on the screen.

    `why` says where it comes from, or why it is not known. `mark` repeats in a character what `style` says in colour.
    `sort` orders cells of a column; None goes last.
    """

    text: str
    style: Style = ""
    why: str = ""
    mark: Mark = ""
    sort: float | None = None


def unknown_cell(why: str) -> Cell:
    """Return the cell of a value that is not known."""
    return Cell(UNKNOWN, "unknown", clean(why) or "not known")


def cell(reading: Reading, form: Form, unit: str = "", *, partial: str = "~", about: str = "") -> Cell:
    """Return a reading as a cell.

    Args:
        reading: the number, bound or reason.
        form: writes the number in few characters.
        unit: of the raw number, for `why`.
        partial: stands before a number from which parts are missing: `>=` for a sum or a maximum, which they can only
            make greater, else `~`.
        about: what the number is, for `why`.
    """
    if reading.value is None:
        return unknown_cell(_join(about, reading.why or "not known", _without(reading)))
    value = reading.value
    if reading.bound is not None:
        # A bound of a part bounds the whole only by chance.
        text = ("~" if reading.missing else "") + SIGNS[reading.bound] + form(value)
    elif reading.missing:
        text = partial + form(value)
    else:
        text = form(value)
    raw = f"{SIGNS[reading.bound] if reading.bound else ''}{value:.6g} {unit}".rstrip()
    return Cell(text, why=_join(about, raw, f"n={reading.n}" if reading.n else "", _without(reading)), sort=value)


def marked(made: Cell, reading: Reading, *, warn: float | None = None, bad: float | None = None) -> Cell:
    """Return the cell marked when the true number is surely above a threshold."""
    if bad is not None and reading.above(bad):
        return replace(made, style="bad", mark="X", why=_join(made.why, f"above {bad:g}"))
    if warn is not None and reading.above(warn):
        return replace(made, style="warn", mark="!", why=_join(made.why, f"above {warn:g}"))
    return made


def stage_seconds(value: float | Bound | None) -> str:
    """Return seconds as published in a report."""
    if value is None:
        return UNKNOWN
    if isinstance(value, Bound):
        return SIGNS[value.bound] + seconds(value.value)
    return seconds(value)


def measured(value: Observed, unit: str) -> str:
    """Return a piece of evidence with its unit; a text is returned as it is."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return clean(value)
    sign = SIGNS[value.bound] if isinstance(value, Bound) else ""
    amount = value.value if isinstance(value, Bound) else value
    if unit == "seconds":
        return sign + seconds(amount)
    if unit == "ratio":
        return f"{sign}{percent(amount)}%"
    if unit.startswith("bytes"):
        return sign + size(amount) + unit.removeprefix("bytes")
    return f"{sign}{per_second(amount) if unit.endswith('/s') else count(amount)} {clean(unit)}".rstrip()


def seconds(value: float) -> str:
    """Return a duration in at most five characters: 0s 400us 9.9ms 188ms 3.93s 12.3s 140s 25m 9.5h."""
    size = abs(value)
    if size == 0:
        return "0s"
    if size < 0.5e-6:
        return "<1us"
    if size < 0.9995e-3:
        return f"{value * 1e6:.0f}us"
    if size < 0.0995:
        return f"{value * 1e3:.2g}ms" if size < 0.00995 else f"{value * 1e3:.0f}ms"
    if size < 0.9995:
        return f"{value:g}s" if round(value, 1) == round(value, 4) else f"{value * 1e3:.0f}ms"
    if size < 99.95:
        return f"{value:.3g}s"
    if size < 600:
        return f"{value:.0f}s"
    return f"{value / 60:.0f}m" if size < 6_000 else f"{value / 3600:.3g}h"


def count(value: float) -> str:
    """Return a number of things: 0 3.5 44 9500 24.1k."""
    if abs(value) >= 9_999.5:
        return _scaled(value)
    return f"{value:.0f}" if value == round(value) or abs(value) >= 99.5 else f"{value:.1f}"


def per_second(value: float) -> str:
    """Return a rate: 0 0.42 12.4 952 24.1k."""
    if abs(value) >= 999.5:
        return _scaled(value)
    if 0 < abs(value) < 0.01:
        return "<.01" if value > 0 else f"{value:.2g}"
    return f"{value:.3g}" if abs(value) < 99.5 else f"{value:.0f}"


def size(value: float) -> str:
    """Return bytes in decimal units: 0B 12kB 1.62GB."""
    return f"{_scaled(value)}B" if abs(value) >= 999.5 else f"{value:.0f}B"


def percent(value: float) -> str:
    """Return a ratio (0-1) as per cent without the sign: 0 <0.1 9.4 50."""
    share = value * 100.0
    if 0 < share < 0.05:
        return "<0.1"
    return f"{share:.0f}" if share == 0 or abs(share) >= 9.95 else f"{share:.1f}"


def age(value: float | None) -> str:
    """Return an age in seconds as text, `?` when it is not known."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}s" if value < 9.95 else seconds(float(round(value)))


def moment(at_s: float, *, relative: bool = False) -> str:
    """Return a time of day in UTC, or seconds relative to the case's own zero."""
    if relative:
        return f"t={at_s:+.0f}s"
    try:
        return rfc3339(at_s)[11:]
    except (ValueError, OverflowError, OSError):
        return UNKNOWN


def _scaled(value: float) -> str:
    for scale, sign in _SCALES:
        if abs(value) >= scale * 0.9995:
            return f"{value / scale:.3g}{sign}"
    return f"{value:.3g}"


def _without(reading: Reading) -> str:
    if not reading.missing:
        return ""
    names = ", ".join(reading.missing[:5])
    more = f" and {len(reading.missing) - 5} more" if len(reading.missing) > 5 else ""
    return f"without {names}{more}, of which nothing is known now"


def _join(*parts: str) -> str:
    return "; ".join(clean(p) for p in parts if p)
