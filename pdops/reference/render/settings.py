"""Versions, ports, sizes and budgets of rendered manifests."""

from __future__ import annotations

from dataclasses import dataclass, field

from pdops.sequence.stages import order

API_PORT = 8000
SIDE_PORT = 5600
ROUTER_PORT = 8080
EXPORTER_PORT = 9108
STORE_RPC_PORT = 50051
STORE_METRICS_PORT = 9003
"""Ports inside containers; every container has an address of its own, so they may be the well-known ones."""

SHUTDOWN_S = 30
"""What an engine gets after SIGTERM, over the time its drain takes."""
LEASE_FACTOR = 1.5
"""How much longer than the KV lease a prefill engine stays once it is idle, for pulls that began late in the lease."""
GENERATION_S = 600
"""The longest answer a drain waits for; the router's own limit for an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Container images, pinned by version.

    The engine's holds NIXL and Mooncake's client; ours is built from the rendered Dockerfile on `python`.
    """

    engine: str = "vllm/vllm-openai:v0.32.0"
    pdops: str = "pdops:0.1.0"
    python: str = "python:3.11.13-slim-bookworm"
    prometheus: str = "prom/prometheus:v2.55.1"
    alertmanager: str = "prom/alertmanager:v0.27.0"
    grafana: str = "grafana/grafana:11.6.1"
    mooncake: str = "0.3.13.post1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What may be chosen beside the deployment itself.

    `exporter` adds the exporter's container. `cpus` and `memory_gib` are asked for per GPU. `rdma_resource` is the name
    that a device plugin gives RDMA devices.
    """

    exporter: bool = True
    images: Images = field(default_factory=Images)
    cpus: int = 8
    memory_gib: int = 64
    shm_gib: int = 8
    cache_gib: int = 200
    rdma_resource: str = "rdma/hca"
    monitoring_namespace: str = "monitoring"


def budget_s(stage: str) -> int:
    """Return how long a stage of the cold start may take, in seconds, from the order that `pdops up` follows."""
    return int(order("cold-start").get(stage).budget_s)


def successes(stage: str) -> int:
    """Return how many good answers in a row make a stage ready."""
    return order("cold-start").get(stage).successes


def drain_budget_s(stage: str) -> int:
    """Return how long a stage of the drain may take, in seconds, from the order that `pdops down` follows."""
    return int(order("drain").get(stage).budget_s)


def linger_s(lease_s: int) -> int:
    """Return how long an idle prefill engine stays, in seconds, for KV that a decode engine may still pull."""
    return round(lease_s * LEASE_FACTOR)
