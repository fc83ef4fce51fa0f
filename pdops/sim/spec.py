"""What is simulated: cluster, workload, speeds, network and faults, as a file or from code.

Times count in virtual seconds from the start of a run, warm-up included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator

from pdops.errors import SimError
from pdops.model.cluster import Slo
from pdops.sources.validate import Strict, build, did_you_mean, refuse, shown
from pdops.sources.yamlfile import Document, read_yaml

_WHAT = "simulation cannot be run"
_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]

POLICIES = ("round-robin", "least-loaded", "prefix-affinity", "zone-aware")
KINDS = (
    "prefill-speed",
    "decode-speed",
    "worker-kill",
    "worker-freeze",
    "prefill-workers-lost",
    "kv-blocks",
    "max-num-seqs",
    "max-num-batched-tokens",
    "link-rate",
    "link-latency",
    "link-loss",
    "link-cut",
    "nic-background",
    "handshake-fail",
    "lease-short",
    "transport-tcp",
    "descriptor-jump",
    "zone-placement",
    "output-scale",
    "prompt-scale",
    "prompt-mix",
    "rate-scale",
    "rate-burst",
    "prefix-mix",
    "prefix-hotspot",
    "cache-wipe",
    "cache-disable",
    "store-down",
    "store-slow",
    "store-small",
    "router-policy",
    "router-stale",
    "router-zone-blind",
    "router-no-backpressure",
    "health-eject",
    "decode-only",
    "abort-storm",
    "kv-leak",
    "ratio",
    "rank-imbalance",
    "telemetry-drop",
    "telemetry-freeze",
    "counter-reset",
    "clock-skew",
    "scale-out",
    "drain",
    "rolling-deploy",
    "scrape-gap",
    "admission-reject",
    "step-stall",
    "scaler-swing",
    "idle-drop",
    "store-hollow",
    "hop-delay",
    "pull-limit",
)
"""Fault primitives, look-alikes of faults included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens at `at_s`, and ends at `until_s` (None = when the run does).

    `target` holds worker ids, pools (`prefill`, `decode`), `all`, pairs `P>D` or zones; empty means what the kind usually
    hits. `params` are those of the kind; `duration_s` among them is another way to say `until_s`.
    """

    kind: str
    at_s: NotNegative
    until_s: Positive | None = None
    target: tuple[str, ...] = ()
    params: Mapping[str, float | str] = field(default_factory=dict)

    __pydantic_config__ = _STRICT

    def number(self, name: str, default: float) -> float:
        """Return a parameter as a number.

        Raises:
            SimError: it is text.
        """
        value = self.params.get(name, default)
        if isinstance(value, str):
            why = f"{name} of {self.kind} is {value!r}"
            raise SimError(_WHAT, where=self.kind, why=why, hint="give it as a number")
        return float(value)

    def end_s(self) -> float | None:
        """Return when it ends in virtual seconds, None when it lasts."""
        if self.until_s is not None:
            return self.until_s
        return self.at_s + self.number("duration_s", 0.0) if "duration_s" in self.params else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """A span with `factor` times the usual request rate."""

    at_s: NotNegative
    until_s: Positive
    factor: NotNegative

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What clients send. Lengths are lognormal; `cv2` are squared coefficients of variation.

    A prompt belongs to one of `prefix_groups`, drawn with Zipf exponent `zipf_skew`; its first `prefix_share` is common
    to the group. `think_factor` multiplies outputs. `patience_s` is the mean time after which a client leaves.
    """

    law: Literal["poisson", "gamma"] = "poisson"
    rate_per_s: NotNegative = 2.0
    cv2: Positive = 1.0
    prompt_mean_tokens: Positive = 3000.0
    prompt_cv2: NotNegative = 1.0
    prompt_max_tokens: Count = 65536
    output_mean_tokens: Positive = 250.0
    output_cv2: NotNegative = 0.8
    output_max_tokens: Count = 16384
    prefix_groups: Count = 40
    prefix_share: Share = 0.5
    zipf_skew: NotNegative = 0.8
    diurnal_amplitude: Share = 0.0
    diurnal_period_s: Positive = 86_400.0
    bursts: tuple[Burst, ...] = ()
    think_factor: Positive = 1.0
    patience_s: Positive | None = None

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Speeds and sizes of every engine.

    A prefill step takes `prefill_step_s` plus its tokens over `prefill_tokens_per_s`; a decode step takes `step_base_s`
    plus `step_per_seq_s` a sequence plus `step_per_kv_token_s` a token of KV read. `service_cv2` is the noise on prefill
    steps. `prefill_kv_blocks` None means as many as decode has. With `lease_renewed` decode keeps the lease of KV it
    waits for alive; without, it runs out `lease_s` after prefill. The first step of a new process takes `warm_step_s`
    longer. With `plugin` engines run the pdops plugin, which tells transfers by pair.
    """

    prefill_tokens_per_s: Positive = 16_000.0
    prefill_step_s: NotNegative = 0.008
    service_cv2: NotNegative = 0.0
    step_base_s: Positive = 0.012
    step_per_seq_s: NotNegative = 0.0001
    step_per_kv_token_s: NotNegative = 5e-8
    kv_blocks: Count = 30_000
    prefill_kv_blocks: Count | None = None
    block_size_tokens: Count = 16
    max_num_seqs: Count = 256
    max_num_batched_tokens: Count = 8192
    kv_bytes_per_token: Positive = 262_144.0
    lease_s: Positive = 30.0
    lease_renewed: bool = True
    warm_step_s: NotNegative = 2.0
    plugin: bool = False
    model: str = "sim-32b"
    version: str = "0.32.0"

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Links. Every worker has one NIC of `nic_bytes_per_s` each way, shared equally by the transfers in progress.

    `window_bytes` over the round trip bounds one transfer, as `zone_bytes_per_s` and `region_bytes_per_s` do for those
    that cross a zone or region (None = no bound). A first contact of a pair costs `handshake_s` and three round trips.
    """

    nic_bytes_per_s: Positive = 35e9
    setup_s: NotNegative = 0.004
    rtt_s: NotNegative = 0.0001
    zone_rtt_s: NotNegative = 0.002
    region_rtt_s: NotNegative = 0.1
    zone_bytes_per_s: Positive | None = None
    region_bytes_per_s: Positive | None = None
    window_bytes: Positive = 67_108_864.0
    descriptors_per_block: Count = 2
    descriptor_s: NotNegative = 5e-6
    handshake_s: NotNegative = 0.05

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """The router's choices and limits; `backpressure` off lets any number of requests onto a worker."""

    policy: str = "least-loaded"
    queue_limit: Count = 1000
    max_inflight_prefill: Count = 64
    max_inflight_decode: Count = 256
    backpressure: bool = True
    deadline_s: Positive | None = 120.0
    prefill_timeout_s: Positive = 60.0
    first_token_timeout_s: Positive = 60.0
    health_every_s: Positive = 2.0

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A shared KV store that prefill workers read prefixes from and write them to; a lookup it does not answer costs
    `timeout_s`.
    """

    enabled: bool = False
    capacity_bytes: Positive = 2e12
    bytes_per_s: Positive = 20e9
    latency_s: NotNegative = 0.002
    timeout_s: NotNegative = 0.5

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A zone and the region it lies in."""

    name: str
    region: str = "region-0"

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class SimSpec:
    """One run of a simulated cluster.

    Frames of the first `warmup_s` seconds are not shown. Workers are spread over `zones` in turn.
    """

    seed: int = 0
    duration_s: Positive = 900.0
    warmup_s: NotNegative = 0.0
    prefill: Count = 1
    decode: Count = 1
    zones: tuple[Zone, ...] = (Zone(name="zone-0"),)
    workload: Workload = field(default_factory=Workload)
    engine: Engine = field(default_factory=Engine)
    network: Network = field(default_factory=Network)
    router: Router = field(default_factory=Router)
    store: Store = field(default_factory=Store)
    slo: Slo = field(default_factory=lambda: Slo(ttft_s=2.0, itl_s=0.05))
    faults: tuple[Fault, ...] = ()

    __pydantic_config__ = _STRICT


class _SloFile(Strict):
    ttft_s: Positive | None = 2.0
    itl_s: Positive | None = 0.05
    percentile: Share = 0.95
    attainment: Share = 0.95


class SimFile(Strict):
    """A simulation as a file."""

    seed: int = 0
    duration_s: Positive = 900.0
    warmup_s: NotNegative = 0.0
    prefill: Count = 1
    decode: Count = 1
    zones: tuple[Zone, ...] = (Zone(name="zone-0"),)
    workload: Workload = Workload()
    engine: Engine = Engine()
    network: Network = Network()
    router: Router = Router()
    store: Store = Store()
    slo: _SloFile = _SloFile()
    faults: tuple[Fault, ...] = ()

    @field_validator("faults")
    @classmethod
    def _known_kinds(cls, value: tuple[Fault, ...]) -> tuple[Fault, ...]:
        for fault in value:
            if fault.kind not in KINDS:
                raise refuse(f"unknown fault {shown(fault.kind)}", did_you_mean(fault.kind, KINDS, label="faults"))
        return value

    @field_validator("router")
    @classmethod
    def _known_policy(cls, value: Router) -> Router:
        if value.policy not in POLICIES:
            raise refuse(
                f"unknown policy {shown(value.policy)}", did_you_mean(value.policy, POLICIES, label="policies")
            )
        return value

    @field_validator("zones")
    @classmethod
    def _some_zone(cls, value: tuple[Zone, ...]) -> tuple[Zone, ...]:
        if not value or len({z.name for z in value}) != len(value):
            raise refuse("zones need names of their own, at least one", "name each zone once")
        return value

    def spec(self) -> SimSpec:
        """Return it as the simulator takes it."""
        given = {name: getattr(self, name) for name in type(self).model_fields if name != "slo"}
        return SimSpec(**given, slo=Slo(**self.slo.model_dump()))


def load_spec(path: str) -> SimSpec:
    """Read a simulation from a YAML file.

    Raises:
        SimError: the file cannot be read or does not describe one; with its line.
    """
    return from_document(read_yaml(path, error=SimError, what=_WHAT))


def from_document(document: Document) -> SimSpec:
    """Return the simulation a document describes.

    Raises:
        SimError: it describes none.
    """
    return build(SimFile, document, error=SimError, what=_WHAT).spec()


def checked(spec: SimSpec) -> SimSpec:
    """Return a spec made in code, once its values are known to be within their ranges.

    Raises:
        SimError: they are not.
    """
    try:
        SimFile.model_validate(_plain(spec))
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        why = str(first.get("ctx", {}).get("why", first["msg"]))
        raise SimError(_WHAT, where=where, why=why, hint="see pdops.sim.spec for what is accepted") from None
    return spec


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value
