"""What a person types at a prompt: a promise, a moment of a recording."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

from pdops.model.cluster import Slo
from pdops.model.times import parse_rfc3339
from pdops_tui.snapshot import Command, Position

_SCALE = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?Z?")
_WORDS = {"ttft": "ttft_s", "itl": "itl_s", "p": "percentile", "attainment": "attainment"}

PROMISE_HINT = "ttft=1s itl=50ms p=95 attainment=95%; ttft=- for no promise; empty for the inventory's own"
MOMENT_HINT = "seconds from the start (90), from the end (-30), a time of day (12:44 or 12:44:10) in UTC, or 50%"


def promise_text(slo: Slo) -> str:
    """Return a promise as it can be typed."""
    parts = [f"ttft={_typed(slo.ttft_s)}", f"itl={_typed(slo.itl_s)}", f"p={slo.percentile * 100:g}"]
    return " ".join([*parts, f"attainment={slo.attainment * 100:g}%"])


def _typed(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.6g}ms" if seconds < 1.0 else f"{seconds:.6g}s"


def parse_promise(text: str, now: Slo) -> Slo | None:
    """Return the promise that was typed, beginning with the one of now; None for the inventory's own.

    Raises:
        ValueError: it cannot be read; the message says why.
    """
    if not text.strip():
        return None
    found = now
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        field = _WORDS.get(name.casefold())
        if field is None or not value:
            raise ValueError(f"{word!r} is none of ttft=, itl=, p=, attainment=")
        given = _ratio(word, value) if field in ("percentile", "attainment") else _time(word, value)
        found = replace(found, **{field: given})  # type: ignore[arg-type]
    return found


def _time(word: str, value: str) -> float | None:
    if value == "-":
        return None
    seconds = duration(value)
    if seconds is None or seconds <= 0:
        raise ValueError(f"{word!r} gives no time above zero, such as 250ms or 1.5s")
    return seconds


def _ratio(word: str, value: str) -> float:
    try:
        number = float(value.removesuffix("%").removeprefix("p"))
    except ValueError:
        number = float("nan")
    number = number if number <= 1.0 and not value.endswith("%") else round(number / 100.0, 12)
    if not 0.0 < number < 1.0:
        raise ValueError(f"{word!r} gives no share between 0 and 100 %, such as 95")
    return number


def duration(text: str) -> float | None:
    """Return the seconds of `90`, `250ms`, `1.5s`, `5m` or `2h`, or None."""
    match = _DURATION.fullmatch(text)
    return float(match[1]) * _SCALE[match[2] or ""] if match else None


def parse_moment(text: str, position: Position) -> Command:
    """Return the wish to go to the moment that was typed.

    Raises:
        ValueError: it is none, or lies outside the recording; the message says why.
    """
    text = text.strip()
    length = (position.end_s or position.at_s) - position.start_s
    if text.endswith("%") and (share := duration(text[:-1])) is not None and share <= 100:
        return Command("fraction", share / 100.0)
    offset = duration(text.lstrip("+-"))
    if offset is not None and text[:2] not in ("+-", "-+", "--", "++"):
        if offset > length + 1.0:
            raise ValueError(f"the recording is {length:.0f} s long")
        return Command("offset", -offset if text.startswith("-") else offset)
    at_s = _clock(text, position)
    if at_s is None:
        try:
            at_s = parse_rfc3339(text)
        except ValueError:
            raise ValueError(f"{text!r} is no moment; {MOMENT_HINT}") from None
    if not position.start_s - 1.0 <= at_s <= position.start_s + length + 1.0:
        raise ValueError("that moment lies outside the recording")
    return Command("seek", at_s)


def _clock(text: str, position: Position) -> float | None:
    """Return the first moment of the recording with a time of day, or, when it has none, the one of its first day."""
    match = _CLOCK.fullmatch(text)
    if match is None or int(match[1]) > 23 or int(match[2]) > 59 or int(match[3] or 0) > 59:
        return None
    day = datetime.fromtimestamp(position.start_s, tz=UTC)
    at_s = day.replace(hour=int(match[1]), minute=int(match[2]), second=int(match[3] or 0), microsecond=0).timestamp()
    # A minute is typed, the recording begins within it.
    return at_s + 86_400 if at_s < position.start_s - 60 else max(at_s, position.start_s)
