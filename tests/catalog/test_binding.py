"""How the series of a page become canonical columns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pdops.catalog.binding import CANONICAL, Column, bind, canonical_series
from pdops.catalog.load import catalog
from pdops.model.frame import Layout
from pdops.model.series import Kind


def columns(engine: str, page: dict[str, float], **names: str) -> dict[Column, float]:
    binding = bind(engine, Layout(tuple(page)), lambda label: names.get(label, label))
    return dict(zip(binding.columns, binding.apply(np.array(list(page.values()))).tolist(), strict=True))


def test_ranks_of_one_worker_are_summed_and_the_fullest_cache_is_shown_with_its_rank() -> None:
    found = columns(
        "vllm",
        {
            'vllm:num_requests_waiting{engine="0",model_name="m"}': 3.0,
            'vllm:num_requests_waiting{engine="1",model_name="m"}': 4.0,
            'vllm:generation_tokens_total{engine="0",model_name="m"}': 100.0,
            'vllm:generation_tokens_total{engine="1",model_name="m"}': 50.0,
            'vllm:kv_cache_usage_perc{engine="0",model_name="m"}': 0.2,
            'vllm:kv_cache_usage_perc{engine="1",model_name="m"}': 0.9,
            'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"}': 1.0,
            'vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1"}': 2.0,
            'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"}': 5.0,
            'vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"}': 6.0,
            'vllm:time_to_first_token_seconds_sum{engine="0"}': 0.5,
            'vllm:time_to_first_token_seconds_sum{engine="1"}': 1.5,
            'vllm:time_to_first_token_seconds_count{engine="0"}': 5.0,
            'vllm:time_to_first_token_seconds_count{engine="1"}': 6.0,
        },
    )
    assert found == {
        Column("", "queue_depth"): 7.0,
        Column("", "generated_tokens"): 150.0,
        Column("", "kv_cache_usage"): 0.9,
        Column("", "kv_cache_usage", "rank=0"): 0.2,
        Column("", "kv_cache_usage", "rank=1"): 0.9,
        Column("", "ttft_seconds", "le=0.1"): 3.0,
        Column("", "ttft_seconds", "le=inf"): 11.0,
        Column("", "ttft_seconds", "sum"): 2.0,
        Column("", "ttft_seconds", "count"): 11.0,
    }


def test_a_single_rank_has_no_rank_columns() -> None:
    assert columns("vllm", {'vllm:kv_cache_usage_perc{engine="0"}': 0.5}) == {Column("", "kv_cache_usage"): 0.5}


def test_a_value_that_is_not_a_number_stays_unknown() -> None:
    found = columns("vllm", {"vllm:num_requests_running": math.nan, "vllm:num_requests_waiting": 0.0})
    assert math.isnan(found[Column("", "running_requests")])
    assert found[Column("", "queue_depth")] == 0.0


def test_the_first_source_on_the_page_wins_and_sources_are_not_added() -> None:
    page = {"vllm:kv_cache_usage_perc": 0.1, "vllm:gpu_cache_usage_perc": 0.7}
    assert columns("vllm", page) == {Column("", "kv_cache_usage"): 0.1}
    assert columns("vllm", {"vllm:gpu_cache_usage_perc": 0.7}) == {Column("", "kv_cache_usage"): 0.7}


def test_labels_choose_the_series() -> None:
    found = columns(
        "vllm",
        {
            'vllm:request_success_total{finished_reason="stop"}': 1.0,
            'vllm:request_success_total{finished_reason="length"}': 2.0,
            'vllm:request_success_total{finished_reason="abort"}': 4.0,
            'vllm:request_success_total{finished_reason="error"}': 8.0,
            'vllm:num_requests_waiting_by_reason{reason="deferred"}': 5.0,
        },
    )
    assert found == {
        Column("", "request_success"): 3.0,
        Column("", "request_failure"): 12.0,
        Column("", "queue_depth_deferred"): 5.0,
    }


def test_pairs_and_workers_go_by_the_names_of_the_inventory() -> None:
    found = columns(
        "vllm",
        {
            'pdops_plugin_kv_transfer_bytes_total{src="http://p",dst="http://d"}': 10.0,
            'pdops_plugin_kv_handshake_seconds_count{src="http://p",dst="http://d",result="failed"}': 2.0,
        },
        **{"http://p": "prefill-0", "http://d": "decode-0"},
    )
    pair = "pair:prefill-0>decode-0"
    assert found[Column(pair, "kv_transfer_bytes")] == 10.0
    assert found[Column(pair, "kv_handshake_failures")] == 2.0
    router = columns("pdops_router", {'pdops_router_worker_up{worker="http://d"}': 1.0}, **{"http://d": "decode-0"})
    assert router == {Column("decode-0", "worker_health"): 1.0}


def test_client_signals_of_the_router_belong_to_the_client() -> None:
    page = {'pdops_router_ttft_seconds_sum{pool="x"}': 1.0, 'pdops_router_ttft_seconds_count{pool="x"}': 2.0}
    assert set(columns("pdops_router", page)) == {
        Column("client", "ttft_seconds", "sum"),
        Column("client", "ttft_seconds", "count"),
    }


def test_series_that_cannot_be_read_are_left_out() -> None:
    assert columns("vllm", {"vllm:num_requests_waiting{": 1.0, "vllm:num_requests_running": 2.0}) == {
        Column("", "running_requests"): 2.0
    }


def test_an_unknown_engine_and_an_empty_page_bind_to_nothing() -> None:
    assert columns("unknown", {"vllm:num_requests_running": 2.0}) == {}
    assert columns("vllm", {}) == {}


@pytest.mark.parametrize(
    "column",
    [
        Column("decode-0", "queue_depth"),
        Column("pool:decode", "generated_tokens"),
        Column("pool:decode", "generated_tokens", rate=True),
        Column("client", "ttft_seconds", "sum"),
        Column("client", "ttft_seconds", "count"),
        Column("client", "ttft_seconds", "le=0.25"),
        Column("client", "ttft_seconds", "le=inf", rate=True),
    ],
)
def test_canonical_pages_bind_back_to_the_column_they_were_made_from(column: Column) -> None:
    binding = bind(CANONICAL, Layout((canonical_series(column),)))
    assert binding.columns == (column,)
    assert binding.apply(np.array([2.5])).tolist() == [2.5]


def test_every_engine_source_of_a_histogram_signal_is_one_or_is_never_bound() -> None:
    for signal in catalog().signals.values():
        for engine, specs in signal.sources.items():
            for spec in specs:
                if spec.metric is None or signal.kind is not Kind.HISTOGRAM or spec.kind in ("histogram", "summary"):
                    continue
                assert bind(engine, Layout((spec.metric,))).columns == ()


def test_a_unix_time_becomes_the_age_of_the_oldest_and_zero_stays_zero() -> None:
    name = "pdops_plugin_kv_held_oldest_timestamp_seconds"

    def oldest(at_s: float, *stamps: float) -> float:
        binding = bind("vllm", Layout(tuple(f'{name}{{engine="{rank}"}}' for rank in range(len(stamps)))))
        found = dict(zip(binding.columns, binding.apply(np.array(stamps), at_s).tolist(), strict=True))
        return float(found[Column("", "kv_export_oldest_seconds")])

    assert oldest(1030.0, 1000.0) == 30.0
    assert oldest(1030.0, 0.0) == 0.0
    assert oldest(1030.0, 1020.0, 1000.0, 0.0) == 30.0
    assert oldest(1030.0, 1031.0) == 0.0
    assert math.isnan(oldest(math.nan, 1000.0))
