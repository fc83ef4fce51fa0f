"""Load a case file and show it as a View, the same thing a live cluster is shown as."""

from __future__ import annotations

import os
from collections.abc import Iterable

from pdops.catalog.load import catalog
from pdops.errors import CaseError
from pdops.model.report import Missing
from pdops.model.view import View
from pdops.sources.case_model import BeforeNow, Case, CaseSlo
from pdops.sources.case_view import CaseReader
from pdops.sources.validate import build
from pdops.sources.yamlfile import Document, parse_yaml, read_yaml

__all__ = ["Case", "case_view", "load_case", "parse_case", "scaled", "without"]

_WHAT = "case cannot be used"
_FIXED_UNITS = frozenset({"ratio", "bool", "state", "workers"})
_FIXED_SIGNALS = frozenset({"process_start_seconds", "scrape_age_seconds"})


def load_case(path: str | os.PathLike[str]) -> Case:
    """Read a case file.

    Raises:
        CaseError: the file cannot be read or is not a case; says file and line, what was expected, and a hint.
    """
    return _case(read_yaml(os.fspath(path), error=CaseError, what=_WHAT))


def parse_case(text: str, path: str = "case.yaml") -> Case:
    """Read a case from text; `path` is used for messages. See `load_case`."""
    return _case(parse_yaml(text, path=path, error=CaseError, what=_WHAT))


def case_view(case: Case) -> tuple[View, tuple[Missing, ...]]:
    """Return the View of a case, and what was kept aside because nobody knows it.

    The judged window is the last five minutes, its base the ten minutes before.
    """
    reader = CaseReader(case)
    return reader.view(), tuple(reader.aside)


def scaled(case: Case, factor: float) -> Case:
    """Return the same fault in a slower or faster cluster.

    Every quantity is multiplied, promises and the link baseline included; ratios, flags, states, worker counts, process
    start times and configuration stay.
    """

    def times(value: float | None) -> float | None:
        return None if value is None else value * factor

    signals: dict[str, dict[str, tuple[tuple[float, float | None], ...] | BeforeNow]] = {}
    for name, by_key in case.signals.items():
        if not _scales(name):
            signals[name] = dict(by_key)
            continue
        signals[name] = {
            key: BeforeNow(before=times(points.before), now=times(points.now))
            if isinstance(points, BeforeNow)
            else tuple((t, times(v)) for t, v in points)
            for key, points in by_key.items()
        }
    old = case.cluster
    slo = CaseSlo.model_validate(
        old.slo.model_dump() | {"ttft_s": times(old.slo.ttft_s), "itl_s": times(old.slo.itl_s)}
    )
    links = old.links.model_copy(update={"baseline_bytes_per_s": times(old.links.baseline_bytes_per_s)})
    probes = tuple(p.model_copy(update={"value": times(p.value)}) for p in case.probes)
    cluster = old.model_copy(update={"slo": slo, "links": links})
    return case.model_copy(update={"signals": signals, "cluster": cluster, "probes": probes})


def without(case: Case, key: str) -> Case:
    """Return the case with one series removed: `signal` at every key, or `signal@key`.

    Raises:
        KeyError: the case has no such series.
    """
    name, at, scope = key.partition("@")
    left = dict(case.signals[name])
    if at:
        del left[scope]
    rest = {n: by_key for n, by_key in case.signals.items() if n != name}
    return case.model_copy(update={"signals": rest | ({name: left} if at and left else {})})


def series_keys(case: Case) -> tuple[str, ...]:
    """Return every series of a case as `signal@key`, in file order."""
    return tuple(f"{name}@{key}" for name, by_key in case.signals.items() for key in by_key)


def _scales(name: str) -> bool:
    stem = name.partition(".")[0]
    spec = catalog().signals.get(stem)
    return spec is not None and spec.unit not in _FIXED_UNITS and stem not in _FIXED_SIGNALS


def _case(document: Document) -> Case:
    case = build(Case, document, error=CaseError, what=_WHAT)
    first: dict[str, int] = {}
    for index, worker in enumerate(case.cluster.workers):
        if first.setdefault(worker.id, index) != index:
            where = document.where("cluster", "workers", index, "id")
            raise CaseError(_WHAT, where=where, why=f"worker {worker.id!r} is given twice", hint="keep one of them")
    for name, by_key in case.signals.items():
        for key, points in by_key.items():
            if isinstance(points, BeforeNow):
                continue
            wrong = _backwards(t for t, _ in points)
            if wrong is not None:
                where = document.where("signals", name, key, wrong)
                why = f"signals.{name}.{key}: time {points[wrong][0]:g} does not come after {points[wrong - 1][0]:g}"
                raise CaseError(_WHAT, where=where, why=why, hint="sort the samples by time, one for each moment")
    return case


def _backwards(times: Iterable[float]) -> int | None:
    before: float | None = None
    for index, t in enumerate(times):
        if before is not None and t <= before:
            return index
        before = t
    return None
