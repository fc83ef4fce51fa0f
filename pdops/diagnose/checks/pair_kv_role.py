"""Prefill produces KV, decode consumes it."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.pairing import STORES, children
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, engines, fact, must, not_applicable, unread, warn
from pdops.model.cluster import Role

META = CheckMeta(
    id="pair/kv-role",
    title="Prefill is the producer and decode the consumer of KV",
    causes=("config-asymmetry",),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

ROLES = {Role.PREFILL: ("kv_producer", "prefill"), Role.DECODE: ("kv_consumer", "decode")}
"""vLLM's `kv_role` and SGLang's `disaggregation_mode`."""
BOTH = "kv_both"
"""Deprecated for vLLM's NIXL connector since 0.32.0, which warns of its removal."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the role each engine was given against the pool it is in."""
    workers = engines(ctx)
    if not workers:
        yield not_applicable("config-asymmetry", "the inventory has no prefill and decode pair")
        return
    told = {w.id: _role(ctx, w.id) for w in workers}
    name = "disaggregation_mode" if any(w.engine == "sglang" for w in workers) else "kv_role"
    wrong = [w for w in workers if (r := told[w.id]) is not None and r != BOTH and r not in ROLES[w.role]]
    both = [w.id for w in workers if told[w.id] == BOTH]
    lost = [w.id for w in workers if told[w.id] is None]
    for role in ROLES:
        ours = [Seen(w.id, name, told[w.id]) for w in wrong if w.role is role]
        right = ROLES[role][1 if name == "disaggregation_mode" else 0]
        if ours:
            yield must("config-asymmetry", ours, right, f"set {name} to {right} on {role.value} workers")
    if both:
        yield warn(
            "config-asymmetry",
            [Seen(worker, name, BOTH) for worker in both],
            "kv_producer on prefill, kv_consumer on decode",
            "set kv_role to kv_producer on prefill and kv_consumer on decode: kv_both is deprecated for the NIXL connector",
        )
    if lost:
        yield unread("config-asymmetry", lost, name, f"{name} was not read")
    if not (wrong or both or lost):
        said = ", ".join(f"{told[w.id]} on {w.id}" for w in workers[:4])
        yield agrees("config-asymmetry", f"{name}: {said}" + (" and so on" if len(workers) > 4 else ""))


def _role(ctx: Context, worker: str) -> str | None:
    """Return the role of the connector that hands over; a store beside it is rightly `kv_both`."""
    for child in children(ctx, worker):
        name, role = str(child.get("kv_connector", "")).casefold(), child.get("kv_role")
        if role is not None and not any(part in name for part in STORES):
            return str(role)
    return fact(ctx, worker, "kv_role", "disaggregation_mode")
