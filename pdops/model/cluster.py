"""What a cluster is made of: roles, workers, pools, pairs and what is promised to clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

CLIENT = "client"
"""Signal key for what clients see; measured at the router or gateway."""
ROUTER = "router"
"""Signal key for what the router says about itself."""
POOL_PREFIX = "pool:"
PAIR_PREFIX = "pair:"


class Role(StrEnum):
    """What a worker does."""

    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"
    KVSTORE = "kvstore"
    COLOCATED = "colocated"


@dataclass(frozen=True, slots=True)
class Secret:
    """References to secrets; the values are read at the moment of use and never kept here."""

    bearer_token_file: str | None = None
    username: str | None = None
    password_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One page of metrics of a worker. `engine` is a key of the catalog's engines, or None until it is detected."""

    url: str
    engine: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One engine instance, router or store. `url` is the serving address, or None for a case file."""

    id: str
    role: Role
    pool: str
    url: str | None = None
    endpoints: tuple[Endpoint, ...] = ()
    engine: str | None = None
    version: str | None = None
    node: str | None = None
    zone: str | None = None
    logs: tuple[Mapping[str, str], ...] = field(default=(), hash=False)
    secret: Secret = Secret()


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """A prefill worker and the decode worker that pulls its KV."""

    src: str
    dst: str

    def __str__(self) -> str:
        return f"{self.src}>{self.dst}"

    @property
    def key(self) -> str:
        """The signal key of this pair."""
        return f"{PAIR_PREFIX}{self.src}>{self.dst}"

    @classmethod
    def parse(cls, text: str) -> Pair:
        """Read `P>D`, with or without the `pair:` prefix.

        Raises:
            ValueError: the text names no pair.
        """
        src, sep, dst = text.removeprefix(PAIR_PREFIX).partition(">")
        if not (sep and src and dst):
            raise ValueError(f"not a pair: {text!r}; expected PREFILL>DECODE")
        return cls(src, dst)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What is promised: `percentile` (0-1) of requests within `ttft_s`, of token gaps within `itl_s` (seconds)."""

    ttft_s: float | None = None
    itl_s: float | None = None
    percentile: float = 0.95
    attainment: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The inventory: who is there, in which pool, under which promise."""

    name: str
    workers: tuple[Worker, ...]
    slo: Slo = Slo()
    model: str | None = None
    kv_bytes_per_token: float | None = None
    link_bytes_per_s: float | None = None
    _by_id: Mapping[str, Worker] = field(init=False, repr=False, compare=False, default_factory=dict)
    _by_role: Mapping[Role, tuple[Worker, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _by_pool: Mapping[str, tuple[Worker, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        roles: dict[Role, list[Worker]] = {}
        pools: dict[str, list[Worker]] = {}
        for worker in self.workers:
            roles.setdefault(worker.role, []).append(worker)
            pools.setdefault(worker.pool, []).append(worker)
        object.__setattr__(self, "_by_id", MappingProxyType({w.id: w for w in self.workers}))
        object.__setattr__(self, "_by_role", MappingProxyType({role: tuple(ws) for role, ws in roles.items()}))
        object.__setattr__(self, "_by_pool", MappingProxyType({pool: tuple(ws) for pool, ws in pools.items()}))

    def get(self, worker_id: str) -> Worker | None:
        """Return the worker of that id, or None."""
        return self._by_id.get(worker_id)

    def of_role(self, *roles: Role) -> tuple[Worker, ...]:
        """Return the workers of these roles, in inventory order."""
        if len(roles) == 1:
            return self._by_role.get(roles[0], ())
        return tuple(w for w in self.workers if w.role in roles)

    def of_pool(self, pool: str) -> tuple[Worker, ...]:
        """Return the workers of a pool, in inventory order."""
        return self._by_pool.get(pool, ())

    def pools(self, role: Role | None = None) -> tuple[str, ...]:
        """Return pool names in inventory order, of one role or of all."""
        return tuple(self._by_pool) if role is None else _unique(w.pool for w in self.of_role(role))

    def pairs(self) -> tuple[Pair, ...]:
        """Return every (prefill, decode) pair."""
        return tuple(Pair(p.id, d.id) for p in self.of_role(Role.PREFILL) for d in self.of_role(Role.DECODE))


def pool_key(pool: str) -> str:
    """Return the signal key of a pool."""
    return f"{POOL_PREFIX}{pool}"


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
