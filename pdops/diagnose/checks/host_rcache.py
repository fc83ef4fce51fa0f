"""UCX keeps every buffer it has registered, and host memory grows until the kernel ends the engine."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.catalog.known_bad import release
from pdops.diagnose.context import Context
from pdops.diagnose.fabric import uses_ucx
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import FIX_ENVIRONMENT, NO_PAIR, env, split
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, engines, fact, not_applicable, unread, warn
from pdops.model.cluster import Worker

META = CheckMeta(
    id="host/rcache",
    title="UCX's registration cache is bounded, or its memory hooks are off",
    causes=("host-mem-leak",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

CAUSE = "host-mem-leak"
BOUND = "UCX_RCACHE_MAX_UNRELEASED"
HOOKS = "UCX_MEM_MMAP_HOOK_MODE"
_NO_BOUND = ("inf", "infinity", "unlimited")
_SETS_ITSELF = "0.32.0"
"""vLLM release that was read to set the bound to 1024 before it imports NIXL (`nixl_utils.py`); earlier ones were not
read, so they are not taken to."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the two variables of every worker that moves KV by NIXL over UCX."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable(CAUSE, NO_PAIR)
        return
    known, lost = split([w.id for w in workers], lambda name: uses_ucx(ctx, name))
    if lost:
        yield unread(CAUSE, lost, "kv_connector", "it is not known whether KV travels by UCX")
    ours = [w for w in workers if known.get(w.id)]
    if not ours and not lost:
        yield not_applicable(CAUSE, "no worker moves KV by NIXL over UCX")
    good: list[str] = []
    bad: list[Seen] = []
    for worker in ours:
        bound, hooks = env(ctx, worker.id, BOUND), env(ctx, worker.id, HOOKS)
        if bound is None or hooks is None:
            yield unread(CAUSE, worker.id, BOUND, "the environment was not read", FIX_ENVIRONMENT)
        elif hooks.casefold() == "none":
            good.append(f"{worker.id} {HOOKS}=none")
        elif bound and bound.casefold() not in _NO_BOUND:
            good.append(f"{worker.id} {BOUND}={bound}")
        elif bound:
            bad.append(Seen(worker.id, BOUND, bound))
        else:
            itself = _sets_itself(ctx, worker)
            if itself is None:
                why = f"{BOUND} is not set, and whether the engine sets it depends on its version"
                yield unread(CAUSE, worker.id, "version", why)
            elif itself:
                good.append(f"{worker.id} 1024, set by the engine itself")
            else:
                bad.append(Seen(worker.id, BOUND, "not set"))
    if bad:
        yield warn(
            CAUSE,
            bad,
            "a bound such as 1024, or memory hooks off",
            f"set {BOUND}=1024, or {HOOKS}=none, and watch host memory for an hour",
        )
    if good:
        yield agrees(CAUSE, ", ".join(good))


def _sets_itself(ctx: Context, worker: Worker) -> bool | None:
    if worker.engine not in ("vllm", None):
        return False
    mine = release(fact(ctx, worker.id, "version") or worker.version or "")
    least = release(_SETS_ITSELF)
    return None if mine is None or least is None else mine >= least
