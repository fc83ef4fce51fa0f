"""What the KV store's master and the engines beside it are told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pdops.errors import UsageError
from pdops.probe import store_object
from pdops.reference import engines, netlinks, store
from pdops.reference.profiles import Wish, plan
from pdops.reference.spec import DeploymentSpec

ADDRESSES = {"prefill-0": "10.74.3.2", "decode-0": "10.74.3.3", "store-0": "10.74.3.4"}


@pytest.fixture
def spec() -> DeploymentSpec:
    return plan(Wish(kv_store="mooncake", network="namespaces"), "/model", ADDRESSES)


def test_the_master_serves_at_its_own_address_only(spec: DeploymentSpec) -> None:
    assert spec.store is not None
    assert store.command(spec, Path("/env/bin")) == [
        "/env/bin/mooncake_master",
        "--rpc_address=10.74.3.4",
        f"--rpc_port={spec.store.rpc_port}",
        "--metrics_host=10.74.3.4",
        f"--metrics_port={spec.store.metrics_port}",
        "--enable_metric_reporting=false",
        "--logtostderr=true",
    ]


def test_an_engine_lends_what_the_plan_says(spec: DeploymentSpec, tmp_path: Path) -> None:
    assert spec.store is not None
    written = json.loads(store.write_config(spec, spec.engine("decode-0"), tmp_path).read_text())
    assert written == {
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": f"10.74.3.4:{spec.store.rpc_port}",
        "protocol": "tcp",
        "device_name": "",
        "mode": "embedded",
        "global_segment_size": 256 << 20,
        "local_buffer_size": 128 << 20,
    }


def test_both_connectors_share_identity_and_policy(spec: DeploymentSpec) -> None:
    prefill = spec.engine("prefill-0")
    assert engines.kv_transfer(spec, prefill) == {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_producer",
        "engine_id": "prefill-0",
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {
            "connectors": [
                {
                    "kv_connector": "NixlConnector",
                    "kv_role": "kv_producer",
                    "kv_connector_extra_config": {"kv_lease_duration": 30, "num_threads": 0},
                    "kv_buffer_device": "cpu",
                },
                {
                    "kv_connector": "MooncakeStoreConnector",
                    "kv_role": "kv_both",
                    "kv_connector_extra_config": {"lookup_rpc_port": f"10.74.3.2-{prefill.side_port}"},
                },
            ]
        },
    }


def test_look_ups_of_engines_on_one_host_have_sockets_of_their_own(spec: DeploymentSpec) -> None:
    children = [engines.kv_transfer(spec, e)["kv_connector_extra_config"]["connectors"][1] for e in spec.engines]
    assert len({c["kv_connector_extra_config"]["lookup_rpc_port"] for c in children}) == 2


def test_the_environment_names_the_kv_link(spec: DeploymentSpec) -> None:
    assert store.environment(spec.engine("prefill-0"), Path("/state/store")) == {
        "MOONCAKE_CONFIG_PATH": "/state/store/prefill-0.json",
        "MOONCAKE_REQUESTER_LOCAL_HOSTNAME": "10.75.3.2",
        "PYTHONHASHSEED": "0",
        "MC_RPC_TIMEOUT_MS": "2000",
        "MC_RPC_CONNECT_TIMEOUT_MS": "2000",
    }


def test_only_control_addresses_have_one_on_the_kv_link() -> None:
    with pytest.raises(UsageError):
        netlinks.kv_beside("192.0.2.1")


def test_the_probe_lends_memory_only_while_no_engine_does() -> None:
    call = store_object.command(Path("/env/bin/python"), "10.75.3.4", "10.74.3.4:1", alone=True)
    assert call[2:] == ["10.75.3.4", "10.74.3.4:1", str(16 << 20), str(1 << 20)]
    assert store_object.command(Path("p"), "a", "b", alone=False)[4] == "0"


@pytest.mark.parametrize(
    ("answer", "ok", "says"),
    [
        ((0, 'I1129 log\n{"ok": true, "step": "end", "why": "", "seconds": {"put": 0.005}}\n', ""), True, "put 5 ms"),
        (
            (0, '{"ok": false, "step": "put", "why": "put answers -200", "seconds": {}}', ""),
            False,
            "put: put answers -200",
        ),
        ((None, "", ""), False, "no answer within"),
        ((139, "", "boom\nSegmentation fault"), False, "status 139: Segmentation fault"),
        ((0, "[]", ""), False, "it says nothing"),
        ((0, '{"ok": false, "step": "import", "why": "libibverbs.so.1: cannot open"}', ""), False, "libibverbs1"),
    ],
)
def test_every_answer_of_the_probe_is_read(answer: tuple[int | None, str, str], ok: bool, says: str) -> None:
    def run(command: Sequence[str], timeout_s: float) -> tuple[int | None, str, str]:
        return answer

    result = store_object.check(["x"], run)
    assert result.ok is ok
    assert says in str(result)
