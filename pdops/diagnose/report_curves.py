"""What a piece of evidence looks like over time: one curve a signal and place, drawn from the View it was judged on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdops.catalog.load import catalog
from pdops.history.readings import Readings
from pdops.model.cluster import CLIENT, PAIR_PREFIX, POOL_PREFIX, Role
from pdops.model.report import Bound, Observed, Report, Scope
from pdops.model.series import Kind, Reading, Window
from pdops.model.view import View

STEPS = 72
MOST = 24
"""Curves of one report; more are not read by anybody who is paged."""
_SPAN_S = 900.0
_EVENTS_S = 20.0
"""Least width of the window behind one point of a histogram: buckets come every ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A signal at a place over time.

    `points` are (Unix seconds, value or None where it is not known). `expected` is what it is compared with, as far as
    that is a number; `marks` are (Unix seconds, what happened there).
    """

    signal: str
    where: str
    unit: str
    points: tuple[tuple[float, float | None], ...]
    now: Window
    base: Window | None
    expected: float | None = None
    marks: tuple[tuple[float, str], ...] = ()

    @property
    def known(self) -> tuple[float, ...]:
        """The values that are known."""
        return tuple(v for _, v in self.points if v is not None)


def curves(view: View, report: Report) -> tuple[Curve, ...]:
    """Return the curves a reader wants: what clients see, then every plotted piece of evidence once, in report order."""
    ask = Readings(view)
    wanted: dict[tuple[str, str], float | None] = dict.fromkeys(_clients(view))
    for hypothesis in report.hypotheses:
        for piece in (*hypothesis.for_, *hypothesis.against):
            if piece.scope is None:
                continue
            key = (piece.signal, _key(piece.scope))
            wanted[key] = wanted.get(key) or _number(piece.expected)
    found = (_curve(view, ask, signal, key, expected) for (signal, key), expected in wanted.items())
    return tuple(c for c in found if c is not None)[:MOST]


def _clients(view: View) -> Iterable[tuple[str, str]]:
    pools = [POOL_PREFIX + pool for pool in view.cluster.pools(Role.DECODE)]
    for signal in ("ttft_seconds", "itl_seconds"):
        stem = f"{signal}.p{round(view.cluster.slo.percentile * 100)}"
        names = [CLIENT] if any(s == CLIENT and n.startswith(signal) for s, n in view.series) else pools
        yield from ((stem, name) for name in names)


def _curve(view: View, ask: Readings, signal: str, key: str, expected: float | None) -> Curve | None:
    begin_s = max(view.start_s, view.at_s - _SPAN_S)
    step_s = (view.at_s - begin_s) / STEPS
    if not step_s > 0 or signal.partition(".")[0].partition("[")[0] not in catalog().signals:
        return None
    spec = catalog().signals[signal.partition(".")[0].partition("[")[0]]
    width_s = max(step_s, 2.0 * view.interval_s, _EVENTS_S if spec.kind is Kind.HISTOGRAM else 0.0)
    points = []
    for n in range(1, STEPS + 1):
        at_s = begin_s + n * step_s
        points.append((at_s, _reading(ask, key, signal, Window(at_s - width_s, at_s)).value))
    per_s = signal.endswith(".rate") or (spec.kind is Kind.COUNTER and "." not in signal)
    marks = tuple((e.t_s, _mark(e.kind, e.worker or e.pool)) for e in view.events if begin_s <= e.t_s <= view.at_s)
    curve = Curve(
        signal=signal,
        where=key.removeprefix(PAIR_PREFIX).replace(POOL_PREFIX, "pool "),
        unit=f"{spec.unit}/s" if per_s else spec.unit,
        points=tuple(points),
        now=view.now,
        base=view.base,
        expected=None if per_s and not signal.endswith(".rate") else expected,
        marks=marks,
    )
    return curve if len(curve.known) > 1 else None


def _reading(ask: Readings, key: str, signal: str, window: Window) -> Reading:
    stem, _, stat = signal.partition(".")
    if stat and (key, signal) in ask.view.series:
        return ask.level(key, signal, window)
    if stem == "kv_transfer_bandwidth":
        return ask.bandwidth(key, window)
    if stat.startswith("p") and stat[1:].isdigit():
        return ask.quantile(key, stem, int(stat[1:]) / 100, window)
    kind = catalog().signals[stem.partition("[")[0]].kind
    if stat == "rate" or (kind is Kind.COUNTER and not stat):
        return ask.rate(key, stem, window)
    return ask.mean(key, stem, window) if stat == "mean" or kind is Kind.HISTOGRAM else ask.level(key, stem, window)


def _key(scope: Scope) -> str:
    return {"pool": POOL_PREFIX, "pair": PAIR_PREFIX}.get(scope.kind, "") + scope.id


def _number(value: Observed) -> float | None:
    if isinstance(value, Bound):
        return value.value
    return float(value) if isinstance(value, int | float) else None


def _mark(kind: str, who: str | None) -> str:
    return f"{who}: {kind}" if who else str(kind)
