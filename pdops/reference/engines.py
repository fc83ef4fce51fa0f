"""What an engine is started with: its command line and its whole environment, as data."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdops.model.cluster import Role
from pdops.reference import plugin, store
from pdops.reference.spec import LOOPBACK, DeploymentSpec, EngineSpec, Profile

SITE = Path(__file__).parent / "engine_site"
_OURS = ("PYTHON", "VLLM_", "UCX_", "NIXL_", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "OTEL_", "MC_", "MOONCAKE_")
"""Prefixes of settings that must not leak from our environment into an engine's."""
_KV_ROLE = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_ON_CPU = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "UCX_TLS": "tcp,self",
}


@dataclass(frozen=True, slots=True)
class Paths:
    """Folders an engine uses: logs, the compile cache, files of the store's configuration, and the plugin."""

    logs: Path
    cache: Path
    store: Path | None = None
    plugin: Path | None = None


def kv_transfer(spec: DeploymentSpec, engine: EngineSpec) -> dict[str, Any]:
    """Return the KV transfer configuration of an engine."""
    extra: dict[str, Any] = {"kv_lease_duration": spec.lease_s}
    config: dict[str, Any] = {
        "kv_connector": "NixlConnector",
        "kv_role": _KV_ROLE[engine.role],
        "engine_id": engine.engine_id,
        "kv_load_failure_policy": spec.kv_load_failure_policy,
        "kv_connector_extra_config": extra,
    }
    if spec.plugin:
        config |= {"kv_connector": plugin.CONNECTOR, "kv_connector_module_path": plugin.MODULE}
    if spec.profile is Profile.CPU:
        # Without threads of its own NIXL has one progress thread, the one whose pace engine_site sets.
        extra["num_threads"] = 0
        config["kv_buffer_device"] = "cpu"
    return config if spec.store is None or spec.store.bypassed else store.beside(config, engine)


def command(spec: DeploymentSpec, engine: EngineSpec, python: Path) -> list[str]:
    """Return the command line of an engine."""
    settings: dict[str, object] = {
        "host": engine.host,
        "port": engine.port,
        "model": spec.model,
        "served-model-name": spec.served_model,
        "dtype": spec.dtype,
        "max-model-len": spec.max_model_len,
        "max-num-seqs": engine.max_num_seqs or spec.max_num_seqs,
        "block-size": spec.block_size,
        "kv-transfer-config": json.dumps(kv_transfer(spec, engine)),
        "kv-cache-metrics-sample": 1.0,
    }
    flags = ["--enable-prompt-tokens-details", "--kv-cache-metrics"]
    if engine.blocks is not None:
        settings["num-gpu-blocks-override"] = engine.blocks
    if spec.tensor_parallel_size != 1:
        settings["tensor-parallel-size"] = spec.tensor_parallel_size
    if spec.otlp_endpoint is not None:
        settings["otlp-traces-endpoint"] = spec.otlp_endpoint
    if spec.profile is Profile.CPU:
        flags.insert(0, "--enforce-eager")
    # The `vllm` command looks for a distribution called "vllm", which the CPU build is not.
    start = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    return [*start, *flags, *(f"--{k}={v}" for k, v in settings.items()), *engine.extra]


def environment(spec: DeploymentSpec, engine: EngineSpec, base: Mapping[str, str], paths: Paths) -> dict[str, str]:
    """Return the whole environment: `base` without Python, engine and transport settings, and what the engine needs."""
    kept = {k: v for k, v in base.items() if not k.startswith(_OURS)}
    mine = {
        "VLLM_HOST_IP": LOOPBACK if engine.namespace is not None else engine.host,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": engine.host,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(engine.side_port),
        "VLLM_CACHE_ROOT": str(paths.cache),
    }
    ours = [str(paths.plugin)] if spec.plugin and paths.plugin is not None else []
    if spec.profile is Profile.CPU:
        ours.insert(0, str(SITE))
        mine |= {**_OFFLINE, **_ON_CPU, "UCX_NET_DEVICES": engine.kv_device}
    elif engine.gpus:
        mine["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, engine.gpus))
    if ours:
        mine["PYTHONPATH"] = os.pathsep.join(ours)
    if spec.otlp_endpoint is not None:
        mine |= {"OTEL_SERVICE_NAME": engine.id, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    if spec.store is not None and paths.store is not None:
        mine |= store.environment(engine, paths.store)
    return {**kept, **_QUIET, **mine}
