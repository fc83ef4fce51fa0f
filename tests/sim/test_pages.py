"""Simulated pages are those of the real programs: what stands on them, in which order, and what pdops reads of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdops.catalog.binding import bind
from pdops.catalog.load import catalog
from pdops.catalog.names import exposition_names
from pdops.model.cluster import Role
from pdops.router.metrics import Metrics
from pdops.router.settings import WorkerSpec
from pdops.router.workers import seeded
from pdops.sim.instruments import Instruments
from pdops.sources.exposition import Parser

FIXTURES = Path(__file__).parents[2] / "fixtures" / "expositions"
VLLM = FIXTURES / "vllm-0.32.0-nixl"
MOONCAKE = FIXTURES / "other-engines"
COMPLETIONS = "/v1/completions"


def served(decode: bool) -> Instruments:
    """A vLLM engine of the fixtures' model after one completion."""
    engine = Instruments("decode-0" if decode else "prefill-0", "vllm", labels={"model_name": "tiny"})
    engine.inc("http_requests", handler=COMPLETIONS, method="POST", status="2xx")
    engine.observe("http_request_size_bytes", 900, handler=COMPLETIONS)
    engine.observe("http_response_size_bytes", 80, handler=COMPLETIONS)
    engine.observe("http_request_duration_seconds", 0.2, handler=COMPLETIONS, method="POST")
    if decode:
        engine.set("vllm:num_requests_kv_fetch_by_stage", 0, stage="in_progress")
    return engine


def shape(page: str) -> list[str]:
    """A page without its numbers, and without the values of the labels that describe one machine's configuration."""
    lines = []
    for line in page.splitlines():
        name = line if line.startswith("#") else line.rpartition(" ")[0]
        if name.startswith(("vllm:cache_config_info", "python_info")):
            name = re.sub(r'"[^"]*"', '""', name)
        lines.append(name)
    return lines


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_vllm_page_has_the_families_types_labels_and_edges_of_a_recorded_one(role: str) -> None:
    recorded = (VLLM / f"{role}-load-c4.prom").read_text()
    assert shape(served(decode=role == "decode").page()) == shape(recorded)


def test_a_mooncake_page_has_the_families_types_labels_and_edges_of_a_recorded_one() -> None:
    recorded = (MOONCAKE / "mooncake_master_active.prom").read_text()
    segment = re.search(r'segment="([^"]+)"', recorded)
    assert segment is not None
    store = Instruments("store-0", "mooncake")
    idle = (MOONCAKE / "mooncake_master_idle.prom").read_text()
    assert shape(store.page()) == shape(idle)
    for name in ("segment_allocated_bytes", "segment_total_capacity_bytes"):
        store.set(name, 1 << 20, segment=segment[1])
    store.observe("master_value_size_bytes", 1 << 20, n=100)
    for name in ("successful_evictions", "attempted_evictions", "evicted_key_count", "evicted_size_bytes"):
        store.inc(f"master_{name}_mem")
    assert shape(store.page()) == shape(recorded)
    assert 'master_value_size_bytes_bucket{le="1048576.000000"} 100\n' in store.page()


async def test_a_router_page_is_the_one_the_router_makes() -> None:
    given = [
        WorkerSpec(id="prefill-0", role=Role.PREFILL, url="http://127.0.0.1:1"),
        WorkerSpec(id="decode-0", role=Role.DECODE, url="http://127.0.0.1:2"),
    ]
    metrics = Metrics(seeded(given, [], set()))
    metrics.promised("ttft", met=True)
    metrics.fallback.labels("no_prefill", "decode-0")
    metrics.kv_bytes.labels("prefill-0", "decode-0")
    real = (await metrics.page()).decode()
    router = Instruments("router-0", "pdops_router")
    pair = {"src": "prefill-0", "dst": "decode-0"}
    router.observe("pdops_router_prefill_seconds", 0, n=0, src="prefill-0")
    router.observe("pdops_router_handoff_seconds", 0, n=0, **pair)
    for outcome in ("ok", "error", "timeout", "aborted", "empty", "rejected"):
        router.inc("pdops_router_pair_requests", 0, **pair, outcome=outcome)
    router.inc("pdops_router_slo", 1, slo="ttft", met="true")
    router.inc("pdops_router_fallback", 0, reason="no_prefill", worker="decode-0")
    router.inc("pdops_router_pair_kv_bytes", 0, **pair)
    for worker in ("prefill-0", "decode-0"):
        router.set("pdops_router_worker_up", float("nan"), worker=worker)
        router.set("pdops_router_worker_cordoned", 0, worker=worker)
        router.set("pdops_router_worker_inflight", 0, worker=worker)
    assert router.page() == real


def test_a_node_page_has_every_family_the_catalog_reads_of_a_node_exporter() -> None:
    names = {
        name
        for signal in catalog().signals.values()
        for source in signal.sources.get("node", ())
        for name in exposition_names(source)
    }
    page = Instruments("prefill-0", "node", endpoint="node").page()
    assert names
    assert names <= {sample.name for family in text_string_to_metric_families(page) for sample in family.samples}


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_pdops_binds_a_simulated_vllm_page_to_the_columns_of_a_recorded_one(role: str) -> None:
    recorded = Parser().parse((VLLM / f"{role}-load-c4.prom").read_bytes())
    layout = served(decode=role == "decode").scrape(1.0).layout
    assert layout is not None
    bound = bind("vllm", layout)
    assert bound.columns == bind("vllm", recorded.layout).columns
    assert bound.facts.keys() == bind("vllm", recorded.layout).facts.keys()
    assert bound.escaped == ()


@pytest.mark.parametrize(
    ("engine", "fixture"),
    [("mooncake", "other-engines/mooncake_master_idle"), ("vllm", "vllm-0.32.0-nixl/prefill-idle")],
)
def test_a_frame_says_what_reading_the_page_says(engine: str, fixture: str) -> None:
    instruments = Instruments("w", engine)
    parsed = Parser().parse(instruments.page().encode())
    scrape = instruments.scrape(5.0)
    assert scrape.layout is not None
    assert scrape.values is not None
    assert scrape.layout.series == parsed.layout.series
    assert scrape.values.tolist() == parsed.values.tolist()
    assert parsed.malformed == 0
    assert parsed.layout.series[:3] == Parser().parse((FIXTURES / f"{fixture}.prom").read_bytes()).layout.series[:3]


@pytest.mark.parametrize(
    ("name", "labels", "column"),
    [
        ("pdops_plugin_kv_transfer_seconds", {}, "kv_transfer_seconds"),
        ("pdops_plugin_kv_handshake_seconds", {"result": "ok"}, "kv_handshake_seconds"),
    ],
)
def test_the_plugins_families_name_pairs(name: str, labels: dict[str, str], column: str) -> None:
    engine = Instruments("decode-0", "vllm")
    assert name not in engine.page()
    engine.observe(name, 0.02, src="prefill-0", dst="decode-0", **labels)
    layout = engine.scrape(1.0).layout
    assert layout is not None
    assert ("pair:prefill-0>decode-0", column) in {(c.scope, c.signal) for c in bind("vllm", layout).columns}
