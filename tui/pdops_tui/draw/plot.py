"""Small drawings over time: sparklines, a plot of dots, and a map of buckets. A bin that is not known is a dash, never a low one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdops.model.series import Floats
from pdops_tui.draw.line import Line, Span
from pdops_tui.models.format import Form, Style, seconds
from pdops_tui.models.text import pad
from pdops_tui.models.trend import Heat, Trend

LEVELS = "▁▂▃▄▅▆▇█"
GAP = "-"
SHADES = " ░▒▓█"
_AXIS = 7


def spark(trend: Trend, width: int, *, limit: float | None = None) -> Line:
    """Return one character a bin in at most `width` cells, scaled from zero to the greatest value or the limit.

    Bins above `limit` are marked in style. The newest bin is the last.
    """
    values = squeeze(trend.values, width)
    greatest = max(float(np.nanmax(values)) if np.isfinite(values).any() else 0.0, limit or 0.0)
    out: list[Span] = []
    for value in values:
        style: Style = "key"
        if not np.isfinite(value):
            char, style = GAP, "unknown"
        else:
            share = value / greatest if greatest > 0 else 0.0
            char = LEVELS[min(len(LEVELS) - 1, max(0, round(share * (len(LEVELS) - 1))))]
            if limit is not None and value > limit:
                style = "bad"
        if out and out[-1][1] == style:
            out[-1] = (out[-1][0] + char, style)
        else:
            out.append((char, style))
    return tuple(out)


def squeeze(values: Floats, width: int) -> Floats:
    """Return at most `width` values; several in one are their greatest, since a peak is what one looks for."""
    if len(values) <= width:
        return values
    groups = np.array_split(values, max(1, width))
    return np.array([np.nanmax(g) if np.isfinite(g).any() else np.nan for g in groups])


def plot(trend: Trend, width: int, height: int, form: Form, *, limit: float | None = None) -> list[Line]:
    """Return a plot of `height` lines: an axis from zero, braille dots, a line of dashes at `limit`, time at the foot."""
    room = max(4, width - _AXIS - 3)
    rows = max(1, height - 1)
    top = max([v for v in (trend.top, limit or 0.0) if np.isfinite(v)], default=0.0) or 1.0
    dots = np.zeros((rows * 4, room * 2), dtype=bool)
    values = trend.values
    for column in range(room * 2):
        value = values[min(len(values) - 1, column * len(values) // (room * 2))]
        if np.isfinite(value):
            dots[rows * 4 - 1 - min(rows * 4 - 1, max(0, round(value / top * (rows * 4 - 1)))), column] = True
    at = round((1.0 - limit / top) * (rows * 4 - 1)) // 4 if limit else None
    out: list[Line] = []
    for row in range(rows):
        label = form(top) if row == 0 else form(0.0) if row == rows - 1 else ""
        if at == row and limit and row not in (0, rows - 1):
            label = form(limit)
        body = _braille(dots[row * 4 : row * 4 + 4], under=at == row)
        out.append(((pad(label, _AXIS, right=True), "dim"), (" ┤", "dim"), *body))
    length = trend.end_s - trend.start_s
    foot = f"{seconds(length)} ago" if length > 0 else "no time yet"
    out.append(
        ((" " * (_AXIS + 2) + pad(foot, room - 3) + "now", "dim"),)
        if trend.known
        else ((" " * (_AXIS + 2) + "? nothing is known of it over this time", "unknown"),)
    )
    return out[:height]


_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def _braille(dots: Floats, *, under: bool) -> list[Span]:
    text = ""
    for left in range(0, dots.shape[1], 2):
        bits = sum(_BITS[y][x] for y in range(4) for x in range(2) if dots[y, left + x])
        text += chr(0x2800 + bits) if bits else "╌" if under else " "
    return [(text, "key")]


def heat_lines(heat: Heat, width: int, most: int) -> list[Line]:
    """Return a line a bucket with events, the slowest on top: shades by the share of a bin's events in it.

    A bin without events is blank, one that is not known a dash.
    """
    counts = heat.counts
    with np.errstate(invalid="ignore", divide="ignore"):
        totals = counts.sum(axis=1)
        shares = counts / totals[:, None]
    seen = [i for i in range(counts.shape[1]) if np.nansum(counts[:, i]) > 0]
    if not seen:
        return [((" no event in the time that is kept", "dim"),)]
    shown = list(range(min(seen), max(seen) + 1))
    if len(shown) > most:
        # Slow ones are what one looks for; the fast ones go into one line.
        shown = shown[-most:]
    room = max(1, width - 20)
    groups = np.array_split(np.arange(counts.shape[0]), min(room, counts.shape[0]))
    out: list[Line] = []
    for index in reversed(shown):
        first = index == shown[0]
        low = -1 if first else index - 1
        cells: list[Span] = []
        for group in groups:
            part = shares[group, low + 1 : index + 1].sum(axis=1)
            quiet = np.isfinite(totals[group])
            if not quiet.any():
                cells.append((GAP, "unknown"))
                continue
            known = part[np.isfinite(part)]
            share = float(known.mean()) if len(known) else 0.0
            level = 0 if share <= 0 else min(len(SHADES) - 1, 1 + int(share * (len(SHADES) - 1)))
            cells.append((SHADES[level], "key"))
        total = float(np.nansum(counts))
        mine = float(np.nansum(counts[:, low + 1 : index + 1])) / total if total else 0.0
        out.append(
            (
                (pad(_bucket(heat.bounds, index), 10, right=True), "dim"),
                (" ", ""),
                *_joined(cells, max(1, room // len(groups))),
                (f" {mine:>4.0%}", ""),
            )
        )
    return out


def _joined(cells: Sequence[Span], wide: int) -> list[Span]:
    out: list[Span] = []
    for char, style in cells:
        text = char * wide
        if out and out[-1][1] == style:
            out[-1] = (out[-1][0] + text, style)
        else:
            out.append((text, style))
    return out


def _bucket(bounds: Floats, index: int) -> str:
    if not np.isfinite(bounds[index]):
        return f">{seconds(float(bounds[index - 1]))}" if index else "any"
    return f"<={seconds(float(bounds[index]))}"
