"""Draw a curve as inline SVG; colours are classes that the page around it defines."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from pdops.diagnose.report_curves import Curve
from pdops.diagnose.text_number import number
from pdops.sources.redact import clean

WIDTH, HEIGHT = 560, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 10, 10, 22
_HEADROOM = 1.08
_TICKS = (900, 600, 300, 120, 60, 30, 15, 5)


def safe(text: str) -> str:
    """Return text from outside for HTML: no control or direction characters, nothing that is markup."""
    return escape(clean(text), quote=True)


def draw(curve: Curve) -> str:
    """Return one curve as an SVG element: windows shaded, expectation dashed, events marked, gaps left open."""
    label = f"{curve.signal} at {curve.where}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(label)}">'
        f"<title>{safe(label)}</title>{''.join(_Plot(curve).parts())}</svg>"
    )


class _Plot:
    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self.first_s, self.last_s = curve.points[0][0], curve.points[-1][0]
        values = [*curve.known, *([curve.expected] if curve.expected is not None else [])]
        low, high = min(0.0, *values), max(0.0, *values)
        # A flat line at zero is drawn at the foot.
        self.low, self.high = low * _HEADROOM, high * _HEADROOM if high > low else low + 1.0

    def x(self, t_s: float) -> float:
        share = (t_s - self.first_s) / (self.last_s - self.first_s)
        return round(_LEFT + min(1.0, max(0.0, share)) * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    def parts(self) -> Iterator[str]:
        foot = HEIGHT - _BOTTOM
        for window, look in ((self.curve.base, "base"), (self.curve.now, "now")):
            if window is not None:
                left, right = self.x(window.start_s), self.x(window.end_s)
                yield f'<rect class="{look}" x="{left}" y="{_TOP}" width="{max(0.0, right - left):.1f}" height="{foot - _TOP}"/>'
        for value in (self.low, (self.low + self.high) / 2, self.high):
            at, text = self.y(value), safe(number(value, _axis_unit(self.curve.unit)))
            yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
            yield f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{text}</text>'
        yield from self._times(foot)
        for t_s, what in self.curve.marks:
            at = self.x(t_s)
            yield f'<line class="mark" x1="{at}" x2="{at}" y1="{_TOP}" y2="{foot}"><title>{safe(what)}</title></line>'
        if self.curve.expected is not None:
            at = self.y(self.curve.expected)
            yield f'<line class="expected" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<path class="curve" d="{self._path()}"/>'

    def _times(self, foot: int) -> Iterator[str]:
        span_s = self.last_s - self.first_s
        step_s = next((s for s in _TICKS if s <= span_s / 2), 1)
        back_s = 0
        while back_s <= span_s:
            text = "now" if back_s == 0 else f"-{back_s // 60} min" if step_s >= 60 else f"-{back_s} s"
            anchor = "end" if back_s == 0 else "middle"
            yield f'<text x="{self.x(self.last_s - back_s)}" y="{foot + 15}" text-anchor="{anchor}">{text}</text>'
            back_s += step_s

    def _path(self) -> str:
        found = []
        pen = "M"
        for index, (t_s, value) in enumerate(self.curve.points):
            if value is None:
                pen = "M"
                continue
            found.append(f"{pen}{self.x(t_s)} {self.y(value)}")
            alone = pen == "M" and (index + 1 == len(self.curve.points) or self.curve.points[index + 1][1] is None)
            found.extend(["h1.5"] if alone else [])
            pen = "L"
        return "".join(found)


def _axis_unit(unit: str) -> str:
    """Return the unit that stands at an axis: those that are short; others stand in the caption only."""
    return unit if unit in ("seconds", "ratio") or unit.startswith("bytes") else ""
