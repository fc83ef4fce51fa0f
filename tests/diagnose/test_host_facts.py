"""Whatever stands in the facts, the host and startup checks of preflight answer, and do not fall over."""

from __future__ import annotations

import json
import random

import pytest

from pdops.diagnose.checks import PREFLIGHT
from pdops.diagnose.context import Context
from pdops.diagnose.devices import gpus, rdma_ports
from pdops.diagnose.fabric import allows, has_rdma
from pdops.diagnose.finding import Check
from pdops.diagnose.hosts import env, is_loopback, same_host
from pdops.diagnose.preflight import amount
from pdops.diagnose.preflight_run import run_preflight
from tests.diagnose.build import view, worker
from tests.diagnose.hostfacts import D, P, cards, engine, rdma, seen

OURS = tuple(c for c in PREFLIGHT if c.meta.id.startswith(("host/", "startup/")))
JUNK = (
    "", " ", "nan", "inf", "-inf", "-1", "0", "1e999", "9" * 40, "²", "٣", "true", "null", "[]", "{}", "[null]", '{"a": null}', '{"a": {"1": {}}}',
    '{"a": {"1": {"gids": [{}, 7], "state": 4, "mtu": []}}}', '[{"index": "x"}, {"index": 0, "memory_free_bytes": -1}]', "a>b", "\x00", "not read",
)  # fmt: skip
KEYS = (
    "kv_connector", "kv_connector_children", "version", "nixl_version", "backends", "UCX_TLS", "UCX_NET_DEVICES", "UCX_IB_GID_INDEX", "host.name",
    "UCX_RCACHE_MAX_UNRELEASED", "CUDA_VISIBLE_DEVICES", "VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT", "VLLM_CPU_KVCACHE_SPACE",
    "data_parallel_size", "tensor_parallel_size", "gpu_memory_utilization", "block_size", "kv_events_config", "host.gpus", "host.gpu_count", "host.rdma",
    "host.net_devices", "host.memory_available_bytes", "host.memory_total_bytes", "host.memory_limit_bytes", "host.memlock_bytes", "host.max_map_count",
    "host.shm_total_bytes", "host.shm_free_bytes", "host.nofile", "host.ephemeral_ports", "host.clock_offset_s", "host.modules", "host.kernel",
    "host.pid_namespace", "host.port.8000", f"reach.{P}.side_channel", f"reach.{P}.http", "policy", "retries", "deadline_s", "prefill_timeout_s",
    "breaker_threshold", "breaker_recovery_s", "breaker_counts_4xx", "scrape_interval_s", "staleness_limit_s", "reachable", "local_hostname", "ha_mode",
    "client_ttl_s", "restart_time_s", "segment_total_bytes", "segment_free_bytes", "environment", "num_gpu_blocks", "disaggregation_bootstrap_port",
)  # fmt: skip


@pytest.mark.parametrize("check", OURS, ids=lambda check: check.meta.id)
def test_junk(check: Check) -> None:
    draw = random.Random(check.meta.id)
    sound = engine("a", UCX_TLS="rc", host__rdma=rdma(), host__gpus=cards(70.0)) | {"policy": "kv", "retries": "1"}
    for _ in range(150):
        facts = {
            name: {k: v for k, v in sound.items() if v is not None}
            | {k: draw.choice(JUNK) for k in draw.sample(KEYS, 12)}
            for name in (P, D, "prefill-1", "router-0", "store-0")
        }
        workers = [worker(name, engine=draw.choice(("vllm", "sglang", None))) for name in facts]
        ((meta, found),) = run_preflight(view(workers=workers, facts=facts), [check])
        assert found
        assert {f.cause for f in found} <= set(meta.causes)
        assert all(m.why and m.fix for f in found for m in f.missing)


@pytest.mark.parametrize(
    ("tls", "says"),
    [
        ("", None),
        ("all", None),
        ("rc", True),
        ("tcp,rc_mlx5", True),
        ("srd", True),
        ("tcp,sm", False),
        ("^rc", None),
        ("^rc,ud,dc", False),
        ("^ib", False),
    ],
)
def test_whether_rdma_is_allowed(tls: str, says: bool | None) -> None:
    assert has_rdma(tls) is says


@pytest.mark.parametrize(
    ("tls", "says"),
    [("", True), ("all", True), ("tcp", False), ("cuda_ipc", True), ("^cuda_ipc", False), ("^tcp", True)],
)
def test_whether_a_transport_is_allowed(tls: str, says: bool) -> None:
    assert allows(tls, "cuda_ipc") is says


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST.", "::1", "[::1]"])
def test_loopback(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["10.127.0.1", "localhost.example.org", "::", "fe80::1", "1127.0.0.1", ""])
def test_no_loopback(address: str) -> None:
    assert not is_loopback(address)


def test_a_node_says_more_than_a_host_name() -> None:
    ctx = Context(seen(engine("pod-1", host__node="n1"), engine("pod-2", host__node="n1")))
    assert same_host(ctx, P, D) is True
    ctx = Context(seen(engine("same", host__node="n1"), engine("same", host__node="n2")))
    assert same_host(ctx, P, D) is False
    assert same_host(Context(seen(engine("a"), {})), P, D) is None


def test_a_variable_that_is_not_set_is_not_one_that_was_not_read() -> None:
    ctx = Context(seen(engine("a"), {"kv_connector": "NixlConnector", "PYTHONHASHSEED": "0"}))
    assert env(ctx, P, "UCX_TLS") == ""
    assert env(ctx, D, "UCX_TLS") is None


def test_what_is_no_number_holds_no_bound() -> None:
    facts = engine("a", host__nofile="nan", host__clock_offset_s="NaN")
    ctx = Context(seen(facts, engine("b")))
    assert amount(ctx, P, "host.nofile") is None
    assert amount(ctx, P, "host.clock_offset_s") is None


def test_lists_that_cannot_be_read_are_not_empty() -> None:
    ctx = Context(seen({"host.gpus": "{", "host.rdma": json.dumps([1])}, {"host.gpus": "[]", "host.rdma": "{}"}))
    assert (gpus(ctx, P), rdma_ports(ctx, P)) == (None, None)
    assert (gpus(ctx, D), rdma_ports(ctx, D)) == ((), ())
