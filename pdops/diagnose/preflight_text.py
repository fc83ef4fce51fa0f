"""A preflight report for people: values side by side, then what could not be judged, then what agrees."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from pdops.diagnose.preflight import Outcome
from pdops.diagnose.preflight_report import CheckOutcome, PreflightReport, ValueSeen
from pdops.diagnose.text import Style, number, plain
from pdops.model.report import Missing

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
"""What names and values from outside could do to a terminal."""
_MARK = {
    Outcome.FAIL: "[X]",
    Outcome.WARN: "[!]",
    Outcome.UNKNOWN: "[?]",
    Outcome.OK: "ok ",
    Outcome.NOT_APPLICABLE: " - ",
}
_LOOK = {
    Outcome.FAIL: "bad",
    Outcome.WARN: "warn",
    Outcome.UNKNOWN: "warn",
    Outcome.OK: "good",
    Outcome.NOT_APPLICABLE: "dim",
}
_SHOWN = (Outcome.FAIL, Outcome.WARN, Outcome.UNKNOWN, Outcome.OK, Outcome.NOT_APPLICABLE)
_GRAVE = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WARN)
_MOST_COLUMNS = 6
_CELL = 48
_LINES_OF_MISSING = 4
_MOST_NAMES = 4


def render(report: PreflightReport, *, width: int = 100, style: Style = plain, full: bool = False) -> str:
    """Return the report as text of that width.

    With `full` nothing is cut, every unknown says how to get it, and what does not apply says why.
    """
    lines = [*_head(report, style)]
    for status in _SHOWN:
        checks = [check for check in report.checks if check.status is status]
        if not checks:
            continue
        lines.append("")
        if status is Outcome.NOT_APPLICABLE and not full:
            names = ", ".join(check.id for check in checks)
            lines += _wrap(f"{_MARK[status]} not applicable: {names}", width, "    ")
            continue
        for check in checks:
            lines += _check(check, width, style, full)
    lines += _unread(report, width, style)
    for note in report.notes:
        lines += ["", *_wrap(f"note: {_safe(note)}", width, "      ")]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(report: PreflightReport, style: Style) -> Iterator[str]:
    worst = next(
        (status for status in _GRAVE if report.count(status)), Outcome.OK if report.checks else Outcome.UNKNOWN
    )
    word = {Outcome.FAIL: "FIX FIRST", Outcome.WARN: "DOUBTS", Outcome.UNKNOWN: "NOT ALL KNOWN"}.get(worst, "READY")
    said = [f"{report.count(status)} {status.value}" for status in _SHOWN if report.count(status)]
    yield style(f"{_MARK[worst]} {word}", _LOOK[worst]) + f"  {_safe(report.cluster)}"
    yield f"    {', '.join(said)}"


def _check(check: CheckOutcome, width: int, style: Style, full: bool) -> Iterator[str]:
    mark = style(_MARK[check.status], _LOOK[check.status])
    if check.status is Outcome.UNKNOWN and not check.values and not full:
        yield from _unknown(check, mark, width)
        return
    if check.status in (Outcome.OK, Outcome.NOT_APPLICABLE):
        text = _wrap(f"{check.id}  {_safe(check.because)}", width - 4, "  ")
        shown = text if full else text[:2]
        yield f"{mark} {shown[0]}" + (" …" if len(text) > len(shown) == 1 else "")
        yield from (f"    {line}" for line in shown[1:])
        return
    yield f"{mark} {style(check.id, 'title')}  {check.title}"
    yield from (f"    {line}" for line in _table(check.values, width - 4))
    if check.expected:
        yield from _wrap(f"expected: {_safe(check.expected)}", width, "    ", first="    ")
    for step in check.next:
        yield from _wrap(f"fix: {_safe(step)}", width, "         ", first="    ")
    if check.status is not Outcome.UNKNOWN and check.because:
        yield from _wrap(f"else: {_safe(check.because)}", width, "          ", first="    ")
    yield from _missing(check.missing, width, full)


def _unknown(check: CheckOutcome, mark: str, width: int) -> Iterator[str]:
    """What a check lacks, and of whom; the reasons stand together at the end of the report."""
    facts = list(dict.fromkeys(_safe(item.signal) for item in check.missing))
    scopes = list(dict.fromkeys(_safe(str(item.scope)) for item in check.missing if item.scope is not None))
    more = f" and {len(scopes) - _MOST_NAMES} more" if len(scopes) > _MOST_NAMES else ""
    of = f" of {', '.join(scopes[:_MOST_NAMES])}{more}" if scopes else ""
    lines = _wrap(f"{check.id}  {', '.join(facts)}{of}", width - 4, "  ")
    yield f"{mark} {lines[0]}"
    yield from (f"    {line}" for line in lines[1:])


def _unread(report: PreflightReport, width: int, style: Style) -> Iterator[str]:
    """One line a reason, with the facts and workers it concerns."""
    by_fact: dict[tuple[str, str], list[str]] = {}
    for reason in report.unread:
        by_fact.setdefault((_safe(reason.why), _safe(reason.key)), []).append(_safe(reason.worker))
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (why, key), names in by_fact.items():
        grouped.setdefault((why, tuple(dict.fromkeys(names))), []).append(key)
    if grouped:
        yield ""
        yield style("not read, and why", "title")
    for (why, whose), keys in grouped.items():
        workers = list(whose)
        more = f" and {len(workers) - _MOST_NAMES} more" if len(workers) > _MOST_NAMES else ""
        named = f"{', '.join(workers[:_MOST_NAMES])}{more}"
        yield from _wrap(f"{named}: {', '.join(keys)}: {why}", width, "      ", first="    ")


def _missing(missing: Sequence[Missing], width: int, full: bool) -> Iterator[str]:
    """One line a reason, with all whom it concerns."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for item in missing:
        grouped.setdefault((item.signal, item.why, item.fix), []).append(str(item.scope) if item.scope else "")
    groups = list(grouped.items())
    shown = groups if full else groups[:_LINES_OF_MISSING]
    for (signal, why, fix), scopes in shown:
        names = [name for name in scopes if name]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES and not full else ""
        where = f" ({', '.join(names if full else names[:_MOST_NAMES])}{more})" if names else ""
        arrow = f" -> {fix}" if fix else ""
        yield from _wrap(f"? {_safe(f'{signal}{where}: {why}{arrow}')}", width, "      ", first="    ")
    if len(groups) > len(shown):
        yield f"    and {len(groups) - len(shown)} more (--full lists them)"


def _table(values: Sequence[ValueSeen], width: int) -> Iterator[str]:
    """Yield an aligned table with a column per worker or pair; stacked where that is too wide."""
    if not values:
        return
    columns = list(dict.fromkeys(_where(v) for v in values))
    rows = list(dict.fromkeys(v.option for v in values))
    cells = {(v.option, _where(v)): _safe(_value(v)) for v in values}
    first = max(len(_safe(row)) for row in rows)
    widths = [max(len(c), *(len(cells.get((row, c), "")) for row in rows)) for c in columns]
    if len(columns) <= _MOST_COLUMNS and first + sum(w + 2 for w in widths) <= width and max(widths) <= _CELL:
        yield " " * first + "".join(f"  {name:<{w}}" for name, w in zip(columns, widths, strict=True))
        for row in rows:
            line = "".join(f"  {cells.get((row, c), '-'):<{w}}" for c, w in zip(columns, widths, strict=True))
            yield f"{_safe(row):<{first}}{line}"
        return
    longest = max(map(len, columns))
    for (row, column), cell in cells.items():
        yield from _wrap(f"{_safe(row):<{first}}  {column:<{longest}}  {cell}", width, " " * (first + longest + 4))


def _value(seen: ValueSeen) -> str:
    """A limit or count must be read to the last digit, so only numbers with a unit are rounded."""
    if isinstance(seen.value, float | int) and not seen.unit:
        return f"{seen.value:.15g}"
    return number(seen.value, seen.unit)


def _where(value: ValueSeen) -> str:
    return _safe(str(value.scope)) if value.scope is not None else "cluster"


def _safe(text: str) -> str:
    return _CONTROL.sub("", text)


def _wrap(text: str, width: int, indent: str, *, first: str = "") -> list[str]:
    wrapped = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
    )
    return wrapped or [first]
