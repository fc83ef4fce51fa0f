"""What the PromQL source asks, written out, and the small languages it writes."""

from __future__ import annotations

import numpy as np
import pytest

from pdops.catalog.binding import Column
from pdops.catalog.load import catalog
from pdops.errors import UsageError
from pdops.model.cluster import Role
from pdops.sources.promql.api import Row
from pdops.sources.promql.columns import Collector, Grid
from pdops.sources.promql.names import Group, Query, candidates, discovery, probe
from pdops.sources.promql.queries import MAX_PAIRS, plan
from pdops.sources.promql.selector import Selector, any_of
from pdops.sources.promql.targets import netloc, place

ROLES = {"prefill": Role.PREFILL, "decode": Role.DECODE, "router": Role.ROUTER}
BY_LABEL = Group(Selector.parse('{cluster="x"}'), ROLES, label="role")
BY_ADDRESS = Group(
    Selector.parse('cluster="x"').plus("instance", "=~", any_of(["10.0.0.1:8000"])), {"d": Role.DECODE}, pool="d"
)


def present(*engines: str, escaped: bool = False) -> dict[str, int]:
    """Return the names a server has that scrapes current versions of these engines."""
    found = {
        probe(spec, spec.metric)
        for signal in catalog().signals.values()
        for engine in engines
        for spec in signal.sources.get(engine, ())
        if spec.metric is not None and spec.until is None
    }
    return {name.replace(":", "_") if escaped else name: 4 for name in found}


def show(queries: tuple[Query, ...]) -> str:
    return "".join(f"{q.about}\n    {q.expr}\n" for q in queries)


def asked(names: dict[str, int], group: Group = BY_LABEL, workers: int = 8) -> tuple[Query, ...]:
    return plan((group,), names, window_s=60, workers=workers, per_worker=64, fresh_s=45.0)


def test_vllm_with_router_and_plugin(snapshot: object) -> None:
    assert show(asked(present("vllm", "pdops_router", "pdops_plugin"))) == snapshot


def test_escaped_names(snapshot: object) -> None:
    assert show(asked(present("vllm", escaped=True))) == snapshot


def test_many_workers(snapshot: object) -> None:
    assert show(asked(present("vllm", "pdops_router"), workers=512)) == snapshot


def test_pools_by_address(snapshot: object) -> None:
    assert show(asked(present("vllm"), BY_ADDRESS)) == snapshot


def test_discovery(snapshot: object) -> None:
    assert show(discovery(BY_LABEL)) == snapshot


@pytest.mark.parametrize("engines", [("vllm",), ("vllm", "pdops_router", "pdops_plugin"), ("sglang",), ("dynamo",)])
def test_no_more_questions_for_more_workers(engines: tuple[str, ...]) -> None:
    counts = [len(asked(present(*engines), workers=n)) for n in (2, 64, 512, 4096)]
    # Where no engine gives its process start there is nobody to ask for the youngest of many.
    assert counts == [counts[0], counts[0], counts[-1], counts[-1]]
    assert counts[0] - 1 <= counts[-1] <= counts[0]


def test_no_question_makes_numbers_up() -> None:
    for query in asked(present(*catalog().engines)):
        assert "histogram_quantile" not in query.expr
        assert "increase(" not in query.expr
        assert len(query.expr) < 2_000


def test_spellings_and_older_names_count_once_per_target() -> None:
    names = {"vllm:kv_cache_usage_perc": 1, "vllm_kv_cache_usage_perc": 1, "vllm:gpu_cache_usage_perc": 1}
    (query, *_) = asked(names)
    assert query.expr == (
        'max by (role) ((vllm:kv_cache_usage_perc{cluster="x"} or on (instance,pod) '
        'vllm_kv_cache_usage_perc{cluster="x"} or on (instance,pod) vllm:gpu_cache_usage_perc{cluster="x"}) '
        'and on (instance,pod) (time() - timestamp(up{cluster="x"}) < 45))'
    )


def test_sources_of_other_shapes_stay_apart_and_keep_their_order() -> None:
    names = {"vllm:nixl_bytes_transferred_count": 1, "vllm:mooncake_store_operation_bytes_total": 1}
    mine = [c for c in candidates(names) if c.signal.name == "kv_transfer_bytes"]
    assert [(c.rank, c.samples("")) for c in mine] == [
        (0, ("vllm:nixl_bytes_transferred_sum",)),
        (1, ("vllm:mooncake_store_operation_bytes_total",)),
    ]


def test_pairs_are_read_up_to_a_limit() -> None:
    few, many = ({"pdops_plugin_kv_transfer_bytes_total": n} for n in (MAX_PAIRS, MAX_PAIRS + 1))
    assert [q.about for q in asked(few)] == ["kv_transfer_bytes"]
    assert asked(many) == ()


def test_presence_is_not_a_signal() -> None:
    assert candidates({"up": 9}) == ()


# selectors


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("", "up{}"),
        ("{}", "up{}"),
        (" { a = \"b\" , c=~'d|e' ,} ", """up{a="b",c=~'d|e'}"""),
        (r'{a!="x\"}y",b!~"\\d"}', r'up{a!="x\"}y",b!~"\\d"}'),
    ],
)
def test_selectors_are_read_and_written_back(text: str, out: str) -> None:
    assert Selector.parse(text).of("up") == out


@pytest.mark.parametrize(
    "text",
    ['up{a="b"}', "{a=b}", '{a="b', '{a="b"', '{__name__="x"}', '{a="b"} or up', '{a="b",,c="d"}', 'a="b\nc"'],
)
def test_what_is_not_a_selector_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a selector"):
        Selector.parse(text)


def test_foreign_text_is_quoted() -> None:
    assert Selector().plus("pod", "=~", any_of(["a.b", "[::1]:80", 'c"|d\\'])).of() == (
        r'{pod=~"a\\.b|\\[::1\\]:80|c\"\\|d\\\\"}'
    )


# columns


def row(labels: dict[str, str], *points: tuple[float, float]) -> Row:
    return Row(labels, np.array([t for t, _ in points]), np.array([v for _, v in points]))


def test_a_gap_stays_a_gap() -> None:
    grid = Grid(1000.0, 10.0, 4)
    laid = grid.lay(row({}, (1000.0, 1.0), (1020.001, 3.0), (1050.0, 9.0)))
    assert np.array_equal(laid, [1.0, np.nan, 3.0, np.nan], equal_nan=True)


def test_ranks_of_a_worker_add_up_or_give_the_greatest() -> None:
    names = {"vllm:kv_cache_usage_perc": 1, "vllm:num_requests_running": 1}
    query = next(q for q in asked(names) if q.about == "gauges by worker")
    placement = place([row({"instance": "d:1", "role": "decode"}, (0.0, 1.0))], "role", None, "x")
    collector = Collector(placement, Grid(0.0))
    for rank, used, running in (("0", 0.4, 3.0), ("1", 0.7, 2.0)):
        labels = {"instance": "d:1", "engine": rank}
        collector.add(query, [row({"__name__": "vllm:kv_cache_usage_perc", **labels}, (0.0, used))], "role")
        collector.add(query, [row({"__name__": "vllm:num_requests_running", **labels}, (0.0, running))], "role")
    assert {c: float(v[0]) for c, v in collector.columns().items()} == {
        Column("d-1", "kv_cache_usage"): 0.7,
        Column("d-1", "running_requests"): 5.0,
    }


def test_edges_and_sums_reach_the_canonical_unit() -> None:
    queries = asked({"agent_xfer_time_us_count": 1})
    placement = place([row({"instance": "d:1", "role": "decode"}, (0.0, 1.0))], "role", None, "x")
    collector = Collector(placement, Grid(0.0))
    for query in queries:
        edges = [("1000", 1.0), ("+Inf", 2.0)]
        rows = (
            [row({"role": "decode", "le": le}, (0.0, n)) for le, n in edges]
            if "_bucket" in query.expr
            else [row({"role": "decode"}, (0.0, 5e6))]
        )
        collector.add(query, rows, "role")
    got = {c.part: float(v[0]) for c, v in collector.columns().items()}
    assert got == {"sum": pytest.approx(5.0), "count": 2.0, "le=0.001": 1.0, "le=inf": 2.0}


# addresses


@pytest.mark.parametrize(
    ("url", "out"),
    [
        ("http://Host:8000/metrics", "host:8000"),
        ("https://host", "host:443"),
        ("http://host/", "host:80"),
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ("[::1]:8000", "[::1]:8000"),
        ("host", "host"),
        ("http://host:99999", ""),
        ("", ""),
    ],
)
def test_addresses(url: str, out: str) -> None:
    assert netloc(url) == out
