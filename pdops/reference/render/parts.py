"""What compose and Kubernetes share: an engine's command and settings inside a container, the router's, the inventory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from pdops.model.cluster import Role
from pdops.reference import engines, store
from pdops.reference.render.settings import (
    API_PORT,
    EXPORTER_PORT,
    GENERATION_S,
    ROUTER_PORT,
    SIDE_PORT,
    STORE_METRICS_PORT,
    STORE_RPC_PORT,
    Images,
    drain_budget_s,
    linger_s,
    successes,
)
from pdops.reference.spec import DeploymentSpec, EngineSpec

Address = Callable[[str], str]
"""Worker id to the host name that other containers reach it at."""

STORE_CLIENT_HOST = "MOONCAKE_REQUESTER_LOCAL_HOSTNAME"
"""The setting that says where other store clients reach this one."""
GATE = "/opt/pdops/gate.py"
CACHE = "/cache"
STORE_CONFIG = "/etc/pdops/mooncake.json"
ANY = "0.0.0.0"  # noqa: S104  inside a container, whose address is reachable from its own network only
LOCAL = f"http://127.0.0.1:{API_PORT}"
_PER_KIND = ("VLLM_HOST_IP", "VLLM_NIXL_SIDE_CHANNEL_HOST", "OTEL_SERVICE_NAME")
"""Settings whose value only the kind of manifest knows how to give."""


def engine_words(spec: DeploymentSpec, engine: EngineSpec) -> list[str]:
    """Return the command line of an engine in a container: the one `pdops up` uses, but for addresses and identity.

    Without an engine id the engine makes a new one at each start, which is what its peers need after a restart.
    """
    inside = _inside(engine)
    words = engines.command(spec, inside, Path("python3"))
    config: dict[str, Any] = engines.kv_transfer(spec, inside)
    anonymous = {k: v for k, v in config.items() if k != "engine_id"}
    option = "--kv-transfer-config="
    return [option + json.dumps(anonymous) if w.startswith(option) else w for w in words]


def engine_environment(spec: DeploymentSpec, engine: EngineSpec) -> dict[str, str]:
    """Return an engine's settings in a container, without those that name its own address or id."""
    paths = engines.Paths(logs=Path(CACHE), cache=Path(CACHE, "vllm"))
    mine = engines.environment(spec, _inside(engine), {}, paths)
    kept = {k: v for k, v in mine.items() if k not in _PER_KIND}
    # The image's user has no entry in its list of users, so name and home are told.
    home = {"HOME": CACHE, "USER": "vllm", "HF_HOME": f"{CACHE}/huggingface", "HF_TOKEN_PATH": "/run/secrets/hf_token"}
    shared = store.client_environment(STORE_CONFIG) if spec.store is not None else {}
    return {**kept, **home, **shared}


def local_model(spec: DeploymentSpec) -> str | None:
    """Return the folder of the model, or None when it is a name that the engine downloads."""
    return spec.model if spec.model.startswith("/") else None


def gate(*words: str) -> list[str]:
    """Return the command line of our own readiness and drain program."""
    return ["python3", "-I", GATE, *words]


def ready_words(spec: DeploymentSpec, role: Role, *, times: int) -> list[str]:
    """Return the command that tells whether an engine is ready: serves the model, is counted, takes handshakes."""
    words = ["ready", f"--url={LOCAL}", f"--model={spec.served_model}", f"--times={times}"]
    # Decode engines call; prefill engines are called.
    return gate(*words, *([f"--side-channel=:{SIDE_PORT}"] if role is Role.PREFILL else []))


def needed_in_a_row(role: Role) -> int:
    """Return how many good answers in a row make an engine ready."""
    return successes(role.value)


def drain_s(spec: DeploymentSpec, role: Role) -> tuple[int, int]:
    """Return how long an engine waits to be idle, and how long it stays after that, in seconds.

    Prefill stays 1.5 KV leases because decode may still pull; decode ends once nothing runs.
    """
    if role is Role.PREFILL:
        return drain_budget_s("prefill-idle"), linger_s(spec.lease_s)
    return drain_budget_s("decode-idle"), 0


def cordon_words(router_url: str, worker: str) -> list[str]:
    """Return the options with which an engine takes itself out of the router and back in."""
    return [f"--router={router_url}", f"--worker={worker}", "--token-file=/run/secrets/router_admin_token"]


def router_words(spec: DeploymentSpec, address: Address) -> list[str]:
    """Return the router's command line; empty without a router."""
    router = spec.router
    if router is None:
        return []
    settings: dict[str, object] = {
        "host": ANY,
        "port": ROUTER_PORT,
        "policy": router.policy,
        "queue-limit": router.queue_limit,
        "fallback": router.fallback,
        "admin-token-file": "/run/secrets/router_admin_token",
        "state": "/var/lib/pdops/workers.json",
        "block-size": spec.block_size,
        "max-inflight-prefill": spec.max_num_seqs,
        "max-inflight-decode": spec.max_num_seqs,
        "drain-timeout": GENERATION_S,
    }
    optional = {
        "kv-bytes-per-token": spec.kv_bytes_per_token,
        "slo-ttft": spec.slo.ttft_s,
        "slo-itl": spec.slo.itl_s,
        "otlp": spec.otlp_endpoint,
    }
    settings |= {k: v for k, v in optional.items() if v is not None}
    workers = [
        f"--{e.role.value}={e.id}=http://{address(e.id)}:{API_PORT}" + (f",zone={e.zone}" if e.zone else "")
        for e in (*spec.prefills(), *spec.decodes())
    ]
    return ["python3", "-m", "pdops.router", *(f"--{k}={v}" for k, v in settings.items()), *workers]


def exporter_words() -> list[str]:
    """Return the exporter's command line."""
    return ["pdops", "exporter", "-c", "/etc/pdops/pdops.yaml", f"--host={ANY}", f"--port={EXPORTER_PORT}"]


def store_words(spec: DeploymentSpec) -> list[str]:
    """Return the command line of the KV store's master."""
    return store.command(_with_store(spec, ANY), Path())


def store_ready_words(times: int) -> list[str]:
    """Return the command that tells whether the store's master serves; an object is only proved by the engines."""
    page = f"http://127.0.0.1:{STORE_METRICS_PORT}/health"
    return gate("http", page, '--contains="service_ready":true', f"--times={times}")


def store_client(spec: DeploymentSpec, host: str) -> str:
    """Return the configuration of the store's clients, which run inside the engines."""
    return json.dumps(store.config(_with_store(spec, host)), indent=2) + "\n"


def inventory(spec: DeploymentSpec, address: Address) -> dict[str, Any]:
    """Return the inventory that `pdops -c` takes, with addresses as containers see them."""
    workers: list[dict[str, Any]] = [
        {
            "id": e.id,
            "role": e.role.value,
            "pool": e.role.value,
            "url": f"http://{address(e.id)}:{API_PORT}",
            "engine": "vllm",
            **({"zone": e.zone} if e.zone else {}),
        }
        for e in (*spec.prefills(), *spec.decodes())
    ]
    if spec.router is not None:
        host = address(spec.router.id)
        workers.append(
            {"id": spec.router.id, "role": "router", "url": f"http://{host}:{ROUTER_PORT}", "engine": "pdops_router"}
        )
    if spec.store is not None:
        url = f"http://{address(spec.store.id)}:{STORE_METRICS_PORT}"
        workers.append({"id": spec.store.id, "role": "kvstore", "url": url, "engine": "mooncake"})
    model: dict[str, Any] = {"name": spec.served_model}
    if spec.kv_bytes_per_token is not None:
        model["kv_bytes_per_token"] = spec.kv_bytes_per_token
    slo = {k: v for k, v in (("ttft_s", spec.slo.ttft_s), ("itl_s", spec.slo.itl_s)) if v is not None}
    promised = {**slo, "percentile": spec.slo.percentile, "attainment": spec.slo.attainment}
    return {"version": 1, "cluster": spec.name, "model": model, "slo": promised, "workers": workers}


def gate_text() -> str:
    """Return our readiness and drain program, which runs inside images that are not ours."""
    return resources.files("pdops.reference.render").joinpath("files", "gate.py").read_text(encoding="utf-8")


def images(pins: Images, spec: DeploymentSpec) -> dict[str, str]:
    """Return files to build the images that no registry has, by path below the folder `images/`."""
    ours = f"""\
# pdops with its router. Put a wheel of it beside this file before you build.
FROM {pins.python}
COPY *.whl /wheels/
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels \\
 && useradd --uid 1000 --no-create-home pdops && install -d -o pdops /var/lib/pdops
USER 1000
"""
    store = f"""\
# The master of the KV store; its clients are in the engines' image.
FROM {pins.python}
RUN apt-get update && apt-get install -y --no-install-recommends libibverbs1 librdmacm1 libnuma1 libcurl4 liburing2 \\
 && rm -rf /var/lib/apt/lists/* && pip install --no-cache-dir mooncake-transfer-engine-non-cuda=={pins.mooncake}
USER 1000
"""
    return {"pdops/Dockerfile": ours} | ({"store/Dockerfile": store} if spec.store is not None else {})


def _with_store(spec: DeploymentSpec, host: str) -> DeploymentSpec:
    assert spec.store is not None, "this deployment has no KV store"
    inside = replace(spec.store, host=host, rpc_port=STORE_RPC_PORT, metrics_port=STORE_METRICS_PORT)
    return replace(spec, store=inside)


def _inside(engine: EngineSpec) -> EngineSpec:
    # A container sees only the GPUs it is given, numbered from zero, so the host's numbers mean nothing in it.
    return replace(engine, host=ANY, port=API_PORT, side_port=SIDE_PORT, gpus=(), namespace=None)
