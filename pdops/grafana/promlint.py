"""Read a PromQL expression the way a reviewer would: known names and labels, rates of counters, `le` kept, roles apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pdops.errors import UsageError
from pdops.grafana.families import Family, exported
from pdops.model.series import Kind

RATES = frozenset({"rate", "increase", "irate"})
_SLOPES = frozenset({"delta", "idelta", "deriv", "predict_linear", "holt_winters"})
_COUNTS_ONLY = frozenset({"absent", "absent_over_time", "present_over_time", "resets", "changes", "count_over_time"})
"""Functions that ask whether a counter is there or begins anew, not how high it stands."""
_COUNTING = frozenset({"count", "group"})
_TELLS_ROLE = frozenset({"role", "worker", "pool"})
"""Labels that keep roles apart when a sum keeps them."""
ANY_ROLE = frozenset(
    {
        "pdops_worker_up",
        "pdops_worker_presence",
        "pdops_worker_restarts",
        "pdops_scrape_age_seconds",
        "pdops_scrape_seconds",
        "pdops_scrape_bytes",
        "pdops_names_escaped",
        "pdops_host_memory_bytes",
        "pdops_process_start_seconds",
    }
)
"""Families that mean the same of a worker of any role."""
_ONE_ROLE = ("pdops_kvstore_", "pdops_decode_")
"""How families begin that workers of one role give only."""
TARGET = ("job", "instance")
"""Labels that a scrape adds to every series."""
OTHERS: Mapping[str, Family] = MappingProxyType(
    {name: Family(name, Kind.GAUGE, ()) for name in ("up", "ALERTS", "ALERTS_FOR_STATE")}
)
"""Series Prometheus makes itself; which labels they carry is for the scrape to say."""
VARIABLES: Mapping[str, str] = MappingProxyType(
    {"__rate_interval": "4m", "__interval": "1m", "__range": "1h", "__range_s": "3600", "__interval_ms": "60000"}
)
"""Dashboard variables that stand where a parser expects a duration or a number, with a value to parse by."""
_FIXED = re.compile(r"\[\s*\d")


@dataclass(frozen=True, slots=True)
class Known:
    """The names a query may use: sample names with their family, names that rules record with the labels these keep.

    What is recorded has no kind: the expression of its rule is linted by itself.
    """

    samples: Mapping[str, Family]
    recorded: Mapping[str, tuple[str, ...]]


def known(recorded: Mapping[str, tuple[str, ...]] | None = None) -> Known:
    """Return what the exporter exports, and what rules record of it."""
    return Known({**exported(), **OTHERS}, dict(recorded or {}))


def plain(expr: str, variables: Mapping[str, str] | None = None) -> str:
    """Return an expression with dashboard variables replaced; those inside label values may stay.

    Args:
        expr: PromQL with `$name` or `${name}`.
        variables: values by name, on top of `VARIABLES`.
    """
    values = {**VARIABLES, **(variables or {})}
    return re.sub(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))", lambda m: values.get(m[1] or m[2], m[0]), expr)


def names(expr: str) -> frozenset[str]:
    """Return the metric names an expression asks for.

    Raises:
        ValueError: it cannot be parsed.
    """
    return frozenset(node.name or "" for node, _ in _walk(_parse(expr), ()) if _type(node) == "VectorSelector")


def lint(
    expr: str, names: Known, *, variables: Mapping[str, str] | None = None, fixed_windows: bool = True
) -> tuple[str, ...]:
    """Return what is wrong with an expression, each as one sentence; empty when nothing is.

    Args:
        expr: PromQL, dashboard variables allowed.
        names: what may be asked for.
        variables: values of further dashboard variables that stand outside label values.
        fixed_windows: whether `[5m]` may be written; a dashboard follows its own step instead.

    Raises:
        UsageError: promql-parser is not installed.
    """
    said = [] if fixed_windows or not _FIXED.search(expr) else ["a window of fixed length, use $__rate_interval"]
    try:
        tree = _parse(plain(expr, variables))
    except ValueError as error:
        return (*said, f"cannot be parsed: {error}")
    for node, above in _walk(tree, ()):
        kind = _type(node)
        if kind == "VectorSelector":
            said += _selector(node, above, names)
        elif kind == "Call" and node.func.name == "histogram_quantile":
            said += _quantile(node)
        elif kind == "Call" and node.func.name in RATES:
            said += _rate(node)
    return tuple(dict.fromkeys(said))


def _selector(node: Any, above: tuple[Any, ...], names: Known) -> Iterator[str]:
    name = node.name or ""
    if not name:
        yield "a selector without a metric name"
        return
    kept = names.recorded.get(name)
    family = names.samples.get(name)
    if kept is None and family is None:
        yield f"{name} is neither exported nor recorded"
        return
    # Labels of what Prometheus makes itself are not for us to know.
    if name not in OTHERS:
        labels = kept if kept is not None else (*family.labels, *TARGET) if family is not None else ()
        allowed = {*labels, *(("le",) if name.endswith("_bucket") else ())}
        for matcher in _matchers(node):
            if matcher.name not in allowed:
                yield f"{name} has no label {matcher.name}"
    if family is not None and kept is None:
        yield from _kind(name, family, above)
        yield from _roles(name, family, node, above)


def _kind(name: str, family: Family, above: tuple[Any, ...]) -> Iterator[str]:
    functions = [n.func.name for n in above if _type(n) == "Call"]
    counts = family.kind is not Kind.GAUGE
    if not counts and any(f in RATES for f in functions):
        yield f"rate of {name}, which is no counter"
    if counts and any(f in _SLOPES for f in functions):
        yield f"slope of {name}, a counter: it would fall at a restart"
    looked_at = RATES | _COUNTS_ONLY
    counted = any(_type(n) == "AggregateExpr" and str(n.op) in _COUNTING for n in above)
    if counts and not counted and not any(f in looked_at for f in functions):
        yield f"{name} is a counter and read without rate or increase"


def _roles(name: str, family: Family, node: Any, above: tuple[Any, ...]) -> Iterator[str]:
    if "role" not in family.labels or family.name in ANY_ROLE or family.name.startswith(_ONE_ROLE):
        return
    if any(m.name in ("role", "pool", "worker") for m in _matchers(node)):
        return
    for parent in reversed(above):
        if _type(parent) == "AggregateExpr":
            kept, by = _grouping(parent)
            if (by and not kept & _TELLS_ROLE) or (not by and kept >= _TELLS_ROLE):
                yield f"{name} is summed over roles, which mean different things: match role or keep it"
            return


def _quantile(node: Any) -> Iterator[str]:
    inner = _bare(node.args[1])
    while _type(inner) == "AggregateExpr":
        kept, by = _grouping(inner)
        if ("le" in kept) is not by:
            yield "histogram_quantile of a sum that loses le"
            return
        inner = _bare(inner.expr)
    buckets = [n.name or "" for n, _ in _walk(inner, ()) if _type(n) == "VectorSelector"]
    if any(not name.endswith("_bucket") and ":" not in name for name in buckets):
        yield "histogram_quantile of something that is no bucket"


def _rate(node: Any) -> Iterator[str]:
    if _type(_bare(node.args[0])) == "SubqueryExpr":
        yield "rate of a subquery: a sum of counters falls when one of them restarts; take the rate first"


def _grouping(node: Any) -> tuple[set[str], bool]:
    """Return the labels of an aggregation, and whether it keeps them (by) or drops them (without)."""
    if node.modifier is None:
        return set(), True
    return set(node.modifier.labels), str(node.modifier.type).endswith("By")


def _matchers(node: Any) -> list[Any]:
    return [*node.matchers.matchers, *(m for group in node.matchers.or_matchers for m in group)]


def _bare(node: Any) -> Any:
    while _type(node) == "ParenExpr":
        node = node.expr
    return node


def _walk(node: Any, above: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield every node with the nodes above it, outermost first."""
    yield node, above
    below = (*above, node)
    kind = _type(node)
    if kind == "BinaryExpr":
        children = [node.lhs, node.rhs]
    elif kind == "Call":
        children = list(node.args)
    elif kind == "MatrixSelector":
        children = [node.vector_selector]
    elif kind in ("AggregateExpr", "ParenExpr", "UnaryExpr", "SubqueryExpr"):
        children = [node.expr]
    else:
        children = []
    for child in children:
        yield from _walk(child, below)


def _type(node: Any) -> str:
    return type(node).__name__


def _parse(expr: str) -> Any:
    try:
        import promql_parser
    except ImportError as error:
        raise UsageError(
            "queries cannot be checked", why="promql-parser is not installed", hint="pip install 'pdops[grafana]'"
        ) from error
    return promql_parser.parse(expr)
