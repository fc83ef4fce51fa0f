"""What each program's page consists of, read from the pages in `expositions/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType

from pdops.catalog.names import split_series, wanted_names
from pdops.errors import UsageError

ANY = "*"
"""A label value in `expositions/` that stands for values only a use gives; such a series is not there from the start."""
_PAGES = {
    "vllm": ("vllm", "pdops_plugin"),
    "pdops_router": ("pdops_router",),
    "mooncake": ("mooncake",),
    "node": ("node",),
}
_CREATED = {"vllm": frozenset({"counter", "histogram", "summary"})}
"""Kinds of families of which a program also says when each series began, as prometheus_client does by default."""
_READ_LATE = ("python_", "process_")
"""Beginnings of names that are read from the process when the page is made, so that nothing knows when they began."""
_WHOLE = frozenset({"mooncake"})
"""Programs that write numbers without a fraction as integers."""
_LATE = "# pdops late "

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One family of a page.

    `name` is as in its TYPE line, `key` without `_total` for a counter. `labels` are label names in page order without
    `le`. `edges` are the upper bucket edges, the last one +Inf, and `edge_texts` how the page writes them; both empty
    unless it is a histogram. `tail` is the order of `count` and `sum` of a histogram or summary. `seeds` are the label
    sets that are there from the start with their value, unless the family is `late` and comes with its first use. `wanted` says which samples the catalog reads, in page order.
    """

    name: str
    key: str
    kind: str
    help: str | None
    labels: tuple[str, ...]
    le_at: int
    edges: tuple[float, ...]
    edge_texts: tuple[str, ...]
    tail: tuple[str, ...]
    seeds: tuple[tuple[tuple[str, ...], float], ...]
    defaults: Mapping[str, str]
    created: bool
    late: bool
    wanted: tuple[bool, ...]

    @property
    def size(self) -> int:
        """How many numbers a label set needs: buckets and a sum, count and sum, or one."""
        return len(self.edges) + 1 if self.edges else 2 if self.tail else 1

    @lru_cache(maxsize=1 << 16)  # noqa: B019  families live as long as the program
    def series(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the sample names of a label set in page order, without `_created`; workers alike share them."""
        pairs = tuple(zip(self.labels, values, strict=True))
        rest = [_named(f"{self.name}_{part}", pairs) for part in self.tail]
        if not self.tail:
            return (_named(self.name, pairs),)
        buckets = [
            _named(f"{self.name}_bucket", (*pairs[: self.le_at], ("le", text), *pairs[self.le_at :]))
            for text in self.edge_texts
        ]
        return (*buckets, *rest)

    def created_series(self, values: tuple[str, ...]) -> str:
        """Return the name of the sample that says when a label set began."""
        return _named(f"{self.created_name}", tuple(zip(self.labels, values, strict=True)))

    @property
    def created_name(self) -> str:
        """The family in which its beginnings stand."""
        return f"{self.key}_created"


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """All families of a program in page order. With `whole` numbers without a fraction are written as integers."""

    engine: str
    families: tuple[Family, ...]
    whole: bool


@cache
def page_of(engine: str) -> Page:
    """Return what a program's page consists of.

    Raises:
        UsageError: no page of such a program is known.
    """
    if engine not in _PAGES:
        raise UsageError(f"no page of {engine!r} to simulate", hint=f"known are {', '.join(_PAGES)}")
    families: list[Family] = []
    for name in _PAGES[engine]:
        text = resources.files("pdops.sim").joinpath("expositions", f"{name}.prom").read_text(encoding="utf-8")
        families += _families(text, _CREATED.get(engine, frozenset()))
    return Page(engine, tuple(families), engine in _WHOLE)


def _families(text: str, created: frozenset[str]) -> list[Family]:
    found: list[Family] = []
    late: set[str] = set()
    helps: dict[str, str] = {}
    kind = name = ""
    samples: list[tuple[str, dict[str, str], float]] = []
    for line in [*text.splitlines(), "# TYPE  "]:
        if line.startswith(_LATE):
            late.add(line.removeprefix(_LATE))
        elif line.startswith("# HELP "):
            named, _, said = line.removeprefix("# HELP ").partition(" ")
            helps[named] = said
        elif line.startswith("# TYPE "):
            if name:
                begun = kind in created and not name.startswith(_READ_LATE)
                found.append(_family(name, kind, helps.get(name), samples, begun, name in late))
            name, _, kind = line.removeprefix("# TYPE ").partition(" ")
            samples = []
        else:
            series, _, value = line.rpartition(" ")
            samples.append((*split_series(series), float(value)))
    return found


def _family(
    name: str,
    kind: str,
    said: str | None,
    samples: list[tuple[str, dict[str, str], float]],
    created: bool,
    late: bool,
) -> Family:
    first = samples[0][1]
    order = list(first)
    labels = tuple(n for n in order if n != "le")
    texts = tuple(dict.fromkeys(s[1]["le"] for s in samples if s[0] == f"{name}_bucket"))
    tail = tuple(
        dict.fromkeys(s[0].removeprefix(f"{name}_") for s in samples if s[0] in (f"{name}_count", f"{name}_sum"))
    )
    sets: dict[tuple[str, ...], float] = {}
    for _, values, number in samples:
        sets.setdefault(tuple(values[n] for n in labels), number)
    parts = ["bucket"] * len(texts) + list(tail)
    names = [f"{name}_{part}" for part in parts] or [name]
    columns = {n: {values[i] for values in sets} for i, n in enumerate(labels)}
    return Family(
        name=name,
        key=name.removesuffix("_total") if kind == "counter" else name,
        kind=kind,
        help=said,
        labels=labels,
        le_at=order.index("le") if "le" in order else 0,
        edges=tuple(float(t) for t in texts),
        edge_texts=texts,
        tail=tail,
        seeds=tuple((v, number) for v, number in sets.items() if ANY not in v),
        defaults=MappingProxyType({n: next(iter(c)) for n, c in columns.items() if len(c) == 1 and ANY not in c}),
        created=created,
        late=late,
        wanted=tuple(n in wanted_names() for n in names),
    )


def _named(name: str, pairs: Labels) -> str:
    if not pairs:
        return name
    return f"{name}{{{','.join(f'{n}={quoted(v)}' for n, v in pairs)}}}"


def quoted(value: str) -> str:
    """Return a label value as the text format writes it."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'"{escaped}"'
