"""The numbers of a run as plain data, and the JSON Schema of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args

import numpy as np

from pdops.bench import scores
from pdops.bench.outcome import Failed, Outcome, State
from pdops.bench.scenario import INTERVAL_S
from pdops.bench.scores import PDOPS, Rate
from pdops.diagnose.encode import list_of, object_of
from pdops.sources.schemas import DIALECT

SCHEMA = "pdops/bench-diagnosis/v1"
_RATES = tuple(f.name for f in fields(scores.Scored) if f.name != "method")


def encode(outcomes: Sequence[Outcome], failed: Sequence[Failed] = ()) -> dict[str, object]:
    """Return the numbers of the aims and of every method; None where there is nothing to count or nobody watched."""
    pairs = scores.stated(outcomes, PDOPS)
    per_hour, upper, hours = scores.alarms_per_hour(outcomes)
    watched = scores.watched(outcomes)
    states = Counter(o.state for o in outcomes)
    return {
        "schema": SCHEMA,
        "episodes": {state: states[state] for state in get_args(State)},
        "failed": [{"name": f.name, "seed": f.seed, "why": f.why} for f in failed],
        "methods": {m: _plain(scores.score(outcomes, m)) for m in scores.methods(outcomes)},
        "false_alarms_per_hour": {
            "value": per_hour,
            "high": upper if hours else None,
            "hours": hours if watched else None,
        },
        "alarms_while_load_broke_the_promise": sum(o.excused for o in outcomes) if watched else None,
        "delay_intervals": delays(outcomes),
        "brier": scores.brier(pairs),
        "ece": scores.ece(pairs),
        "missing": {name: _rate(rate) for name, rate in scores.by_missing(outcomes, PDOPS)},
    }


def schema() -> dict[str, Any]:
    """Return the JSON Schema of `pdops bench diagnosis --json`."""
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    number: dict[str, Any] = {"type": ["number", "null"], "minimum": 0}
    share = {**number, "maximum": 1}
    rate = object_of({"value": share, "low": share, "high": share, "n": count})
    counted = {"type": ["integer", "null"], "minimum": 0}
    return {
        "$schema": DIALECT,
        "title": SCHEMA,
        **object_of(
            {
                "schema": {"const": SCHEMA},
                "episodes": object_of(dict.fromkeys(get_args(State), count)),
                "failed": list_of(object_of({"name": text, "seed": {"type": "integer"}, "why": text})),
                "methods": {"type": "object", "additionalProperties": object_of(dict.fromkeys(_RATES, rate))},
                "false_alarms_per_hour": object_of({"value": number, "high": number, "hours": number}),
                "alarms_while_load_broke_the_promise": counted,
                "delay_intervals": object_of(
                    {"median": number, "p95": number, "n": count, "before_impact": counted, "never": counted}
                ),
                "brier": share,
                "ece": share,
                "missing": {"type": "object", "additionalProperties": rate},
            }
        ),
    }


def delays(outcomes: Sequence[Outcome]) -> dict[str, float | int | None]:
    """Return quantiles over all faults, None where that one was never answered rightly; else slow answers would help.

    Where only the scored answers were asked for, nobody waited for the first right one, and those faults do not count.
    """
    watched = scores.watched(outcomes)
    noticed = [o for o in scores.faults(outcomes) if scores.was_watched(o)]
    found = sorted(o.delay_s / INTERVAL_S for o in noticed if o.delay_s is not None)
    places = {name: int(np.ceil(q * len(noticed))) - 1 for name, q in (("median", 0.5), ("p95", 0.95))}
    return {
        **{name: found[place] if 0 <= place < len(found) else None for name, place in places.items()},
        "n": len(noticed),
        "before_impact": sum(delay == 0.0 for delay in found) if watched else None,
        "never": len(noticed) - len(found) if watched else None,
    }


def _plain(scored: scores.Scored) -> dict[str, object]:
    return {name: _rate(getattr(scored, name)) for name in _RATES}


def _rate(rate: Rate) -> dict[str, float | int | None]:
    return {"value": rate.value, "low": rate.low, "high": rate.high, "n": rate.n}
