"""Simulations as words of a command line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pdops.errors import UsageError

_FORM = "write it as KIND[:at=S,until=S,target=WORKER+WORKER,PARAM=VALUE,…]"


def parse_fault(text: str) -> dict[str, Any]:
    """Return the entry of a simulation's `faults` that `KIND[:key=value,…]` stands for.

    `at`, `until` (virtual seconds) and `target` (several with +) are those of every fault; other keys are parameters of
    the kind, numbers where they look like one. Without `at` it is there from the start.

    Raises:
        UsageError: it is not of that form, or a time is no number.
    """
    kind, _, rest = text.partition(":")
    if not kind.strip():
        raise UsageError("a fault has no kind", where=text, hint=_FORM)
    entry: dict[str, Any] = {"kind": kind.strip(), "at_s": 0.0}
    params: dict[str, float | str] = {}
    for word in filter(None, (w.strip() for w in rest.split(","))):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not (key and equals and value):
            raise UsageError(f"{word!r} of a fault has no value", where=text, hint=_FORM)
        if key in ("at", "until"):
            entry[f"{key}_s"] = _seconds(key, value, text)
        elif key == "target":
            entry["target"] = [t for t in value.split("+") if t]
        else:
            params[key] = _number(value)
    if params:
        entry["params"] = params
    return entry


def merged(base: Mapping[str, Any], wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a simulation file with what was wished for put in its place: inner keys one by one, faults added."""
    out = dict(base)
    for key, value in wishes.items():
        if key == "faults":
            out[key] = [*(base.get(key) or ()), *value]
        elif isinstance(value, Mapping):
            out[key] = merged(base.get(key) or {}, value)
        else:
            out[key] = value
    return out


def _seconds(key: str, value: str, text: str) -> float:
    number = _number(value)
    if isinstance(number, str):
        raise UsageError(f"{key}={value} of a fault is not a number of seconds", where=text, hint=_FORM)
    return number


def _number(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
