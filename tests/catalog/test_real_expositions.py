"""Every name in the catalog that a recorded page can hold is proven by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pdops.catalog.binding import Column, bind
from pdops.catalog.load import catalog
from pdops.catalog.names import exposition_names
from pdops.catalog.types import SourceSpec
from pdops.model.frame import Layout
from pdops.sources.exposition import Parsed, Parser

PAGES = {
    "vllm": ("vllm-0.32.0-nixl/prefill", "vllm-0.32.0-nixl/decode", "vllm-0.32.0-nixl/single", "link-drills/"),
    "nixl": ("other-engines/nixl_",),
    "mooncake": ("other-engines/mooncake_",),
    "vllm_router": ("other-engines/vllm_router_", "vllm-0.32.0-nixl/vllm-router"),
    "sglang_router": ("other-engines/sglang_router_",),
}

OLD_NAME = "a name of older releases"
OTHER_CONNECTOR = "needs a KV connector other than NIXL"
NOT_BUILT = "compiled out of the released package"
NO_TRANSFER = "the recorded client moved nothing"
NOT_A_SERIES = "made from the health endpoint"
OTHER_MODE = "needs the router's gRPC mode or its rate limit"

UNPROVEN = {
    "vllm": {
        ("kv_cache_usage", "vllm:gpu_cache_usage_perc"): OLD_NAME,
        ("prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total"): OLD_NAME,
        ("prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total"): OLD_NAME,
        ("itl_seconds", "vllm:time_per_output_token_seconds"): OLD_NAME,
        ("kvstore_alloc_failures", "vllm:kv_offload_allocation_failure_total"): OTHER_CONNECTOR,
        ("kv_transfer_seconds", "vllm:mooncake_store_operation_time_seconds"): OTHER_CONNECTOR,
        ("kv_transfer_seconds", "vllm:hf3fs_load_duration_seconds"): OTHER_CONNECTOR,
        ("kv_transfer_bytes", "vllm:mooncake_store_operation_bytes_total"): OTHER_CONNECTOR,
        ("kv_transfer_failures", "vllm:mooncake_store_operation_failed_keys_total"): OTHER_CONNECTOR,
    },
    "nixl": {},
    "mooncake": {
        ("kvstore_up", "up"): NOT_A_SERIES,
        ("kv_transfer_seconds", "tent_read_latency_us"): NOT_BUILT,
        ("kv_transfer_bytes", "tent_read_bytes_total"): NOT_BUILT,
        ("kv_transfer_failures", "tent_read_failures_total"): NOT_BUILT,
        ("kv_transfer_seconds", "mooncake_transfer_get_latency"): NO_TRANSFER,
        ("kv_transfer_bytes", "mooncake_transfer_read_bytes"): NO_TRANSFER,
    },
    "vllm_router": {},
    "sglang_router": {
        ("ttft_seconds", "smg_router_ttft_seconds"): OTHER_MODE,
        ("itl_seconds", "smg_router_tpot_seconds"): OTHER_MODE,
        ("admission_rejections", "smg_http_rate_limit_total"): OTHER_MODE,
    },
}
"""(signal, metric) that no recorded page holds, and why not. A name that turns up on one must leave the list."""


@pytest.fixture(scope="module")
def parsed(pages: dict[str, bytes]) -> dict[str, list[Parsed]]:
    return {
        engine: [Parser().parse(body) for name, body in pages.items() if name.startswith(prefixes)]
        for engine, prefixes in PAGES.items()
    }


def sources(engine: str) -> list[tuple[str, SourceSpec]]:
    found = [(s.name, spec) for s in catalog().signals.values() for spec in s.sources.get(engine, ())]
    return [(signal, spec) for signal, spec in found if spec.metric is not None]


def proves(engine: str, page: Parsed, signal: str, spec: SourceSpec) -> bool:
    """Whether the page holds the source's series and they alone make its column."""
    names = exposition_names(spec)
    own = tuple(s for s in page.layout.series if s.partition("{")[0] in names)
    binding = bind(engine, Layout(own))
    columns = [c for c in binding.columns if c.signal == signal]
    return bool(columns) and len(binding.apply(np.zeros(len(own)))) == len(binding.columns)


@pytest.mark.parametrize("engine", PAGES)
def test_every_source_is_proven_by_a_recorded_page_or_listed(engine: str, parsed: dict[str, list[Parsed]]) -> None:
    assert parsed[engine]
    layouts = list({id(p.layout): p for p in parsed[engine]}.values())
    missing = {
        (signal, spec.metric)
        for signal, spec in sources(engine)
        if not any(proves(engine, page, signal, spec) for page in layouts)
    }
    assert missing == set(UNPROVEN[engine])


@pytest.mark.parametrize("engine", PAGES)
def test_the_catalog_claims_a_recorded_page_exactly_for_what_one_proves(engine: str) -> None:
    claimed = {(signal, spec.metric) for signal, spec in sources(engine) if spec.verified == "fixture"}
    assert claimed == {(signal, spec.metric) for signal, spec in sources(engine)} - set(UNPROVEN[engine])


def test_a_page_with_escaped_colons_gives_the_same_columns_and_says_so(page: Callable[[str], bytes]) -> None:
    body = page("vllm-0.32.0-nixl/decode-load-c4.prom")
    plain, escaped = Parser().parse(body), Parser().parse(body.replace(b"vllm:", b"vllm_"))
    bound, other = bind("vllm", plain.layout), bind("vllm", escaped.layout)
    assert other.columns == bound.columns
    np.testing.assert_array_equal(other.apply(escaped.values), bound.apply(plain.values))
    assert other.facts == bound.facts
    assert bound.escaped == ()
    assert "vllm:num_requests_waiting" in other.escaped
    assert not any("_start_time_" in name for name in other.escaped)


def test_a_decode_page_says_what_its_recording_says(page: Callable[[str], bytes]) -> None:
    parsed = Parser().parse(page("vllm-0.32.0-nixl/decode-overload-after.prom"))
    binding = bind("vllm", parsed.layout)
    values = dict(zip(binding.columns, binding.apply(parsed.values).tolist(), strict=True))
    assert values[Column("", "preemptions")] == 29
    assert binding.facts["block_size"] == "32"
    assert binding.facts["num_gpu_blocks"] == "80"
    ttft = [c for c in binding.columns if c.signal == "ttft_seconds"]
    assert {c.part for c in ttft} >= {"sum", "count", "le=0.1", "le=inf"}
    assert values[Column("", "ttft_seconds", "le=inf")] == values[Column("", "ttft_seconds", "count")]


def test_microseconds_become_seconds_in_sums_and_edges_but_not_in_counts(page: Callable[[str], bytes]) -> None:
    parsed = Parser().parse(page("other-engines/nixl_1.5.1_decode.prom"))
    raw = dict(zip(parsed.layout.series, parsed.values.tolist(), strict=True))
    binding = bind("nixl", parsed.layout)
    values = dict(zip(binding.columns, binding.apply(parsed.values).tolist(), strict=True))
    total = next(v for s, v in raw.items() if s.startswith("agent_xfer_time_us_sum"))
    count = next(v for s, v in raw.items() if s.startswith("agent_xfer_time_us_count"))
    assert values[Column("", "kv_transfer_seconds", "sum")] == pytest.approx(total * 1e-6)
    assert values[Column("", "kv_transfer_seconds", "count")] == count == 20
    edges = [float(c.part[3:]) for c in binding.columns if c.part.startswith("le=")]
    assert min(edges) < 1e-3


def test_a_router_page_speaks_of_the_workers_it_names(page: Callable[[str], bytes]) -> None:
    parsed = Parser().parse(page("other-engines/sglang_router_0.3.2_pd_one_decode_dead.prom"))
    ids = {"http://127.0.0.1:8312": "decode-0", "http://127.0.0.1:8313": "decode-1"}
    binding = bind("sglang_router", parsed.layout, lambda label: ids.get(label, label))
    values = dict(zip(binding.columns, binding.apply(parsed.values).tolist(), strict=True))
    assert values[Column("decode-0", "router_breaker_state")] == 0
    assert values[Column("decode-1", "router_breaker_state")] == 1
    assert values[Column("decode-1", "worker_health")] == 1
    assert values[Column("decode-1", "worker_selection")] == 15
