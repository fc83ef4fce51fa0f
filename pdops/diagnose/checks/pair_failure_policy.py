"""What decode does with a request whose KV could not be loaded was chosen on purpose."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.pairing import is_hybrid, is_vllm
from pdops.diagnose.preflight import (
    NO_ALERT,
    Seen,
    agrees,
    engines,
    fact,
    must,
    not_applicable,
    unread,
    warn,
    was_configured,
)
from pdops.model.cluster import Role
from pdops.model.frame import ProbeKind

META = CheckMeta(
    id="pair/failure-policy",
    title="What decode does after a failed KV load is chosen, and proved where it is not trusted",
    causes=("silent-corruption", "silent-local-prefill"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

OPTION = "kv_load_failure_policy"
FAIL, RECOMPUTE = "fail", "recompute"
"""What vLLM knows; it fails the request when not told otherwise (0.32)."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the policy on decode workers, and whether a canary watches models that are known to slip through it."""
    if not engines(ctx):
        yield not_applicable("silent-corruption", "the inventory has no prefill and decode pair")
        return
    ours = [w for w in ctx.cluster.of_role(Role.DECODE) if is_vllm(w)]
    if not ours:
        yield not_applicable("silent-corruption", "only vLLM has such a policy")
        return
    told = {w.id: fact(ctx, w.id, OPTION) for w in ours}
    unset = [name for name, policy in told.items() if policy is None and was_configured(ctx, name)]
    lost = [name for name, policy in told.items() if policy is None and name not in unset]
    wrong = [name for name, policy in told.items() if policy is not None and policy.casefold() not in (FAIL, RECOMPUTE)]
    computing = [name for name, policy in told.items() if policy is not None and policy.casefold() == RECOMPUTE]
    if wrong:
        fix = f"set {OPTION} to {FAIL} or {RECOMPUTE}"
        yield must("silent-corruption", [Seen(n, OPTION, told[n]) for n in wrong], f"{FAIL} or {RECOMPUTE}", fix)
    if computing:
        yield warn(
            "silent-local-prefill",
            [Seen(name, OPTION, RECOMPUTE) for name in computing],
            f"{FAIL}, or {RECOMPUTE} with spare decode capacity and a canary",
            f"set {OPTION} to {FAIL}, or watch decode's own prefill: failed loads turn into prefill work on decode unseen, and"
            " with connectors that load at once the text may be wrong",
        )
    if unset:
        yield warn(
            "silent-local-prefill",
            [Seen(name, OPTION, f"not set ({FAIL})") for name in unset],
            "set on purpose",
            f"write {OPTION} into --kv-transfer-config: releases have changed what happens without it",
        )
    if lost:
        yield unread("silent-corruption", lost, OPTION, f"{OPTION} was not read")
    if not (wrong or computing or unset or lost):
        yield agrees("silent-corruption", f"{OPTION} is {FAIL} on all {len(told)} decode workers")
    yield from _hybrid(ctx)


def _hybrid(ctx: Context) -> Iterator[Finding]:
    """Ask for a canary where a model keeps more than attention KV; a public incident returned garbage with status 200."""
    known = {w.id: is_hybrid(ctx, w.id) for w in engines(ctx)}
    hybrid = [name for name, told in known.items() if told]
    if not hybrid:
        if all(told is None for told in known.values()):
            yield unread(
                "silent-corruption", list(known), "architectures", "whether the model is a hybrid one was not read"
            )
        return
    proved = {p.pair for p in ctx.view.probes if p.kind is ProbeKind.CANARY and p.ok}
    bare = [pair for pair in ctx.cluster.pairs() if str(pair) not in proved]
    if bare:
        yield warn(
            "silent-corruption",
            [Seen(str(pair), "canary", "none passed") for pair in bare],
            "a passed canary of each pair",
            "run pdops canary now and on a schedule: with a hybrid model a failed load may pass as success",
        )
    else:
        yield agrees("silent-corruption", "the model is a hybrid one, and a canary passed through each pair")
