"""What is known of a cluster when a plan is made, and what will be so after each of its steps."""

from __future__ import annotations

from pdops.actuate.backend import Seen, State, Value
from pdops.model.cluster import Role
from pdops.model.view import Presence, View

COUNTED = (Role.PREFILL, Role.DECODE, Role.COLOCATED)
"""Roles of which a minimum must stay ready."""
_ANSWERS = {Presence.UP: True, Presence.GIVEN: True, Presence.DOWN: False, Presence.STALE: None, Presence.NEVER: None}


def state_of(view: View) -> State:
    """Return what a View alone tells of a cluster: who is there and who answers. What only a backend reads stays unknown."""
    values: dict[str, Seen] = {}
    for worker in view.cluster.workers:
        health = view.health.get(worker.id)
        answers = _ANSWERS[health.presence] if health is not None else None
        subject = f"worker/{worker.id}"
        values[f"{subject}/role"] = Seen(worker.role.value, "inventory")
        values[f"{subject}/serving"] = Seen(
            answers, "scrape", "" if answers is not None else "its data are not about now"
        )
        if worker.version is not None:
            values[f"{subject}/version"] = Seen(worker.version, "inventory")
    for role in COUNTED:
        members = view.cluster.of_role(role)
        if members:
            values[f"pool/{role}/replicas"] = Seen(len(members), "inventory")
    return State(at_s=view.at_s, values=values)


def nothing_runs(state: State) -> bool:
    """Return whether it is known of every prefill and decode worker that its process has ended; of none nothing is known."""
    workers = [w for role in COUNTED for w in state.workers(role)]
    return bool(workers) and all(state.get(f"worker/{w}/process").value == "stopped" for w in workers)


class World:
    """A state that planned steps are applied to, one after another. Values that nobody reads are None."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._set: dict[str, Value] = {}

    def get(self, subject: str) -> Value:
        """Return a value, or None when it is not known."""
        return self._set[subject] if subject in self._set else self._state.get(subject).value

    def put(self, subject: str, value: Value) -> None:
        """Take a step as done."""
        self._set[subject] = value

    def workers(self, role: str) -> tuple[str, ...]:
        """Return the ids of a role that were there at the start, sorted; a store may be told as a store only."""
        found = set(self._state.workers(role))
        if role == Role.KVSTORE:
            found |= {s.split("/")[1] for s in self._state.values if s.startswith("store/") and s.endswith("/process")}
        return tuple(sorted(found))

    def role(self, worker: str) -> str | None:
        """Return the role of a worker, or None when nobody knows it."""
        value = self.get(f"worker/{worker}/role")
        if value is None and f"store/{worker}/process" in self._state.values:
            return Role.KVSTORE.value
        return value if isinstance(value, str) else None

    def next_id(self, role: str) -> str:
        """Return ROLE-N with the first number above those in use."""
        used = [int(n) for w in self.workers(role) if (n := w.rpartition("-")[2]).isascii() and n.isdigit()]
        return f"{role}-{max(used, default=-1) + 1}"

    def takes_requests(self, worker: str) -> bool | None:
        """Return whether a worker answers and gets requests; None when that is not known.

        Where nobody reads whether a worker is cordoned, it is not; a router that was asked and does not tell leaves it
        unknown. That it answers must have been seen.
        """
        if self.get(f"worker/{worker}/cordoned") is True or self.get(f"worker/{worker}/routed") is False:
            return False
        if self.get(f"worker/{worker}/process") in ("stopped", "absent", "frozen"):
            return False
        serving = self.get(f"worker/{worker}/serving")
        if serving is True and any(self._untold(f"worker/{worker}/{part}") for part in ("cordoned", "routed")):
            return None
        return serving if isinstance(serving, bool) else None

    def _untold(self, subject: str) -> bool:
        """Whether a subject was asked for in vain, which is more than that nobody reads it."""
        return subject not in self._set and subject in self._state.values and not self._state.get(subject).known
