"""What each action is told, with every reference already replaced by its value."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pdops.model.cluster import Role
from pdops.sources.validate import Strict, Text

WorkerId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,63}$")]


class Nothing(Strict):
    """No parameters."""


class Advice(Strict):
    """What a person is told."""

    text: Text


class OfWorker(Strict):
    """An action on one worker."""

    worker: WorkerId


class OfStore(Strict):
    """An action on one KV store."""

    store: WorkerId


class OfRole(Strict):
    """An action on the pool of a role."""

    role: Literal[Role.PREFILL, Role.DECODE]


class Newcomer(OfRole):
    """A worker that comes to the pool of a role; a backend that does not choose names gives it another."""

    worker: WorkerId


class Drain(OfWorker):
    """Wait for a worker to be empty. KV of a prefill worker is waited for during `lease_s` seconds more."""

    lease_s: Annotated[float, Field(ge=0, le=3600)]


class Limit(Strict):
    """A limit of the router; requests a worker, or requests that wait."""

    limit: Literal["max_inflight_prefill", "max_inflight_decode", "queue_limit"]
    value: Annotated[int, Field(ge=1, le=1_000_000)]


class Policy(Strict):
    """How the router chooses pairs."""

    value: Literal["round-robin", "least-loaded", "prefix-affinity", "zone-aware"]


class Share(Strict):
    """A share of requests, 0-1."""

    value: Annotated[float, Field(ge=0, le=1)]


class Option(OfWorker):
    """An option of an engine that may differ between peers while it is rolled.

    Options that peers compare when they meet (KV dtype, block size, attention backend, versions) are not among them: with
    one worker changed and its peer not yet, the pair would refuse to connect.
    """

    option: Literal[
        "max_num_seqs",
        "max_num_batched_tokens",
        "long_prefill_token_threshold",
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "kv_load_failure_policy",
    ]
    value: bool | int | Literal["fail", "recompute"]
