"""One data-parallel rank of a decode worker is far fuller than the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed, clear
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role
from pdops.model.report import DoNot, Symptom
from pdops.stats.robust import skew

META = CheckMeta(
    id="decode/rank-imbalance",
    title="One rank of a decode worker is far fuller than the others",
    causes=("router-imbalance", "decode-kv-exhaustion"),
    needs=("kv_cache_usage", "itl_seconds"),
    tier=Tier.STAGE,
    explains=("decode-undersized", "decode-slow-worker", "expert-imbalance"),
    alert="PDDecodeRankImbalance",
    panel="decode/kv-usage-by-rank",
)

UNEVEN = 1.5
"""Greatest over mean KV in use of a worker's ranks above which they are uneven (from public incidents)."""
MATTERS = 0.5
"""Below this share of KV in use on the fullest rank, unevenness hurts nobody."""
FULL = 0.9
"""A rank above this admits nothing more, and ranks that step together wait for it."""
_PREFIX = "kv_cache_usage[rank="


def check(ctx: Context) -> Iterator[Finding]:
    """Compare the fullest rank with the mean of its worker's ranks."""
    high = picture(ctx).itl_high
    even: list[float] = []
    ranks = _ranks(ctx)
    for worker in ctx.cluster.of_role(Role.DECODE):
        usage = ranks.get(worker.id, {})
        if len(usage) < 2 or not ctx.has_data(worker.id):
            continue
        fullest = max(sorted(usage), key=lambda rank: usage[rank])
        ratio = skew(list(usage.values())) or 1.0
        if ratio <= UNEVEN or usage[fullest] <= MATTERS:
            even.append(ratio if usage[fullest] > MATTERS else 1.0)
            continue
        yield from _findings(ctx, worker.id, fullest, usage, high=high)
    if even:
        yield clear(
            "router-imbalance", f"the fullest rank of {len(even)} workers holds at most {max(even):.2f} times the mean"
        )


def _ranks(ctx: Context) -> dict[str, dict[str, float]]:
    """Return KV in use (0-1) by worker and rank, those that tell it."""
    found: dict[str, dict[str, float]] = {}
    for scope, signal in sorted(key for key in ctx.view.series if key[1].startswith(_PREFIX)):
        level = ctx.ask.level(scope, signal)
        if level.value is not None:
            found.setdefault(scope, {})[signal[len(_PREFIX) : -1]] = level.value
    return found


def _findings(ctx: Context, worker: str, fullest: str, usage: Mapping[str, float], *, high: bool) -> Iterator[Finding]:
    mean = sum(usage.values()) / len(usage)
    full = usage[fullest] > FULL
    rank = f"{_PREFIX}{fullest}]"
    support: list[Weighed] = []
    if high:
        support.append(
            ctx.saw("itl_seconds", None, ctx.itl(), ctx.slo.itl_s, basis="config", ratio=MODERATE, group="itl")
        )
    for cause in ("decode-kv-exhaustion", "router-imbalance") if full else ("router-imbalance",):
        leads = cause == "decode-kv-exhaustion" or not full
        uneven = ctx.saw(
            "kv_cache_usage",
            worker,
            usage[fullest],
            mean,
            basis="peer",
            ratio=STRONG if leads else MODERATE,
            group="ranks",
        )
        for_ = [replace(uneven, evidence=replace(uneven.evidence, signal=rank))]
        if leads:
            for_ += support
        yield Finding(
            status=Status.FIRED,
            cause=cause,
            scopes=(ctx.scope(worker),),
            for_=tuple(for_),
            symptoms=(Symptom.ITL,) if high else (Symptom.SKEW,),
            next=(
                f"see how requests are given to rank {fullest} of {worker}: by a room id, in turn, or by load",
                "cap the KV that one rank may admit, so that it cannot hold up the others",
            ),
            runbooks=("routing-rebalance", "itl-decode-relief") if full else ("routing-rebalance",),
            do_not=(DoNot(action="scale-out-decode", why="the other ranks have room; one is given too much"),),
        )
