"""Make a deployment's plan from what a user asks for."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Literal

from pdops.errors import DeploymentError, UsageError
from pdops.model.cluster import Role, Slo
from pdops.reference import model, services
from pdops.reference.ports import port_free
from pdops.reference.spec import LOOPBACK, DeploymentSpec, EngineSpec, Profile, RouterSpec, ServiceSpec, StoreSpec
from pdops.telemetry.tracing import traces_url

CPU_SLO = Slo(ttft_s=1.5, itl_s=0.15, percentile=0.95, attainment=0.95)
"""About three times what a healthy 1P1D pair of the tiny model needs on two quiet cores."""
_BELOW_EPHEMERAL = range(20_000, 32_000)
"""Linux takes ports of outgoing connections from 32768 on."""
_RANDOM = random.SystemRandom()
MOST_ENGINES = 64
LEASE_S = 30
"""Seconds that prefill keeps KV nobody fetches, where nothing else is asked for; what vLLM itself has."""
_BLOCKS = {Role.PREFILL: 1000, Role.DECODE: 400}
"""KV blocks of an engine on CPU: 32 and 13 MiB of the tiny model's KV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user asks for; None is the profile's own default."""

    name: str = "default"
    profile: Profile = Profile.CPU
    prefill: int = 1
    decode: int = 1
    model: str | None = None
    served_model: str | None = None
    tensor_parallel_size: int = 1
    gpus: tuple[int, ...] | None = None
    kv_store: str = "none"
    network: str = "loopback"
    router: str = "pdops"
    policy: str = "round-robin"
    router_port: int | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    decode_blocks: int | None = None
    prefill_blocks: int | None = None
    prefill_seqs: int | None = None
    lease_s: int | None = None
    ttft_s: float | None = None
    itl_s: float | None = None
    otlp_endpoint: str | None = None
    plugin: bool = False
    exporter: bool = False
    monitoring: bool = False


def plan(
    wish: Wish, model_dir: str, addresses: dict[str, str] | None = None, *, started_here: bool = True
) -> DeploymentSpec:
    """Return the plan: ports from the operating system, one worker id a number.

    Args:
        wish: what was asked for.
        model_dir: where the generated model of the CPU profile is or will be.
        addresses: worker id to address, where workers have network namespaces of their own.
        started_here: whether it is to run on this host; else it is only written down as manifests.

    Raises:
        UsageError: the wishes contradict each other.
        DeploymentError: a port that was asked for is taken.
    """
    check(wish, started_here=started_here)
    cpu = wish.profile is Profile.CPU
    ids = [(f"prefill-{i}", Role.PREFILL) for i in range(wish.prefill)]
    ids += [(f"decode-{i}", Role.DECODE) for i in range(wish.decode)]
    gpus = _gpus(wish, len(ids))
    ports = free_ports(2 * len(ids) + 5)
    engines = []
    for number, (worker, role) in enumerate(ids):
        blocks = wish.prefill_blocks if role is Role.PREFILL else wish.decode_blocks
        engines.append(
            EngineSpec(
                id=worker,
                role=role,
                host=(addresses or {}).get(worker, LOOPBACK),
                port=ports.pop(),
                side_port=ports.pop(),
                engine_id=worker,
                namespace=worker if addresses else None,
                kv_device="kv" if addresses else "lo",
                blocks=blocks or (_BLOCKS[role] if cpu else None),
                max_num_seqs=wish.prefill_seqs if role is Role.PREFILL else None,
                gpus=gpus[number],
            )
        )
    if wish.router_port is not None:
        _free(wish.router_port)
    slo = CPU_SLO if cpu else Slo()
    return DeploymentSpec(
        name=wish.name,
        profile=wish.profile,
        model=wish.model or model_dir,
        served_model=wish.served_model or (model.NAME if cpu and wish.model is None else str(wish.model)),
        engines=tuple(engines),
        router=_router(wish, ports),
        store=_store(wish, ports, addresses),
        block_size=wish.block_size or (32 if cpu else 16),
        max_model_len=wish.max_model_len or (1024 if cpu else 8192),
        max_num_seqs=16 if cpu else 256,
        tensor_parallel_size=wish.tensor_parallel_size,
        lease_s=wish.lease_s if wish.lease_s is not None else LEASE_S,
        dtype="float32" if cpu else "auto",
        # Engines post to the address as it is given, and a collector takes traces at a path of their own.
        otlp_endpoint=None if wish.otlp_endpoint is None else traces_url(wish.otlp_endpoint),
        slo=Slo(ttft_s=wish.ttft_s or slo.ttft_s, itl_s=wish.itl_s or slo.itl_s),
        plugin=wish.plugin and started_here,
        services=_services(wish) if started_here else (),
        kv_bytes_per_token=model.KV_BYTES_PER_TOKEN if cpu and wish.model is None else None,
    )


def service_names(wish: Wish) -> list[Literal["exporter", "prometheus", "alertmanager"]]:
    """Return what is wanted beside the engines, in the order it starts."""
    names: list[Literal["exporter", "prometheus", "alertmanager"]] = []
    if wish.exporter:
        names.append("exporter")
    if wish.monitoring:
        names += ["alertmanager", "prometheus"]
    return names


def _services(wish: Wish) -> tuple[ServiceSpec, ...]:
    names = service_names(wish)
    return tuple(ServiceSpec(id=name, port=port) for name, port in zip(names, free_ports(len(names)), strict=True))


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """Return free ports; all are held until the last is known, so they differ.

    They lie below the range of outgoing connections, any of which could take one while an engine loads.
    """
    with ExitStack() as stack:
        ports: list[int] = []
        for wanted in (*_RANDOM.sample(_BELOW_EPHEMERAL, min(len(_BELOW_EPHEMERAL), 50 * count)), *([0] * count)):
            if len(ports) == count:
                break
            holder = stack.enter_context(socket.socket())
            with suppress(OSError):
                holder.bind((host, wanted))
                ports.append(int(holder.getsockname()[1]))
        return ports


def check(wish: Wish, *, started_here: bool = True) -> None:
    """Look whether wishes can be fulfilled together, before anything is built for them.

    Raises:
        UsageError: they contradict each other, or the OTLP endpoint is no address.
    """
    if started_here:
        _check_host(wish)
    if wish.otlp_endpoint is not None:
        traces_url(wish.otlp_endpoint)
    if wish.prefill < 1 or wish.decode < 1:
        raise UsageError(
            "a prefill/decode deployment needs both roles",
            why=f"asked for {wish.prefill} prefill and {wish.decode} decode",
            hint="--prefill 1 --decode 1 is the smallest",
        )
    if wish.prefill + wish.decode > MOST_ENGINES:
        raise UsageError(
            f"{wish.prefill + wish.decode} engines are too many for one host",
            why=f"the most is {MOST_ENGINES}",
            hint="render manifests for a cluster: pdops up --render DIR",
        )
    if wish.profile is Profile.GPU and wish.model is None:
        raise UsageError("the gpu profile needs a model", hint="for example --model Qwen/Qwen3-8B")
    if wish.gpus is not None and len(set(wish.gpus)) < len(wish.gpus):
        twice = next(n for n in wish.gpus if wish.gpus.count(n) > 1)
        raise UsageError(
            f"GPU {twice} is named twice",
            why="each engine takes GPUs of its own",
            hint="name each once, as --gpus 0,1",
        )
    if wish.profile is Profile.CPU and wish.tensor_parallel_size != 1:
        raise UsageError(
            "the cpu profile runs without tensor parallelism", hint="leave --tp out, or take --profile gpu"
        )
    if wish.profile is Profile.CPU and (wish.block_size or 32) % 32:
        raise UsageError(
            f"a block size of {wish.block_size} tokens does not work on CPU",
            why="CPU attention takes multiples of 32",
            hint="for example --block-size 64",
        )


def _check_host(wish: Wish) -> None:
    if wish.monitoring and not wish.exporter:
        raise UsageError(
            "--monitoring needs the exporter",
            why="the rules ask for what it serves",
            hint="leave out --no-exporter, or --monitoring",
        )
    if wish.monitoring and (absent := services.missing(("prometheus", "alertmanager"))):
        raise UsageError(
            f"--monitoring needs {' and '.join(absent)}",
            why="not installed",
            hint="install it (Debian: apt install prometheus prometheus-alertmanager), or leave out --monitoring",
        )
    if wish.kv_store != "none" and wish.network != "namespaces":
        raise UsageError(
            "the KV store needs --network namespaces",
            why="Mooncake's transfer engine listens on all addresses whatever it is told",
            hint="add --network namespaces, or take --kv-store none",
        )
    if wish.kv_store != "none" and wish.profile is Profile.GPU:
        raise UsageError("the KV store is part of the cpu profile only", hint="take --kv-store none")


def _gpus(wish: Wish, engines: int) -> list[tuple[int, ...]]:
    if wish.profile is Profile.CPU:
        return [()] * engines
    size = wish.tensor_parallel_size
    have = wish.gpus if wish.gpus is not None else tuple(range(size * engines))
    if len(have) < size * engines:
        raise UsageError(
            f"{size * engines} GPUs are needed",
            why=f"{engines} engines with --tp {size}; --gpus names {len(have)}",
            hint="name more GPUs, or start fewer engines",
        )
    return [have[i * size : (i + 1) * size] for i in range(engines)]


def _router(wish: Wish, ports: list[int]) -> RouterSpec | None:
    if wish.router == "none":
        return None
    kind = "vllm-router" if wish.router == "vllm-router" else "pdops"
    port = wish.router_port if wish.router_port is not None else ports.pop()
    # The other router serves its metrics on a port of their own.
    metrics = ports.pop() if kind == "vllm-router" else None
    return RouterSpec(kind=kind, port=port, metrics_port=metrics, policy=wish.policy)  # type: ignore[arg-type]


def _store(wish: Wish, ports: list[int], addresses: dict[str, str] | None) -> StoreSpec | None:
    if wish.kv_store == "none":
        return None
    host = (addresses or {}).get("store-0", LOOPBACK)
    namespace = "store-0" if addresses else None
    return StoreSpec(
        host=host, namespace=namespace, rpc_port=ports.pop(), metrics_port=ports.pop(), http_port=ports.pop()
    )


def _free(port: int) -> None:
    if not port_free(LOOPBACK, port):
        raise DeploymentError(
            f"port {port} cannot be used",
            where=f"{LOOPBACK}:{port}",
            why="somebody listens there",
            hint="leave --router-port out to take a free one, or stop what listens there",
        )
