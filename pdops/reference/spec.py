"""What a deployment consists of; plain data that command lines, manifests and drills are made from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pdops.errors import UsageError
from pdops.model.cluster import Role, Slo

LOOPBACK = "127.0.0.1"
_NO_SLO = Slo()


class Profile(StrEnum):
    """What the engines run on."""

    CPU = "cpu"
    GPU = "gpu"
    SIM = "sim"
    """Nothing: their pages come from one process that simulates all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """One engine. `kv_device` is the network device KV goes through; `gpus` are indices on its host; without a `max_num_seqs`
    of its own that of the deployment holds.

    `engine_id` is what peers know it by; a restart gets another one, because a peer cannot use what it knew of a dead
    engine for a new one of the same name.
    """

    id: str
    role: Role
    host: str
    port: int
    side_port: int
    engine_id: str
    namespace: str | None = None
    kv_device: str = "lo"
    blocks: int | None = None
    max_num_seqs: int | None = None
    gpus: tuple[int, ...] = ()
    zone: str | None = None
    extra: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSpec:
    """The router in front."""

    id: str = "router-0"
    kind: Literal["pdops", "vllm-router"] = "pdops"
    host: str = LOOPBACK
    port: int
    metrics_port: int | None = None
    policy: str = "round-robin"
    queue_limit: int = 1000
    fallback: Literal["none", "decode-only"] = "none"

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """The KV store's master. Bytes are per engine: memory it lends to the store, and its own copy buffer.

    Engines are started without it while it is `bypassed`.
    """

    id: str = "store-0"
    host: str = LOOPBACK
    rpc_port: int
    metrics_port: int
    http_port: int
    namespace: str | None = None
    segment_bytes: int = 256 << 20
    buffer_bytes: int = 128 << 20
    bypassed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A program that watches the deployment."""

    id: Literal["exporter", "prometheus", "alertmanager"]
    host: str = LOOPBACK
    port: int

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSpec:
    """A whole deployment. `model` is a checkpoint folder or a name; lease in seconds, lengths in tokens."""

    name: str
    profile: Profile
    model: str
    served_model: str
    engines: tuple[EngineSpec, ...]
    router: RouterSpec | None = None
    store: StoreSpec | None = None
    block_size: int = 32
    max_model_len: int = 1024
    max_num_seqs: int = 16
    tensor_parallel_size: int = 1
    lease_s: int = 30
    kv_load_failure_policy: Literal["fail", "recompute"] = "fail"
    dtype: str = "float32"
    otlp_endpoint: str | None = None
    slo: Slo = _NO_SLO
    kv_bytes_per_token: int | None = None
    plugin: bool = False
    services: tuple[ServiceSpec, ...] = ()

    def prefills(self) -> tuple[EngineSpec, ...]:
        """Return the prefill engines."""
        return tuple(e for e in self.engines if e.role is Role.PREFILL)

    def decodes(self) -> tuple[EngineSpec, ...]:
        """Return the decode engines."""
        return tuple(e for e in self.engines if e.role is Role.DECODE)

    def engine(self, engine_id: str) -> EngineSpec:
        """Return the engine of that worker id.

        Raises:
            UsageError: there is none.
        """
        for engine in self.engines:
            if engine.id == engine_id:
                return engine
        raise UsageError(
            f"no engine {engine_id!r}", where=self.name, hint=f"it has {', '.join(e.id for e in self.engines)}"
        )

    def ids(self) -> tuple[str, ...]:
        """Return the ids of everything that runs, in the order it is started."""
        store = (self.store.id,) if self.store is not None else ()
        router = (self.router.id,) if self.router is not None else ()
        return (*store, *(e.id for e in (*self.prefills(), *self.decodes())), *router)
