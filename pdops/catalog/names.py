"""Read series names of the Prometheus text format, and see through the colon escape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from pdops.catalog.load import catalog
from pdops.catalog.types import SourceSpec

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_UNESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}

HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
INFO_FAMILIES = frozenset({"vllm:cache_config_info"})
"""Families whose labels are configuration facts."""


def split_series(series: str) -> tuple[str, dict[str, str]]:
    """Return name and labels of `name{label="value",…}`.

    Raises:
        ValueError: the text is not such a series name.
    """
    name, brace, rest = series.partition("{")
    name = name.strip()
    if not brace:
        return name, {}
    if not rest.rstrip().endswith("}"):
        raise ValueError(f"labels are not closed: {series!r}")
    inner = rest.rstrip()[:-1]
    labels: dict[str, str] = {}
    position = 0
    while position < len(inner) and inner[position:].strip(" ,"):
        found = _LABEL.match(inner, position)
        if found is None:
            raise ValueError(f"labels cannot be read: {series!r}")
        labels[found[1]] = _UNESCAPE.sub(lambda m: _ESCAPES.get(m[1], m[0]), found[2])
        position = found.end()
    return name, labels


def exposition_names(spec: SourceSpec) -> tuple[str, ...]:
    """Return the sample names of a source as they stand on a page."""
    if spec.metric is None:
        return ()
    if spec.kind == "histogram":
        return tuple(spec.metric + suffix for suffix in HISTOGRAM_SUFFIXES)
    if spec.kind == "summary":
        return (spec.metric + "_sum", spec.metric + "_count")
    return (spec.metric,)


@lru_cache(maxsize=1)
def escaped_names() -> Mapping[str, str]:
    """Return `vllm_x` → `vllm:x` for every known name with a colon.

    A server that negotiates an OpenMetrics escape writes colons as underscores.
    """
    names = {name for spec in _all_sources() for name in exposition_names(spec)} | INFO_FAMILIES
    return {name.replace(":", "_"): name for name in names if ":" in name}


def canonical_name(name: str) -> tuple[str, bool]:
    """Return a sample name with its colon restored, and whether it was escaped."""
    restored = escaped_names().get(name)
    return (name, False) if restored is None else (restored, True)


@lru_cache(maxsize=1)
def wanted_names() -> frozenset[str]:
    """Return every sample name any source may need, in both spellings, and the families that carry facts."""
    names = {name for spec in _all_sources() for name in exposition_names(spec)} | INFO_FAMILIES
    return frozenset(names | {name.replace(":", "_") for name in names})


@cache
def fast_names(engine: str) -> tuple[str, ...]:
    """Return the sample names for the fast loop of an engine: all but histogram buckets, sorted."""
    engines = (engine, "pdops_plugin") if engine == "vllm" else (engine,)
    names: set[str] = set()
    for signal in catalog().signals.values():
        for name in engines:
            for spec in signal.sources.get(name, ()):
                names.update(n for n in exposition_names(spec) if not n.endswith("_bucket"))
    return tuple(sorted(names))


def _all_sources() -> list[SourceSpec]:
    return [spec for signal in catalog().signals.values() for specs in signal.sources.values() for spec in specs]
