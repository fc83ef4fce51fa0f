"""Read pages of the Prometheus text format quickly, and never trust them.

A page is learned once: where each series stands and which bytes come before its value. The next page is compared with
that, line by line, and only the values that somebody wants are converted; any difference means learning again.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Container, Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pdops.catalog.names import split_series, wanted_names
from pdops.errors import UnreachableError
from pdops.model.frame import Layout, Values

MAX_LINES = 200_000
"""Lines read of one page; what comes after is counted as malformed."""
MAX_SERIES_BYTES = 16 * 1024
"""A longer series name is malformed."""
_MAX_VALUE_BYTES = 64
_MAX_PLANS = 4
_LEAST_MS = 1e11
"""A time from here on is in milliseconds (that of 1973); in seconds it would be in the year 5138."""

_SAMPLE = re.compile(
    rb"[ \t]*+([a-zA-Z_:][a-zA-Z0-9_:]*+)"
    rb'(?:[ \t]*+\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\}[ \t]*+|[ \t]++)'
)
_VALUE = re.compile(rb"([^\s_]++)(?:[ \t]++(-?\d++(?:\.\d++)?+))?+[ \t]*+(?:(?<=[ \t])#.*+)?+\r?+\Z")


class NotExposition(UnreachableError):  # noqa: N818  it is a statement about the page, named as the format is
    """The page holds no readable sample; `reason` says what it looks like."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "page is not an exposition", why=reason, hint="check the address and path of the metrics endpoint"
        )
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class Parsed:
    """What one page said.

    `values` has one float per series of `layout`; `skipped` counts samples nobody wants, `malformed` lines that could
    not be read or repeat a series; the values of unwanted samples are looked at only when a page is learned. `names`
    are all sample names on the page, wanted or not. `stamp_s` is the oldest time the page gives a wanted sample, in Unix
    seconds; None when it gives none, as engines do.
    """

    layout: Layout
    values: Values
    skipped: int
    malformed: int
    names: frozenset[str]
    stamp_s: float | None = None


class _Plan:
    """Where everything stands on pages that look the same."""

    __slots__ = ("__weakref__", "bare", "exact", "layout", "malformed", "names", "prefixes", "skipped", "wanted")

    def __init__(
        self,
        prefixes: list[bytes],
        exact: list[tuple[int, bytes]],
        wanted: list[tuple[int, int]],
        layout: Layout,
        names: frozenset[str],
        counts: tuple[int, int],
        bare: bool,
    ) -> None:
        self.prefixes = prefixes
        self.exact = exact
        self.wanted = wanted
        self.layout = layout
        self.names = names
        self.skipped, self.malformed = counts
        self.bare = bare

    def read(self, lines: list[bytes]) -> tuple[Values, float | None] | None:
        """Return the values and the oldest time given, or None when the page is another one."""
        if len(lines) != len(self.prefixes) or not all(map(bytes.startswith, lines, self.prefixes)):
            return None
        if any(lines[index] != line for index, line in self.exact):
            return None
        texts = [lines[index][start:] for index, start in self.wanted]
        if not self.bare:
            found = [_told(text) for text in texts]
            known = [one for one in found if one is not None]
            if len(known) < len(found):
                return None
            return np.array([value for value, _ in known], dtype=np.float64), _oldest(stamp for _, stamp in known)
        if b"_" in b"".join(texts):
            return None
        try:
            return np.array([float(text) for text in texts], dtype=np.float64), None
        except ValueError:
            return None


_sharing = threading.Lock()
_shared: dict[int, weakref.WeakSet[_Plan]] = {}
"""Plans in use by number of lines, so that workers with equal pages hold one plan and one Layout between them."""


class Parser:
    """Reads the pages of one target; the same series give the same Layout object.

    Args:
        wanted: sample names to convert; the catalog's by default. `_created` samples are never wanted.
    """

    def __init__(self, wanted: Container[str] | None = None) -> None:
        self._wanted = wanted_names() if wanted is None else wanted
        self._plans: list[_Plan] = []

    def parse(self, body: bytes) -> Parsed:
        """Return the wanted values of a page.

        A last line without its line feed may have lost digits, so it is dropped and counted as malformed.

        Raises:
            NotExposition: no line of the page is a sample.
        """
        lines = body.split(b"\n", MAX_LINES)
        tail = lines.pop().strip()
        cut = 1 if tail and (b"\n" in tail or not tail.startswith(b"#")) else 0
        for place, plan in enumerate(self._plans):
            read = plan.read(lines)
            if read is not None:
                if place:
                    self._plans.insert(0, self._plans.pop(place))
                return Parsed(plan.layout, read[0], plan.skipped, plan.malformed + cut, plan.names, read[1])
        plan, values, stamp_s = self._adopt(lines) or self._learn(lines, body)
        return Parsed(plan.layout, values, plan.skipped, plan.malformed + cut, plan.names, stamp_s)

    def _adopt(self, lines: list[bytes]) -> tuple[_Plan, Values, float | None] | None:
        """Take over what another parser knows of pages like this one."""
        if self._wanted is not wanted_names():
            return None
        with _sharing:
            alike = list(_shared.get(len(lines), ()))
        for plan in alike:
            read = plan.read(lines)
            if read is not None and not self._knows_otherwise(plan):
                self._plans = [plan, *islice(self._plans, _MAX_PLANS - 1)]
                return plan, *read
        return None

    def _knows_otherwise(self, plan: _Plan) -> bool:
        """Whether this parser already gave the same series another Layout."""
        known = (own.layout for own in self._plans)
        return any(own.series == plan.layout.series and own is not plan.layout for own in known)

    def _learn(self, lines: list[bytes], body: bytes) -> tuple[_Plan, Values, float | None]:
        prefixes: list[bytes] = []
        exact: list[tuple[int, bytes]] = []
        wanted: list[tuple[int, int]] = []
        series: list[str] = []
        values: list[float] = []
        stamps: list[float | None] = []
        names: dict[bytes, str] = {}
        seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        skipped = malformed = 0
        bare = True
        for index, line in enumerate(lines):
            if line.startswith(b"#"):
                prefixes.append(b"#")
                continue
            found = _SAMPLE.match(line)
            told = None if found is None else _told(line[found.end() :])
            if found is None or told is None:
                prefixes.append(b"")
                exact.append((index, line))
                stripped = line.strip()
                malformed += bool(stripped) and not stripped.startswith(b"#")
                continue
            prefixes.append(line[: found.end()])
            name = names.setdefault(found[1], found[1].decode("ascii"))
            if name not in self._wanted or name.endswith("_created"):
                skipped += 1
                continue
            text = _series(found[0])
            key = None if text is None else _key(text)
            if text is None or key is None or key in seen:
                malformed += 1
                continue
            seen.add(key)
            series.append(text)
            values.append(told[0])
            stamps.append(told[1])
            wanted.append((index, found.end()))
            bare = bare and len(line[found.end() :].split()) == 1
        if not names:
            raise NotExposition(_looks_like(body))
        known = tuple(series)
        layout = next((p.layout for p in self._plans if p.layout.series == known), None) or Layout(known)
        plan = _Plan(prefixes, exact, wanted, layout, frozenset(names.values()), (skipped, malformed), bare)
        self._plans = [plan, *islice(self._plans, _MAX_PLANS - 1)]
        if self._wanted is wanted_names():
            with _sharing:
                _shared.setdefault(len(lines), weakref.WeakSet()).add(plan)
        return plan, np.array(values, dtype=np.float64), _oldest(stamps)


def _told(text: bytes) -> tuple[float, float | None] | None:
    """Return the value behind a name and the time it is said to be of, in Unix seconds; None for what is no value."""
    found = _VALUE.match(text)
    if found is None or len(found[1]) > _MAX_VALUE_BYTES:
        return None
    try:
        value = float(found[1])
    except ValueError:
        return None
    if found[2] is None or len(found[2]) > _MAX_VALUE_BYTES:
        return value, None
    stamp = float(found[2])
    # The Prometheus text format counts milliseconds, OpenMetrics seconds.
    return value, stamp / 1000.0 if abs(stamp) >= _LEAST_MS else stamp


def _oldest(stamps: Iterable[float | None]) -> float | None:
    return min((stamp for stamp in stamps if stamp is not None), default=None)


def _series(text: bytes) -> str | None:
    stripped = text.strip()
    if len(stripped) > MAX_SERIES_BYTES:
        return None
    try:
        return stripped.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _key(series: str) -> tuple[str, frozenset[tuple[str, str]]] | None:
    try:
        name, labels = split_series(series)
    except ValueError:
        return None
    return name, frozenset(labels.items())


def _looks_like(body: bytes) -> str:
    start = body[:512].lstrip()
    if not start:
        return "it is empty"
    if start.startswith(b"\x1f\x8b"):
        return "it is compressed"
    if start.startswith(b"<"):
        return "it is HTML or XML"
    if start.startswith((b"{", b"[")):
        return "it is JSON"
    if b"\0" in start:
        return "it is binary"
    if start.startswith(b"#"):
        return "it has comments but no sample"
    return "no line of it is a sample"
