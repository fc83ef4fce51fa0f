"""The query that is copied asks for what the engine exports, of this worker, and nothing a name can add."""

from __future__ import annotations

import promql_parser
import pytest

from pdops.model.cluster import Endpoint, Role, Worker
from pdops_tui.models.promql import promql


def worker(url: str = "http://10.0.0.7:8000", engine: str | None = "vllm") -> Worker:
    return Worker(id="d", role=Role.DECODE, pool="decode", engine=engine, endpoints=(Endpoint(url=f"{url}/metrics"),))


@pytest.mark.parametrize(
    ("signal", "query"),
    [
        ("kv_cache_usage", 'vllm:kv_cache_usage_perc{instance="10.0.0.7:8000"}'),
        ("preemptions", 'rate(vllm:num_preemptions_total{instance="10.0.0.7:8000"}[1m])'),
        (
            "ttft_seconds",
            'histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{instance="10.0.0.7:8000"}[1m])))',
        ),
    ],
)
def test_queries(signal: str, query: str) -> None:
    found = promql(worker(), signal)
    assert found is not None
    assert found[1] == query
    promql_parser.parse(query)


@pytest.mark.parametrize("url", ['http://a"} or up{x="', "http://[", "", "http://user:secret@h:1"])
def test_an_address_cannot_change_the_query_or_give_a_password_away(url: str) -> None:
    found = promql(worker(url), "kv_cache_usage")
    assert found is not None
    promql_parser.parse(found[1])
    assert "secret" not in found[1]
    assert " or " not in found[1].replace('\\"} or up{x=\\"', "")


@pytest.mark.parametrize(("signal", "engine"), [("nothing", "vllm"), ("kv_cache_usage", None), ("kv_cache_usage", "x")])
def test_what_no_engine_exports_has_no_query(signal: str, engine: str | None) -> None:
    assert promql(worker(engine=engine).__class__(id="d", role=Role.DECODE, pool="p", engine=engine), signal) is None
