"""What really happened to each request: the ground truth that no page shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pdops.model.cluster import Slo

NEVER = math.nan
"""A time at which something has not happened."""


class Outcome(StrEnum):
    """How a request ended, as its client saw it."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    REJECTED = "rejected"


@dataclass(slots=True, eq=False, kw_only=True)
class RequestRecord:
    """One request. Times are virtual seconds, NaN for what has not happened.

    `zone` is the client's. `cached_tokens` were in the prefill worker's own cache, `stored_tokens` came from the store,
    `decode_cached_tokens` were on the decode worker already; `moved_bytes` were pulled. `local_prefill` says that decode
    computed the prompt itself, `stale` that it pulled KV whose lease had run out, so its answer is wrong. `reason` says
    why a request did not end well.
    """

    id: int
    arrival_s: float
    zone: str
    group: int
    prompt_tokens: int
    shared_tokens: int
    output_tokens: int
    prefill: str | None = None
    decode: str | None = None
    cached_tokens: int = 0
    stored_tokens: int = 0
    decode_cached_tokens: int = 0
    moved_bytes: float = 0.0
    generated_tokens: int = 0
    preemptions: int = 0
    local_prefill: bool = False
    stale: bool = False
    granted_s: float = NEVER
    prefill_arrived_s: float = NEVER
    prefill_started_s: float = NEVER
    prefilled_s: float = NEVER
    decode_arrived_s: float = NEVER
    pull_started_s: float = NEVER
    pulled_s: float = NEVER
    decode_started_s: float = NEVER
    first_token_s: float = NEVER
    finished_s: float = NEVER
    outcome: Outcome | None = None
    reason: str = ""
    on_prefill: Work = field(default_factory=lambda: Work())
    on_decode: Work = field(default_factory=lambda: Work())

    @property
    def ttft_s(self) -> float:
        """Arrival to first token in seconds."""
        return self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> float:
        """Mean seconds between its tokens; 0 for one token, as vLLM counts."""
        if self.generated_tokens < 2:
            return 0.0
        return (self.finished_s - self.first_token_s) / (self.generated_tokens - 1)


@dataclass(slots=True, eq=False)
class Work:
    """Where a request stands on a worker, for the simulation itself.

    `own_blocks` are those it holds alone on the worker where it is, `tokens` those whose KV they hold; `left` are tokens
    still to compute or pull. `gone` asks the worker to drop it.
    """

    own_blocks: int = 0
    hit_blocks: int = 0
    tokens: int = 0
    left: int = 0
    joined_step: int = 0
    epoch: int = 0
    resumed: bool = False
    gone: bool = False


def kept(record: RequestRecord, slo: Slo) -> bool:
    """Say whether a finished request kept every promise; one that did not end well kept none."""
    if record.outcome is not Outcome.OK:
        return False
    if slo.ttft_s is not None and not record.ttft_s <= slo.ttft_s:
        return False
    return slo.itl_s is None or record.tpot_s <= slo.itl_s


def attainment(records: Iterable[RequestRecord], slo: Slo) -> float:
    """Return the share of finished requests that kept every promise (0-1); NaN without any.

    Requests whose client left are not counted, as the router does not.
    """
    marks = [kept(r, slo) for r in records if r.outcome not in (None, Outcome.ABORTED)]
    return sum(marks) / len(marks) if marks else math.nan


def attainment_by_zones(
    records: Iterable[RequestRecord], slo: Slo, zone_of: Mapping[str, str]
) -> dict[tuple[str, str], float]:
    """Return the attainment by (prefill zone, decode zone); `zone_of` tells the zone of a worker."""
    by_zones: dict[tuple[str, str], list[RequestRecord]] = {}
    for record in records:
        if record.prefill is not None and record.decode is not None:
            by_zones.setdefault((zone_of[record.prefill], zone_of[record.decode]), []).append(record)
    return {zones: attainment(found, slo) for zones, found in sorted(by_zones.items())}
