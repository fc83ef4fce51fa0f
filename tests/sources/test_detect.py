"""Which engine a page belongs to."""

from __future__ import annotations

import pytest

from pdops.catalog.load import catalog
from pdops.catalog.names import exposition_names
from pdops.sources.detect import detect, has_families
from pdops.sources.exposition import Parser

BY_FILE = {
    "vllm-0.32.0-nixl/vllm-router": "vllm_router",
    "vllm-0.32.0-nixl/": "vllm",
    "link-drills/": "vllm",
    "other-engines/nixl_": "nixl",
    "other-engines/mooncake_": "mooncake",
    "other-engines/vllm_router": "vllm_router",
    "other-engines/sglang_router": "sglang_router",
}


def test_every_recorded_page_is_recognised(pages: dict[str, bytes]) -> None:
    for name, body in pages.items():
        expected = next(engine for prefix, engine in BY_FILE.items() if name.startswith(prefix))
        names = Parser().parse(body).names
        assert detect(names) == expected, name
        assert has_families(expected, names)


def test_every_name_of_the_catalog_belongs_to_its_engine_or_to_one_that_embeds_it() -> None:
    embedded = {("dynamo", "trtllm")}
    shared = {"process_resident_memory_bytes", "process_start_time_seconds", "up"}
    shared |= {"total_get_nums_", "valid_get_nums_", "mem_cache_hit_nums_", "file_cache_hit_nums_"}
    for signal in catalog().signals.values():
        for engine, specs in signal.sources.items():
            if engine == "pdops_plugin":
                continue
            for name in (n for spec in specs for n in exposition_names(spec) if n not in shared):
                found = detect([name])
                assert found == engine or (engine, found) in embedded, name


@pytest.mark.parametrize(
    ("names", "engine"),
    [
        ([], None),
        (["python_info", "process_start_time_seconds"], None),
        (["vllm_num_requests_waiting"], "vllm"),
        (["vllm_router_worker_health"], "vllm_router"),
        (["dynamo_component_inflight_requests"], "dynamo"),
        (["dynamo_component_inflight_requests", "vllm:num_requests_running"], "vllm"),
        (["dynamo_component_inflight_requests", "sglang:num_running_reqs"], "sglang"),
        (["vllm:num_requests_running", "lmcache:local_cache_usage", "pdops_plugin_kv_held_requests"], "vllm"),
        (["lmcache_mp_l1_memory_usage_bytes"], "lmcache"),
        (["DCGM_FI_DEV_FB_USED"], "dcgm"),
        (["node_load1"], "node"),
        (["agent_version"], None),
        (["pdops_router_requests_total"], "pdops_router"),
    ],
)
def test_names_tell_the_engine(names: list[str], engine: str | None) -> None:
    assert detect(names) == engine


def test_an_engine_without_known_prefixes_cannot_be_denied() -> None:
    assert has_families("pdops", ["node_load1"]) is None
    assert has_families("vllm", ["node_load1"]) is False
