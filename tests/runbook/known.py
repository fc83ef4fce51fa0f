"""A double of a backend's state: everything a View leaves open is known, and every action is offered unless said."""

from __future__ import annotations

from collections.abc import Mapping

from pdops.actuate.backend import Capabilities, Seen, State, Value
from pdops.model.cluster import Role
from pdops.model.view import View
from pdops.runbook.actions import actions
from pdops.runbook.make import BackendState
from pdops.runbook.world import state_of

_OPTIONS = {"max_num_seqs": 64, "long_prefill_token_threshold": 0}
_ROUTER: dict[str, Value] = {
    "policy": "round-robin", "admit_ratio": 1.0, "salt_ratio": 0.0, "queue_limit": 5000,
    "max_inflight_prefill": 64, "max_inflight_decode": 256,
}  # fmt: skip


def known(view: View, *, without: Mapping[str, str] | None = None, **changed: Value) -> BackendState:
    """Return a state in which all is known; `changed` sets subjects, with `__` for `/`; `without` are actions not offered."""
    values: dict[str, Value] = {s: v.value for s, v in state_of(view).values.items() if not s.endswith("/serving")}
    for worker in view.cluster.workers:
        here, there = f"worker/{worker.id}", f"store/{worker.id}"
        down = view.health[worker.id].presence in ("down", "stale", "never")
        values |= {
            f"{here}/serving": not down,
            f"{here}/process": "stopped" if down else "running",
            f"{here}/starts": 1,
        }
        values |= {f"{here}/cordoned": False, f"{here}/routed": True, f"{here}/inflight": 0}
        values |= {f"{here}/option/{name}": value for name, value in _OPTIONS.items()}
        if worker.role is Role.KVSTORE:
            values |= {f"{there}/process": values[f"{here}/process"], f"{there}/starts": 1, f"{there}/bypassed": False}
    for role in ("prefill", "decode"):
        here = f"pool/{role}"
        values |= {f"{here}/rollout": False, f"{here}/owner": "", f"{here}/free": 2, f"{here}/autoscaler": "running"}
        values[f"{here}/replicas"] = len(view.cluster.of_role(Role(role)))
    values |= {f"router/{name}": value for name, value in _ROUTER.items()}
    values |= {subject.replace("__", "/"): value for subject, value in changed.items()}
    missing = dict(without or {})
    state = State(at_s=view.at_s, values={s: Seen(v, "double") for s, v in values.items()})
    return BackendState("double", state, Capabilities(frozenset(actions()) - set(missing), missing))
