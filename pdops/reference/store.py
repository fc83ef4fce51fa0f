"""The KV store tier beside NIXL: the master's command line and what each engine is told, as data.

Mooncake's master keeps names only; the memory is the engines', each lends a segment. Their clients listen on all addresses
whatever they are told, so a deployment with a store lives in network namespaces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pdops.errors import DeploymentError
from pdops.reference.netlinks import kv_beside
from pdops.reference.spec import DeploymentSpec, EngineSpec, StoreSpec

HASH_SEED = "0"
"""Names of blocks in the store are hashes; engines share them only when all hash alike."""
CONNECTOR = "MooncakeStoreConnector"
RPC_TIMEOUT_MS = 2000
"""The longest a call to the master waits. Mooncake's own 30 s, in each look-up of a prompt, are an engine that stands still
while its master hangs; a call takes about a millisecond, but both sides may share two busy cores."""


def command(spec: DeploymentSpec, bin_dir: Path) -> list[str]:
    """Return the command line of the master.

    Args:
        spec: a deployment with a store.
        bin_dir: the folder of the engine environment's programs.
    """
    store = _store(spec)
    settings: dict[str, object] = {
        "rpc_address": store.host,
        "rpc_port": store.rpc_port,
        "metrics_host": store.host,
        "metrics_port": store.metrics_port,
        "enable_metric_reporting": "false",
        "logtostderr": "true",
    }
    return [str(bin_dir / "mooncake_master"), *(f"--{name}={value}" for name, value in settings.items())]


def master(store: StoreSpec) -> str:
    """Return address and port of the master's RPC."""
    return f"{store.host}:{store.rpc_port}"


def standin(store: StoreSpec) -> str:
    """Return the id of the process that stands in for the master."""
    return f"{store.id}.standin"


def health_url(store: StoreSpec) -> str:
    """Return where the master says whether it serves."""
    return f"http://{store.host}:{store.metrics_port}/health"


def client_address(host: str, namespace: str | None) -> str:
    """Return where other clients reach the store client of a worker: KV goes over the KV links where there are any."""
    return host if namespace is None else kv_beside(host)


def config(spec: DeploymentSpec) -> dict[str, object]:
    """Return the store's settings of an engine, as its connector reads them from a file."""
    store = _store(spec)
    return {
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": master(store),
        "protocol": "tcp",
        "device_name": "",
        "mode": "embedded",
        # Left out, an engine would lend 4 GiB and take 4 more for copies.
        "global_segment_size": store.segment_bytes,
        "local_buffer_size": store.buffer_bytes,
    }


def config_file(engine: EngineSpec, folder: Path) -> Path:
    """Return the file of an engine's settings."""
    return folder / f"{engine.id}.json"


def write_config(spec: DeploymentSpec, engine: EngineSpec, folder: Path) -> Path:
    """Write an engine's settings and return the file.

    Raises:
        DeploymentError: it cannot be written.
    """
    file = config_file(engine, folder)
    try:
        file.write_text(json.dumps(config(spec), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise DeploymentError(
            "cannot write the KV store's settings",
            where=str(file),
            why=error.strerror or str(error),
            hint="check the space left there, or give another folder with --state-dir",
        ) from error
    return file


def client_environment(settings: str) -> dict[str, str]:
    """Return what an engine's environment needs for the store wherever it runs; `settings` is the file of its settings."""
    waits = dict.fromkeys(("MC_RPC_TIMEOUT_MS", "MC_RPC_CONNECT_TIMEOUT_MS"), str(RPC_TIMEOUT_MS))
    return {"MOONCAKE_CONFIG_PATH": settings, "PYTHONHASHSEED": HASH_SEED, **waits}


def environment(engine: EngineSpec, folder: Path) -> dict[str, str]:
    """Return what an engine's environment needs for the store."""
    here = {"MOONCAKE_REQUESTER_LOCAL_HOSTNAME": client_address(engine.host, engine.namespace)}
    return client_environment(str(config_file(engine, folder))) | here


def beside(nixl: Mapping[str, Any], engine: EngineSpec) -> dict[str, Any]:
    """Return a KV transfer configuration with the store as second connector; the first one's loads win.

    Args:
        nixl: the configuration without a store; its engine id and failure policy hold for both connectors.
        engine: whose it is.
    """
    for_all = ("engine_id", "kv_load_failure_policy")
    # Engines of one host that share this name take over each other's socket, which lies in a folder they share.
    lookup = {"lookup_rpc_port": f"{engine.host}-{engine.side_port}"}
    return {
        "kv_connector": "MultiConnector",
        "kv_role": nixl["kv_role"],
        **{name: nixl[name] for name in for_all if name in nixl},
        "kv_connector_extra_config": {
            "connectors": [
                {name: value for name, value in nixl.items() if name not in for_all},
                {"kv_connector": CONNECTOR, "kv_role": "kv_both", "kv_connector_extra_config": lookup},
            ]
        },
    }


def _store(spec: DeploymentSpec) -> StoreSpec:
    assert spec.store is not None, "this deployment has no KV store"
    return spec.store
