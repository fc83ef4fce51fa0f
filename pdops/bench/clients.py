"""The simulator's request records as their clients saw them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from pdops.bench.impact import Felt
from pdops.sim.records import Outcome, RequestRecord


def felt(records: Iterable[RequestRecord], start_s: float) -> Iterator[Felt]:
    """Yield every request, times counted from `start_s` virtual seconds; a wrong answer is not a good one."""
    for r in records:
        ended = r.outcome is not None
        second = r.outcome is Outcome.OK and r.generated_tokens > 1
        yield Felt(
            arrival_s=r.arrival_s - start_s,
            ttft_s=None if math.isnan(r.first_token_s) else r.ttft_s,
            itl_s=r.tpot_s if second else None,
            end_s=r.finished_s - start_s if ended and not math.isnan(r.finished_s) else None,
            ok=r.outcome is Outcome.OK and not r.stale,
            left=r.outcome is Outcome.ABORTED,
        )


def hottest(records: Iterable[RequestRecord], since_s: float) -> str | None:
    """Return the prefill worker that got most requests from `since_s` virtual seconds on."""
    counted = Counter(r.prefill for r in records if r.prefill is not None and r.arrival_s >= since_s)
    return min(counted, key=lambda w: (-counted[w], w)) if counted else None
