"""How large and fast everything in an episode is: drawn from its family, then set so that both pools matter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from pdops.bench.grid import Family, Topology, Utilisation, WorkloadShape
from pdops.model.cluster import Slo

WARM_HIT = 0.9
"""Share of the common prefix that a warm cache serves; the rest is first sights and evictions."""
_SIGMAS = 3.0
_PREFILL_IN_FLIGHT = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the simulated engines, links and clients are, in the units of their names.

    `rate_per_s` is for the whole cluster; `computed_tokens` is the mean of a prompt that its prefix does not save.
    """

    rate_per_s: float
    prefill_tokens_per_s: float
    prefill_step_s: float
    step_base_s: float
    step_per_seq_s: float
    step_per_kv_token_s: float
    decode_kv_blocks: int
    prefill_kv_blocks: int
    block_size_tokens: int
    kv_bytes_per_token: int
    nic_bytes_per_s: float
    setup_s: float
    lease_s: float
    router_policy: str
    prompt_tokens: float
    computed_tokens: float
    prompt_max_tokens: int
    prefix_groups: int
    working_set_bytes: float
    decode_rate_per_s: float

    def needed_bytes_per_s(self, slo: Slo) -> float:
        """Return the bandwidth a decode worker must have: for its load, and to keep the promise for a mean prompt."""
        moved = self.prompt_tokens * self.kv_bytes_per_token
        return moved * max(self.decode_rate_per_s, 1.0 / (slo.ttft_s or math.inf))

    def transfer_s(self, bytes_per_s: float) -> float:
        """Return how long the KV of a mean prompt takes alone."""
        return self.setup_s + self.prompt_tokens * self.kv_bytes_per_token / bytes_per_s


def draw(
    family: Family,
    shape: WorkloadShape,
    place: Topology,
    load: Utilisation,
    rng: Random,
    *,
    with_store: bool,
) -> Sizes:
    """Draw the parameters of one episode.

    With a store, prefill caches hold only a part of what is reused, so that the store matters.
    """
    base, per_seq, per_kv = (
        _span(s, rng) for s in (family.step_base_s, family.step_per_seq_s, family.step_per_kv_token_s)
    )
    headroom = _span(family.kv_headroom, rng)
    block = rng.choice(family.block_size_tokens)
    kv_bytes = rng.choice(family.kv_bytes_per_token)
    context = shape.prompt_mean_tokens + shape.output_mean_tokens * (1.0 + shape.output_cv2) / 2.0
    batch = load.decode * place.max_num_seqs
    step_s = base + per_seq * batch + per_kv * batch * context
    per_worker = batch / (shape.output_mean_tokens * step_s)
    rate = per_worker * place.decode
    computed = shape.prompt_mean_tokens * (1.0 - shape.prefix_share * WARM_HIT)
    speed = rate * computed / (place.prefill * load.prefill)
    groups = shape.prefix_groups * place.prefill
    shared = shape.prefix_groups * shape.prefix_share * shape.prompt_mean_tokens * 1.3
    kept = shared * (0.15 if with_store else 2.0)
    in_flight = _PREFILL_IN_FLIGHT * shape.prompt_mean_tokens * (1.0 + shape.prompt_cv2)
    decode_blocks = math.ceil(headroom * (batch + _SIGMAS * math.sqrt(batch)) * context / block)
    longest = int(min(65_536, decode_blocks * block / 2, 12 * shape.prompt_mean_tokens))
    return Sizes(
        rate_per_s=rate,
        prefill_tokens_per_s=speed * 1.15,
        prefill_step_s=0.13 * computed / speed,
        step_base_s=base,
        step_per_seq_s=per_seq,
        step_per_kv_token_s=per_kv,
        decode_kv_blocks=decode_blocks,
        prefill_kv_blocks=math.ceil(headroom * (kept + in_flight) / block),
        block_size_tokens=block,
        kv_bytes_per_token=kv_bytes,
        nic_bytes_per_s=_span(family.nic_bytes_per_s, rng),
        setup_s=_span(family.setup_s, rng),
        lease_s=_span(family.lease_s, rng),
        router_policy=rng.choice(family.router_policy),
        prompt_tokens=shape.prompt_mean_tokens,
        computed_tokens=computed,
        prompt_max_tokens=longest,
        prefix_groups=groups,
        working_set_bytes=shared * place.prefill * kv_bytes,
        decode_rate_per_s=per_worker,
    )


def _span(values: tuple[float, ...], rng: Random) -> float:
    """Draw between the ends on a logarithmic scale; a single value is taken as it is."""
    low, high = values[0], values[-1]
    return low if low == high else math.exp(rng.uniform(math.log(low), math.log(high)))
