"""The recording format `pdops/rec/v1`: `*.pdrec`.

A file is a row of gzip members, none longer than ten seconds; `zcat FILE` shows it. Each member stands alone: it can be
read when others are lost. Its gzip header carries an extra field `PD` (little-endian: u64 bytes of the member, f64 Unix
seconds of its first frame), so a reader hops from member to member without unpacking; without the field it unpacks.

Inside are JSON lines, told apart by `kind`. A reader skips kinds it does not know.

header  first line of every member, the same in all: `schema`, `cluster` (the inventory without secrets), `start_s` (Unix
        seconds of the file's first frame, absent when there is none), `interval_s`, `pdops_version`. Ids and values from
        before it mean nothing after it.
facts   all configuration known before this member: `facts` {worker: {option: text}}.
series  `id` and `names`, the series of a page in order, front-coded: characters shared with the name before, rest, ….
page    `id`, `worker`, `engine`, `endpoint` and `series`, an id or null for a page that gave nothing.
frame   `t` (Unix seconds), `scrapes`, and where there are any `events`, `logs`, `probes`, `facts`, `odd`.
        A scrape is [page, at_s, duration_s, size_bytes, full (0/1), error or null, changes or null]. Changes tell a
        page's values against those of its scrape before in the member, or against zeros: unchanged places to skip, new
        value, …. A whole number is a difference; a number with a point or exponent is the value; null is NaN, "inf"
        and "-inf" are infinite. Null for all changes means the page had no values.
        `odd` are [place among the scrapes, malformed lines, oldest time the page gives a sample or null].
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdops.model.frame import Event, EventKind, Frame, Layout, LogLine, Probe, ProbeKind, Scrape, Values
from pdops.model.times import LAST_S
from pdops.sources.redact import redact_urls

SCHEMA = "pdops/rec/v1"
SCHEMA_PATTERN = re.compile(r"pdops/rec/v(\d{1,9})(?:\.\d+)*")
MAJOR = 1
MEMBER_S = 10.0
"""The longest time a frame waits in memory, in seconds."""
MAX_TEXT = 64 << 20
"""The most characters that the series names of one page may expand to."""
MAX_CELLS = 20_000_000
"""The most values that the pages of a member, or the scrapes of a frame, may hold."""
_MAX_LAYOUTS = 4096
_EXACT = float(1 << 53)

Record = dict[str, Any]


def dump(record: Record) -> bytes:
    """Return one line."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"


def number(value: float) -> float | int:
    """Return a float as it is shortest to write."""
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def front_coded(names: Sequence[str]) -> list[int | str]:
    """Return names as (shared characters, rest) pairs in one list."""
    coded: list[int | str] = []
    before = ""
    for name in names:
        shared = 0
        limit = min(len(before), len(name))
        while shared < limit and before[shared] == name[shared]:
            shared += 1
        coded += (shared, name[shared:])
        before = name
    return coded


def front_decoded(coded: Sequence[Any]) -> tuple[str, ...]:
    """Return the names.

    Raises:
        ValueError: the list is damaged or expands beyond `MAX_TEXT`.
    """
    names: list[str] = []
    before, size = "", 0
    for shared, rest in zip(coded[::2], coded[1::2], strict=True):
        if not (isinstance(shared, int) and 0 <= shared <= len(before)):
            raise ValueError("series names are damaged")
        size += shared + len(_text(rest))
        if size > MAX_TEXT:
            raise ValueError("series names are too long")
        before = before[:shared] + rest
        names.append(before)
    return tuple(names)


def changes(old: Values, new: Values) -> list[int | float | str | None]:
    """Return what changed between two rows of values, exactly."""
    out: list[int | float | str | None] = []
    place = 0
    for index in np.flatnonzero(_bits(old) != _bits(new)).tolist():
        was, now = float(old[index]), float(new[index])
        out.append(index - place)
        out.append(_change(was, now))
        place = index + 1
    return out


def _bits(values: Values) -> Values:
    bits: Values = np.ascontiguousarray(values, dtype=np.float64).view(np.int64)
    return bits


def _change(was: float, now: float) -> int | float | str | None:
    if math.isnan(now):
        return None
    if math.isinf(now):
        return "inf" if now > 0 else "-inf"
    whole = now.is_integer() and was.is_integer() if math.isfinite(was) else False
    if whole and abs(was) < _EXACT and abs(now) < _EXACT and not (now == 0 and math.copysign(1.0, now) < 0):
        return int(now) - int(was)
    return now


def apply_changes(values: Values, coded: Sequence[Any]) -> None:
    """Bring a row of values up to date, in place.

    Raises:
        ValueError: the changes do not fit the row.
    """
    place = 0
    for skip, change in zip(coded[::2], coded[1::2], strict=True):
        if not isinstance(skip, int) or skip < 0 or place + skip >= len(values):
            raise ValueError("a change is outside its page")
        place += skip
        if change is None:
            values[place] = math.nan
        elif isinstance(change, int):
            values[place] += float(change)
        elif isinstance(change, float) or change in ("inf", "-inf"):
            values[place] = float(change)
        else:
            raise ValueError("a change is not a number")
        place += 1


class FrameEncoder:
    """Turns frames into the lines of one member."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, ...], int] = {}
        self._by_layout: dict[Layout, int] = {}
        self._pages: dict[tuple[str, str, str, int | None], tuple[int, Values]] = {}

    def encode(self, frame: Frame, put: Callable[[bytes], None]) -> None:
        """Put the lines of a frame, and before it those of pages that are new in this member.

        Raises:
            ValueError: a scrape has not one value per series.
        """
        record: Record = {"kind": "frame", "t": number(frame.at_s)}
        record["scrapes"] = [self._scrape(scrape, put) for scrape in frame.scrapes]
        for name, things in (("events", frame.events), ("logs", frame.logs), ("probes", frame.probes)):
            if things:
                record[name] = [_given(thing) for thing in things]
        odd = [
            [place, scrape.malformed, None if scrape.stamp_s is None else number(scrape.stamp_s)]
            for place, scrape in enumerate(frame.scrapes)
            if scrape.malformed or scrape.stamp_s is not None
        ]
        if odd:
            record["odd"] = odd
        if frame.facts:
            record["facts"] = {worker: dict(facts) for worker, facts in frame.facts.items()}
        put(dump(record))

    def _scrape(self, scrape: Scrape, put: Callable[[bytes], None]) -> list[Any]:
        layout, values = scrape.layout, scrape.values
        if values is not None and (layout is None or values.shape != (len(layout.series),)):
            raise ValueError(f"{scrape.worker}: a scrape has not one value per series")
        key = (scrape.worker, scrape.engine, scrape.endpoint, None if layout is None else self._names(layout, put))
        if key not in self._pages:
            page = len(self._pages)
            self._pages[key] = (page, np.zeros(len(layout.series) if layout is not None else 0))
            worker, engine, endpoint, series = key
            put(
                dump(
                    {
                        "kind": "page",
                        "id": page,
                        "worker": worker,
                        "engine": engine,
                        "endpoint": redact_urls(endpoint),
                        "series": series,
                    }
                )
            )
        page, old = self._pages[key]
        coded = None
        if values is not None:
            coded = changes(old, values)
            old[:] = values
        return [
            page,
            number(scrape.at_s),
            number(scrape.duration_s),
            scrape.size_bytes,
            int(scrape.full),
            None if scrape.error is None else redact_urls(scrape.error),
            coded,
        ]

    def _names(self, layout: Layout, put: Callable[[bytes], None]) -> int:
        known = self._by_layout.get(layout)
        if known is None:
            known = self._series.get(layout.series)
            if known is None:
                known = self._series[layout.series] = len(self._series)
                put(dump({"kind": "series", "id": known, "names": front_coded(layout.series)}))
            self._by_layout[layout] = known
        return known


@dataclass(slots=True)
class _Page:
    worker: str
    engine: str
    endpoint: str
    layout: Layout | None
    values: Values


class FrameDecoder:
    """Turns records back into frames; layouts with the same series are the same object in the whole file."""

    def __init__(self) -> None:
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._series: dict[int, Layout] = {}
        self._pages: dict[int, _Page] = {}
        self._cells = 0

    def begin_member(self) -> None:
        """Forget ids and values."""
        self._series, self._pages, self._cells = {}, {}, 0

    def add_series(self, record: Record) -> None:
        """Take in a `series` record."""
        names = front_decoded(record["names"])
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        self._series[record["id"]] = self._layouts.setdefault(names, Layout(names))

    def add_page(self, record: Record) -> None:
        """Take in a `page` record."""
        layout = None if record["series"] is None else self._series[record["series"]]
        self._cells += 0 if layout is None else len(layout.series)
        if self._cells > MAX_CELLS:
            raise ValueError("too many series in one part of the file")
        self._pages[record["id"]] = _Page(
            _text(record["worker"]),
            _text(record["engine"]),
            _text(record["endpoint"]),
            layout,
            np.zeros(len(layout.series) if layout is not None else 0),
        )

    def frame(self, record: Record) -> Frame:
        """Return the frame of a `frame` record.

        Raises:
            LookupError, TypeError, ValueError: the record is damaged; the values of this member are lost from here on.
        """
        scrapes = record["scrapes"]
        if sum(len(self._pages[entry[0]].values) for entry in scrapes) > MAX_CELLS:
            raise ValueError("too many values in one frame")
        odd = {int(place): (int(lines), stamp) for place, lines, stamp in record.get("odd", ())}
        return Frame(
            at_s=_time(record["t"]),
            scrapes=tuple(self._scrape(*entry, *odd.get(place, ())) for place, entry in enumerate(scrapes)),
            events=tuple(
                Event(**{**entry, "t_s": _time(entry["t_s"]), "kind": EventKind(entry["kind"])})
                for entry in record.get("events", ())
            ),
            logs=tuple(LogLine(**{**entry, "t_s": _time(entry["t_s"])}) for entry in record.get("logs", ())),
            probes=tuple(
                Probe(**{"ok": None, **entry, "t_s": _time(entry["t_s"]), "kind": ProbeKind(entry["kind"])})
                for entry in record.get("probes", ())
            ),
            facts=facts_of(record),
        )

    def _scrape(
        self,
        page_id: int,
        at_s: float,
        duration_s: float,
        size: int,
        full: int,
        error: str | None,
        coded: Any,
        malformed: int = 0,
        stamp_s: float | None = None,
    ) -> Scrape:
        page = self._pages[page_id]
        values = None
        if coded is not None:
            apply_changes(page.values, coded)
            values = page.values.copy()
        return Scrape(
            worker=page.worker,
            engine=page.engine,
            at_s=_time(at_s),
            layout=page.layout,
            values=values,
            full=bool(full),
            duration_s=float(duration_s),
            size_bytes=int(size),
            error=None if error is None else _text(error),
            endpoint=page.endpoint,
            malformed=malformed,
            stamp_s=None if stamp_s is None else float(stamp_s),
        )


def facts_of(record: Record) -> dict[str, dict[str, str]]:
    """Return the facts of a record.

    Raises:
        AttributeError, ValueError: they are damaged.
    """
    found = record.get("facts", {})
    return {worker: {key: _text(value) for key, value in facts.items()} for worker, facts in found.items()}


def _given(thing: Event | LogLine | Probe) -> Record:
    """Return the fields of a noun that are known."""
    fields = {name: getattr(thing, name) for name in thing.__dataclass_fields__}
    return {name: value for name, value in fields.items() if value is not None}


def _time(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= LAST_S:
        raise ValueError("a time is not one")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is not text")
    return value
