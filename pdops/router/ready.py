"""Say whether the router can serve, by role and by pair."""

from __future__ import annotations

from typing import Any

from pdops.model.cluster import Role
from pdops.router.settings import ROLES, Settings
from pdops.router.workers import Registry, Worker


def ready(registry: Registry, settings: Settings, *, draining: bool, queue_depth: int) -> dict[str, Any]:
    """Return what `/ready` shows; `ready` needs at least one pair, or decode alone where that is allowed."""
    roles = {role.value: _role(registry.of(role)) for role in ROLES}
    pairs = [
        {"src": src.id, "dst": dst.id, "ready": src.routable and dst.routable, "why": _why(src) or _why(dst)}
        for src in registry.of(Role.PREFILL)
        for dst in registry.of(Role.DECODE)
    ]
    why = [f"no {name} worker takes requests" for name, role in roles.items() if not role["ready"]]
    able = any(pair["ready"] for pair in pairs)
    decode_only = not able and settings.fallback == "decode-only" and bool(roles[Role.DECODE.value]["ready"])
    if draining:
        why.append("the router is stopping")
    return {
        "ready": (able or decode_only) and not draining,
        "mode": "prefill-decode" if able else "decode-only" if decode_only else "none",
        "reason": "; ".join(why),
        "roles": roles,
        "pairs": pairs,
        "queue": {"depth": queue_depth, "limit": settings.queue_limit},
    }


def _role(workers: list[Worker]) -> dict[str, Any]:
    return {
        "ready": any(w.routable for w in workers),
        "workers": len(workers),
        "up": sum(w.up is True for w in workers),
        "cordoned": sum(w.cordoned for w in workers),
    }


def _why(worker: Worker) -> str | None:
    if worker.up is not True:
        return f"{worker.id}: {worker.why}"
    return f"{worker.id} is cordoned" if worker.cordoned else None
