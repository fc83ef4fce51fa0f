"""What a namespace tells of the pools in it; every part that cannot be read is unknown, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pdops.actuate.backend import Seen
from pdops.actuate.kubernetes_api import AUTOSCALERS, BUDGETS, LEASES, PODS, QUOTAS, SERVICES, Api, ApiError, Object
from pdops.actuate.kubernetes_lease import starts_of
from pdops.actuate.kubernetes_model import (
    GPU,
    ROUTED,
    Operated,
    Pod,
    Workload,
    first_ordinal,
    matches,
    pod,
    rolling,
    selector_text,
)
from pdops.actuate.kubernetes_owner import Owner, owner_of
from pdops.errors import PdopsError

T = TypeVar("T")
Starts = Mapping[str, tuple[str, int, int]]
"""What `kubernetes_lease.starts_of` returns."""
_MOST = 1000
_TAG = re.compile(r":([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})(?:@sha256:[0-9a-f]+)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One pool as it was read; parts that could not be are None, and `why` says so by part."""

    role: str
    workload: Workload
    found: Object | None
    selector: str
    pods: tuple[Pod, ...] | None
    why: str

    @property
    def replicas(self) -> int | None:
        """How many workers it is to have."""
        told = (self.found.get("spec") or {}).get("replicas") if self.found is not None else None
        return told if isinstance(told, int) else None

    @property
    def unread(self) -> str:
        """Why its size or its pods are not known."""
        return self.why or f"{self.workload} does not say how many replicas it is to have"


class Reader:
    """Reads pools.

    Args:
        api: where they are.
        operated: which they are.
    """

    def __init__(self, api: Api, operated: Operated) -> None:
        self._api, self._operated = api, operated

    def pool(self, role: str) -> Pool:
        """Return a pool, with what could be read of it."""
        return self.workload(role, self._operated.pools[role])

    def workload(self, role: str, workload: Workload) -> Pool:
        """Return what could be read of a workload."""
        found, why = _tried(lambda: self._api.get(workload.resource, workload.name))
        if found is None:
            return Pool(role=role, workload=workload, found=None, selector="", pods=None, why=why)
        selector = selector_text(found)
        if not selector:
            return Pool(
                role=role, workload=workload, found=found, selector="", pods=None, why=f"{workload} selects nothing"
            )
        pods, why = _tried(lambda: tuple(pod(role, p) for p in self._api.list(PODS, selector)[0]))
        return Pool(role=role, workload=workload, found=found, selector=selector, pods=pods, why=why)

    def owner(self, pool: Pool) -> Owner | None:
        """Return who else sets the size of a pool, None when it is nobody.

        Raises:
            ApiError: that cannot be told.
        """
        if pool.found is None:
            raise ApiError("the pool cannot be read", status=None, where=pool.role, why=pool.why, hint="check its name")
        autoscalers = self._api.list(AUTOSCALERS)[0]
        return owner_of(pool.workload, pool.found, autoscalers, bounds=self._operated.bounds)

    def lease(self) -> Object | None:
        """Return the lease, None when nobody ever took it.

        Raises:
            ApiError: it cannot be read.
        """
        try:
            return self._api.get(LEASES, self._operated.lease)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def starts(self) -> tuple[Starts | None, str]:
        """Return how often workers were started, or None and why that is not known."""
        lease, why = _tried(self.lease)
        return (starts_of(lease), "") if not why else (None, why)

    def selected(self, labels: Mapping[str, str]) -> bool:
        """Return whether a Service stops choosing a pod with these labels once its `ROUTED` is not `true`.

        Raises:
            ApiError: services cannot be listed.
        """
        wanted = [(s.get("spec") or {}).get("selector") or {} for s in self._api.list(SERVICES)[0]]
        return any(chosen.get(ROUTED) == "true" and matches(chosen, {**labels, ROUTED: "true"}) for chosen in wanted)

    def budget(self, found: Pod) -> tuple[int | None, str]:
        """Return how many workers like this one may be taken out now, and whose word that is; None without a budget.

        Raises:
            ApiError: budgets cannot be listed.
        """
        allowed = []
        for one in self._api.list(BUDGETS)[0]:
            if matches(((one.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}, found.labels):
                name = str((one.get("metadata") or {}).get("name"))
                allowed.append((int((one.get("status") or {}).get("disruptionsAllowed") or 0), name))
        return min(allowed) if allowed else (None, "")

    def observe(self) -> dict[str, Seen]:
        """Return the values of all pools and their workers."""
        values: dict[str, Seen] = {}
        starts, lease_why = self.starts()
        quotas, quota_why = _tried(lambda: self._api.list(QUOTAS)[0])
        for role in self._operated.pools:
            pool = self.pool(role)
            values |= self._pool(pool, quotas, quota_why)
            for one in pool.pods or ():
                values |= self._worker(one, starts, lease_why)
            for name in absent(pool):
                values |= _absent(name, pool)
        return values

    def _pool(self, pool: Pool, quotas: list[Object] | None, quota_why: str) -> dict[str, Seen]:
        here, source = f"pool/{pool.role}", str(pool.workload)
        told, odd = _tried(lambda: rolling(pool.found) if pool.found is not None else (None, pool.why))
        rollout, why = told or (None, odd)
        owner, owner_why = _tried(lambda: self.owner(pool))
        name = owner.name if owner is not None and owner.autoscaler is None else ""
        seen = {
            f"{here}/replicas": Seen(pool.replicas, source, pool.unread if pool.replicas is None else ""),
            f"{here}/rollout": Seen(rollout, source, why),
            f"{here}/owner": Seen(
                None if owner_why else name,
                f"{owner.name}, by its bounds" if owner is not None and owner.autoscaler is not None else source,
                owner_why or (owner.why if owner is not None else ""),
            ),
        }  # fmt: skip
        free, free_why = self._free(pool, quotas, quota_why)
        seen[f"{here}/free"] = Seen(free, source, free_why)
        budget, budget_why = self._disruptions(pool)
        seen[f"{here}/disruptions"] = Seen(budget, source, budget_why)
        return seen

    def _free(self, pool: Pool, quotas: list[Object] | None, quota_why: str) -> tuple[int | None, str]:
        """Return how many more workers fit: what people allow, what a quota leaves, none while one finds no node."""
        if pool.pods is None or pool.replicas is None:
            return None, pool.unread
        if any(p.unplaced for p in pool.pods):
            return 0, f"{next(p.name for p in pool.pods if p.unplaced)} finds no node"
        found = []
        if pool.role in self._operated.max_replicas:
            found.append(max(0, self._operated.max_replicas[pool.role] - pool.replicas))
        if quotas is None and not found:
            return None, quota_why
        need = max((p.gpus for p in pool.pods), default=0)
        found += [left // need for q in quotas or () if need and (left := _left(q)) is not None]
        if found:
            return min(found), ""
        return None, f"no quota of {GPU} and no max_replicas for {pool.role}: who fits is not told"

    def _disruptions(self, pool: Pool) -> tuple[int | None, str]:
        if not pool.pods:
            return None, pool.why or "there is no pod"
        found, why = _tried(lambda: self.budget(pool.pods[0]))  # type: ignore[index]
        if found is None:
            return None, why
        return found[0], "" if found[0] is not None else "no disruption budget"

    def _worker(self, found: Pod, starts: Starts | None, lease_why: str) -> dict[str, Seen]:
        here, source = f"worker/{found.name}", f"pod {found.name}"
        runs = found.phase == "Running"
        version = _TAG.search(found.image)
        process = {"Running": "running", "Unknown": None}.get(found.phase, "stopped")
        serving = None if runs and not found.ending and found.ready is None else runs and found.ready is True
        return {
            f"{here}/role": Seen(found.role, source),
            f"{here}/process": Seen(process, source, "its node does not answer" if process is None else ""),
            f"{here}/serving": Seen(
                None if process is None else serving, source, "" if serving else f"{found.phase or 'not started'}, not ready"
            ),
            f"{here}/version": Seen(version[1] if version else None, f"image {found.image}", "" if version else "its image has no tag"),
            f"{here}/starts": Seen(
                count_starts(found.name, found, starts) if starts is not None else None, source, lease_why if starts is None else ""
            ),
        }  # fmt: skip


def absent(pool: Pool) -> tuple[str, ...]:
    """Return the workers a StatefulSet is to have and of which there is no pod now; of other kinds nobody knows names."""
    if pool.workload.kind != "StatefulSet" or pool.pods is None or pool.found is None or pool.replicas is None:
        return ()
    first, there = first_ordinal(pool.found), {p.name for p in pool.pods}
    names = (f"{pool.workload.name}-{first + n}" for n in range(min(pool.replicas, _MOST)))
    return tuple(n for n in names if n not in there)


def _absent(name: str, pool: Pool) -> dict[str, Seen]:
    here, source = f"worker/{name}", str(pool.workload)
    return {
        f"{here}/role": Seen(pool.role, source),
        f"{here}/process": Seen("absent", source),
        f"{here}/serving": Seen(False, source, "it has no pod"),
        f"{here}/starts": Seen(None, source, "it has no pod now"),
    }


def count_starts(worker: str, found: Pod, known: Starts) -> int:
    """Return how often a worker was started, counted on from what is known, else from the pod that is there.

    Several pods that came and went between two looks count as one.
    """
    if worker not in known:
        return 1 + found.restarts
    uid, first, more = known[worker]
    return first + found.restarts if uid == found.uid else first + more + 1 + found.restarts


def next_starts(pods: Mapping[str, Pod], known: Starts) -> dict[str, tuple[str, int, int]]:
    """Return what is to be known of pods by worker; see `kubernetes_lease.starts_of` for its form."""
    return {w: (p.uid, count_starts(w, p, known) - p.restarts, p.restarts) for w, p in pods.items()}


def _left(quota: Object) -> int | None:
    status = quota.get("status") or {}
    try:
        hard, used = ((status.get(part) or {}).get(f"requests.{GPU}") for part in ("hard", "used"))
        return None if hard is None else max(0, int(hard) - int(used or 0))
    except ValueError:
        return None


def _tried(ask: Callable[[], T]) -> tuple[T | None, str]:
    """Return an answer, or None and why there is none; where None is an answer too, only a reason tells."""
    try:
        return ask(), ""
    except PdopsError as error:
        return None, str(error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return None, f"what the API server tells makes no sense: {error!r}"[:300]
