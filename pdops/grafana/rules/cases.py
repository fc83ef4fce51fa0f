"""Make promtool's unit tests from what an alert says of itself: below the threshold, at it, after a reset, without series."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from pdops.errors import UsageError
from pdops.grafana.families import exported
from pdops.grafana.promlint import names
from pdops.grafana.rules import build
from pdops.grafana.rules.types import Alert, Group, Input, Recording, Value
from pdops.model.series import Kind

_BELOW, _AT = 0, 1
_DURATION = re.compile(r"(?:\[|offset )(\d+)([smhd])|(?:rate|increase|mean)(\d+)([smhd])\b")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_STOOD = 1000
"""Where a counter stands before it is reset."""


@dataclass(frozen=True, slots=True)
class Case:
    """One situation: series by name, whether the alert fires in it, and after how many minutes to look."""

    title: str
    series: Mapping[str, str]
    fires: bool
    minutes: int


def cases(alert: Alert) -> tuple[Case, ...]:
    """Return the situations of an alert; none for one that always fires."""
    return tuple(_absent(alert) if alert.absence else _cases(alert)) if alert.inputs else ()


def _cases(alert: Alert) -> Iterator[Case]:
    minutes, step = horizon_m(alert), alert.step_s
    below, at = (
        {s: pattern(s, pick(i, side), minutes, step) for s, i in alert.inputs.items()} for side in (_BELOW, _AT)
    )
    yield Case("just below the threshold", below, False, minutes)
    yield Case("at the threshold", at, True, minutes)
    counters = [s for s, i in alert.inputs.items() if _is_counter(s) and not isinstance(pick(i, _AT), str)]
    if counters:
        for title, given, side, fires in (
            ("just below, and counters begin anew", below, _BELOW, False),
            ("at the threshold, and counters begin anew", at, _AT, True),
        ):
            again = {s: pattern(s, pick(alert.inputs[s], side), minutes, step, reset=True) for s in counters}
            yield Case(title, {**given, **again}, fires, minutes)
    for gone in at:
        left = {s: p for s, p in at.items() if s != gone}
        yield Case(f"without {gone}", left, gone in alert.optional, minutes)
    if len(at) > 1:
        yield Case("without any of its series", {}, False, minutes)
    for title, (situation, fires) in alert.more.items():
        yield Case(title, {s: pattern(s, v, minutes, step) for s, v in situation.items()}, fires, minutes)


def _absent(alert: Alert) -> Iterator[Case]:
    minutes = horizon_m(alert) + 5
    there = {s: pattern(s, pick(i, _AT), minutes, alert.step_s) for s, i in alert.inputs.items()}
    yield Case("with its series", there, False, minutes)
    yield Case("without any of its series", {}, True, minutes)
    for s in there:
        yield Case(f"{s} ends before", {s: f"1x1 _x{minutes}"}, True, minutes)


def pick(given: Input, side: int) -> Value:
    """Return the value of one side of the threshold."""
    return given[side] if isinstance(given, tuple) else given


def pattern(series: str, value: Value, minutes: int, step_s: int, *, reset: bool = False) -> str:
    """Return a series in promtool's notation: a gauge stands at its value, a counter grows by it every second."""
    if isinstance(value, str):
        return value
    count = minutes * 60 // step_s
    if not _is_counter(series):
        return f"{value:.10g}x{count}"
    step = f"{value * step_s:.12g}"
    if not reset:
        return f"0+{step}x{count}"
    # Two steps before the look a process begins anew, right after it was read: nothing it counted is lost.
    return f"{_STOOD}+{step}x{count - 2} {step}+{step}x2"


def horizon_m(alert: Alert) -> int:
    """Return after how many minutes every window that an alert looks at is filled and it has held long enough."""
    if alert.horizon_m:
        return alert.horizon_m + _held_m(alert)
    windows = [
        int(m[1] or m[3]) * _SECONDS[m[2] or m[4]]
        for expr in (alert.expr, *(r.expr for r in needed(alert)))
        for m in _DURATION.finditer(expr)
    ]
    return math.ceil(max(windows, default=0) / 60) + _held_m(alert) + 5


def _held_m(alert: Alert) -> int:
    return math.ceil(int(alert.for_[:-1]) * _SECONDS[alert.for_[-1]] / 60)


def needed(alert: Alert) -> tuple[Recording, ...]:
    """Return the recording rules an alert rests on, directly or through others, in the order they are evaluated."""
    known = {r.name: r for r in build.recorded()}
    wanted: set[str] = set()
    ask = [alert.expr]
    while ask:
        for name in names(ask.pop()):
            if name in known and name not in wanted:
                wanted.add(name)
                ask.append(known[name].expr)
    return tuple(rule for rule in known.values() if rule.name in wanted)


def files(alert: Alert) -> dict[str, str]:
    """Return the rules and the tests of one alert as promtool reads them: `rules.yaml` and `tests.yaml`."""
    group = Group(name="under-test", recordings=needed(alert), alerts=(alert,))
    tests = [_test(alert, case) for case in cases(alert)]
    spec = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{alert.step_s}s", "tests": tests}
    return {"rules.yaml": build.document((group,)), "tests.yaml": yaml.safe_dump(spec, sort_keys=False, width=1000)}


def _test(alert: Alert, case: Case) -> dict[str, Any]:
    keys = ("severity", *alert.names)
    matched = ",".join(
        f'{k}="{v}"' for k, v in {"alertname": alert.name, "alertstate": "firing", **alert.labels}.items()
    )
    values = {"severity": alert.severity, **alert.names}
    labels = ", ".join(f'{k}="{v}"' for k, v in values.items())
    wanted = [{"labels": f"{{{labels}}}", "value": 1}] if case.fires else []
    return {
        "name": f"{alert.id}: {case.title}",
        "interval": f"{alert.step_s}s",
        "input_series": [{"series": s, "values": p} for s, p in case.series.items()],
        "promql_expr_test": [
            {
                "expr": f"count by ({', '.join(keys)}) (ALERTS{{{matched}}})",
                "eval_time": f"{case.minutes}m",
                "exp_samples": wanted,
            }
        ],
    }


def untested(alerts: Iterable[Alert]) -> tuple[str, ...]:
    """Return alerts that have no test although they depend on series."""
    return tuple(a.id for a in alerts if not a.inputs and names(a.expr))


def _is_counter(series: str) -> bool:
    family = exported().get(series.partition("{")[0])
    if family is None:
        raise UsageError(
            "a test of a rule uses a series nobody exports", where=series, hint="see pdops/grafana/families.py"
        )
    return family.kind is not Kind.GAUGE
