"""What the exporter makes of recorded pages: several of one worker, unread series, stores, configuration, held KV."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import generate_latest

from pdops.grafana.families import exported
from pdops.model.cluster import Cluster, Endpoint, Role, Worker
from pdops.model.frame import Frame, Probe, ProbeKind, Scrape
from pdops.sources.exposition import Parser
from pdops_exporters import watched as watched_module
from pdops_exporters.watched import Watched

from .conftest import registry_of, samples

VLLM, NIXL, STORE = "http://127.0.0.1:8001/metrics", "http://127.0.0.1:9090/metrics", "http://127.0.0.1:9003/metrics"
Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


def cluster(*endpoints: Endpoint, role: Role = Role.DECODE) -> Cluster:
    worker = Worker(id="w", role=role, pool=role.value, endpoints=endpoints)
    other = Worker(id="prefill-0", role=Role.PREFILL, pool="prefill")
    return Cluster(name="c", workers=(worker, other))


def scrape(url: str, engine: str, body: bytes, at_s: float) -> Scrape:
    parsed = Parser().parse(body)
    return Scrape(
        worker="w",
        engine=engine,
        at_s=at_s,
        layout=parsed.layout,
        values=parsed.values,
        endpoint=url,
        size_bytes=len(body),
        malformed=parsed.malformed,
        unread=parsed.skipped,
    )


def found(watched: Watched) -> Found:
    page: Found = {}
    for (name, labels), value in samples(generate_latest(registry_of(watched)).decode()).items():
        page.setdefault(name, {})[labels] = value
    return page


def only(page: Found, name: str, **labels: str) -> float:
    (value,) = [v for have, v in page[name].items() if labels.items() <= dict(have).items()]
    return value


def watch(watched_cluster: Cluster, *frames: Frame) -> Watched:
    watched = Watched(watched_cluster, interval_s=1.0, monotonic=lambda: 0.0)
    for frame in frames:
        watched.add(frame)
    return watched


def test_nixls_own_page_is_merged_into_its_worker(pages: Mapping[str, bytes]) -> None:
    engine, nixl = pages["vllm-0.32.0-nixl/decode-load-c4.prom"], pages["other-engines/nixl_1.5.1_decode.prom"]
    both = cluster(Endpoint(VLLM, "vllm"), Endpoint(NIXL, "nixl"))
    # NIXL's page comes first, and then only has what the engine's page does not.
    looks = [
        Frame(at_s=t, scrapes=(scrape(NIXL, "nixl", nixl, t), scrape(VLLM, "vllm", engine, t + 0.1)))
        for t in (100.0, 101.0)
    ]
    merged, alone = found(watch(both, *looks)), found(watch(cluster(Endpoint(NIXL, "nixl")), *looks))
    assert only(merged, "pdops_scrape_bytes") == len(engine) + len(nixl)
    edges = [{dict(labels)["le"] for labels in page["pdops_kv_transfer_seconds_bucket"]} for page in (merged, alone)]
    assert "0.005" in edges[0]
    assert edges[0] != edges[1]
    assert only(alone, "pdops_kv_transfer_seconds_count", worker="w") == 0
    assert set(alone) <= set(merged)


def test_series_that_nobody_reads_and_lines_that_nobody_can_are_counted(pages: Mapping[str, bytes]) -> None:
    body = b'# TYPE vllm:new gauge\nvllm:new 1\nvllm:new{a="b"} 2\nvllm:num_requests_waiting 3\n\x01broken\n'
    page = found(watch(cluster(Endpoint(VLLM, "vllm")), Frame(at_s=1.0, scrapes=(scrape(VLLM, "vllm", body, 1.0),))))
    assert only(page, "pdops_unknown_series", worker="w") == 2
    assert only(page, "pdops_malformed_lines", worker="w") == 1


def test_where_a_source_does_not_tell_there_is_no_count_of_unread_series(pages: Mapping[str, bytes]) -> None:
    whole = scrape(VLLM, "vllm", pages["vllm-0.32.0-nixl/decode-load-c4.prom"], 1.0)
    quiet = Scrape(worker="w", engine="vllm", at_s=1.0, layout=whole.layout, values=whole.values, endpoint=VLLM)
    assert "pdops_unknown_series" not in found(
        watch(cluster(Endpoint(VLLM, "vllm")), Frame(at_s=1.0, scrapes=(quiet,)))
    )


def test_the_age_of_held_kv_grows_although_the_engine_publishes_nothing_new() -> None:
    body = b"pdops_plugin_kv_held_oldest_timestamp_seconds 90\nvllm:num_requests_waiting 0\n"
    frames = [Frame(at_s=t, scrapes=(scrape(VLLM, "vllm", body, t),)) for t in (100.0, 101.0, 102.0)]
    for count, age_s in ((1, 10.0), (3, 12.0)):
        watched = watch(cluster(Endpoint(VLLM, "vllm"), role=Role.PREFILL), *frames[:count])
        assert only(found(watched), "pdops_kv_export_oldest_seconds", worker="w") == age_s


def test_a_store_is_told_by_tier(pages: Mapping[str, bytes]) -> None:
    body = pages["other-engines/mooncake_master_two_segments_evicting.prom"]
    store = cluster(Endpoint(STORE, "mooncake"), role=Role.KVSTORE)
    page = found(watch(store, Frame(at_s=1.0, scrapes=(scrape(STORE, "mooncake", body, 1.0),))))
    assert only(page, "pdops_kvstore_held_bytes", tier="memory") > 0
    assert only(page, "pdops_kvstore_held_bytes", tier="disk") == 0
    assert only(page, "pdops_kvstore_capacity_bytes", tier="memory") == 32 << 20
    assert 0 < only(page, "pdops_kvstore_fill_ratio") <= 1
    assert only(page, "pdops_kvstore_hits_total", tier="memory") == 0, "counters begin with this process"


def test_a_store_that_tells_its_fill_but_no_capacity_is_told_as_it_is() -> None:
    body = b"lmcache_mp_l1_memory_usage_bytes 1024\nlmcache_mp_l1_usage_ratio 0.25\n"
    store = cluster(Endpoint(STORE, "lmcache"), role=Role.KVSTORE)
    page = found(watch(store, Frame(at_s=1.0, scrapes=(scrape(STORE, "lmcache", body, 1.0),))))
    assert only(page, "pdops_kvstore_fill_ratio") == 0.25
    assert only(page, "pdops_kvstore_held_bytes", tier="memory") == 1024
    assert "pdops_kvstore_capacity_bytes" not in page


@pytest.mark.parametrize(
    ("name", "engine", "role"),
    [
        ("vllm-0.32.0-nixl/prefill-load-c4.prom", "vllm", Role.PREFILL),
        ("vllm-0.32.0-nixl/decode-load-c4.prom", "vllm", Role.DECODE),
        ("other-engines/nixl_1.5.1_decode.prom", "nixl", Role.DECODE),
        ("other-engines/mooncake_master_active.prom", "mooncake", Role.KVSTORE),
        ("other-engines/vllm_router_0.1.17_pd.prom", "vllm_router", Role.ROUTER),
        ("other-engines/sglang_router_0.3.2_pd.prom", "sglang_router", Role.ROUTER),
    ],
)
def test_rules_and_dashboards_know_every_family_with_its_labels(
    pages: Mapping[str, bytes], name: str, engine: str, role: Role
) -> None:
    looks = [Frame(at_s=t, scrapes=(scrape(VLLM, engine, pages[name], t),)) for t in (1.0, 2.0)]
    watched = watch(cluster(Endpoint(VLLM, engine), role=role), *looks)
    for sample, rows in found(watched).items():
        family = exported().get(sample)
        assert family is not None, sample
        labels = {tuple(sorted(dict(row).keys() - {"le"})) for row in rows}
        assert labels == {tuple(sorted(family.labels))}, sample


def test_preflight_is_judged_from_what_is_known_and_again_when_it_changes() -> None:
    options = {"w": {"block_size": "16"}, "prefill-0": {"block_size": "32"}}
    pair = cluster(Endpoint(VLLM, "vllm"))
    watched = watch(pair, Frame(at_s=1.0))
    assert "pdops_preflight" not in found(watched)
    watched.add(Frame(at_s=2.0, facts=options))
    page = found(watched)
    assert only(page, "pdops_preflight", check="pair/block-size", status="ok") == 0
    assert {v for k, v in page["pdops_preflight"].items() if dict(k)["check"] == "pair/block-size"} == {0.0, 1.0}
    before = only(page, "pdops_preflight", check="pair/block-size", status="fail")
    watched.add(Frame(at_s=3.0, facts={"w": {"block_size": "32"}}))
    assert (before, only(found(watched), "pdops_preflight", check="pair/block-size", status="fail")) == (1.0, 0.0)


def test_a_worker_that_comes_is_shown_and_one_that_went_is_not(pages: Mapping[str, bytes]) -> None:
    body, both = pages["vllm-0.32.0-nixl/decode-load-c4.prom"], cluster(Endpoint(VLLM, "vllm"))
    only_prefill = Cluster(name="c", workers=both.workers[1:])
    watched = watch(only_prefill, Frame(at_s=1.0))
    watched.follow(both)
    watched.add(Frame(at_s=2.0, scrapes=(scrape(VLLM, "vllm", body, 2.0),)))
    assert only(found(watched), "pdops_worker_up", worker="w") == 1
    watched.follow(only_prefill)
    watched.add(Frame(at_s=3.0))
    assert {dict(labels)["worker"] for labels in found(watched)["pdops_worker_up"]} == {"prefill-0"}


def test_a_probe_is_told_with_its_time(pages: Mapping[str, bytes]) -> None:
    wrong = Probe(t_s=7.0, kind=ProbeKind.CANARY, ok=False, pair="prefill-0>w")
    page = found(watch(cluster(), Frame(at_s=8.0, probes=(wrong,))))
    assert only(page, "pdops_probe_success", kind="canary", target="prefill-0>w") == 0
    assert only(page, "pdops_probe_timestamp_seconds", kind="canary") == 7.0


def test_a_frame_waits_while_another_thread_makes_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(cluster(), Frame(at_s=1.0))
    other = threading.Thread(target=watched.add, args=(Frame(at_s=2.0),))
    judge = watched_module.diagnose

    def meanwhile(view: Any) -> Any:
        other.start()
        other.join(0.2)
        assert other.is_alive(), "a frame came in between"
        return judge(view)

    monkeypatch.setattr(watched_module, "diagnose", meanwhile)
    first = watched.snapshot()
    other.join()
    monkeypatch.setattr(watched_module, "diagnose", judge)
    assert first is not None
    assert (first.frames, first.view.at_s) == (1, 1.0)
    second = watched.snapshot()
    assert second is not None
    assert (second.frames, second.view.at_s) == (2, 2.0)
