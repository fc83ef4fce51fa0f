"""Changes of pools and pods, each compared with what was read right before: nothing that others set is undone."""

from __future__ import annotations

from pdops.actuate.backend import Effect, Value
from pdops.actuate.kubernetes_api import PODS, Api, ApiError, Object
from pdops.actuate.kubernetes_lease import Leader, starts_of
from pdops.actuate.kubernetes_model import DELETION_COST, ROUTED, Pod, Workload, first_ordinal
from pdops.actuate.kubernetes_owner import lower_floor, raise_floor
from pdops.actuate.kubernetes_read import Pool, Reader, count_starts, next_starts
from pdops.actuate.kubernetes_watch import Pods, until
from pdops.errors import ActionError, BusyError

TRIES = 4
"""How often a change is compared and sent again when only what does not matter to it was changed meanwhile."""
GONE_S = 120.0
"""How much longer than its own grace period a pod is waited for, in seconds."""
_FIRST = "-2147483648"


class Changes:
    """Changes pools.

    Args:
        api: where they are.
        reader: reads them.
        leader: is asked right before each change whether this pdops still may.
    """

    def __init__(self, api: Api, reader: Reader, leader: Leader) -> None:
        self._api, self._reader, self._leader = api, reader, leader

    def scale_out(self, pool: Pool, worker: str, replicas: Value) -> Effect:
        """Add one worker, through the autoscaler where one has the pool.

        Raises:
            ActionError: it cannot be done.
            BusyError: the pool is of another size by now.
        """
        there = _count(pool)
        if there == replicas:
            return Effect(changed=False, detail=f"{pool.workload} has {there} replicas")
        if there + 1 != replicas:
            raise _moved(pool.workload, there, replicas)
        assert pool.found is not None, "it was counted"
        name = _last(pool, there + 1)
        if name != worker:
            raise ActionError(
                f"the new worker will be called {name}", where=str(pool.workload), why=f"{worker} is planned",
                hint=f"call the workload {pool.role}, so that its workers are {pool.role}-N",
            )  # fmt: skip
        owner = self._reader.owner(pool)
        if owner is not None and owner.autoscaler is None:
            raise ActionError(
                f"{owner.name} sets the size of the pool", where=pool.role, why=owner.why, hint="act through it"
            )
        self._leader.keep()
        if owner is not None:
            return raise_floor(self._api, owner, there, there + 1)
        return self._set(pool.workload, there, there + 1)

    def may_scale_in(self, pool: Pool, worker: str, replicas: Value) -> Effect | None:
        """Return the effect when nothing is left to do, None when the worker may go.

        Raises:
            ActionError: it is not the one that would go, or somebody else sets the size.
            BusyError: the pool is of another size by now.
        """
        there, found = _count(pool), _pod(pool, worker)
        if there == replicas and (found is None or found.ending):
            self.gone(pool, worker, found.uid if found is not None else "")
            return Effect(changed=False, detail=f"{worker} is gone")
        if not isinstance(replicas, int) or there - 1 != replicas:
            raise _moved(pool.workload, there, replicas)
        if pool.workload.kind == "StatefulSet" and worker != _last(pool, there):
            raise ActionError(
                f"{pool.workload} gives up {_last(pool, there)} first", where=worker, why="a StatefulSet ends its last worker",
                hint=f"plan it with worker={_last(pool, there)}",
            )  # fmt: skip
        owner = self._reader.owner(pool)
        if owner is not None and owner.autoscaler is None:
            raise ActionError(
                f"{owner.name} sets the size of the pool", where=pool.role, why=owner.why, hint="act through it"
            )
        return None

    def scale_in(self, pool: Pool, worker: str, replicas: Value) -> Effect:
        """Take a worker that is empty out of a pool as it is after it was emptied, and wait until its pod has gone.

        Raises:
            ActionError: it cannot be done.
            BusyError: the pool is of another size by now.
        """
        already = self.may_scale_in(pool, worker, replicas)
        if already is not None:
            return already
        there, found = _count(pool), _pod(pool, worker)
        owner = self._reader.owner(pool)
        if pool.workload.kind == "Deployment":
            if found is None:
                raise ActionError("no such pod", where=worker, hint="`kubectl get pods` lists them")
            self._leader.keep()
            self.mark(found, "annotations", DELETION_COST, _FIRST)
        self._leader.keep()
        if owner is not None:
            return lower_floor(self._api, owner, there, there - 1)
        effect = self._set(pool.workload, there, there - 1)
        if found is not None and not self.gone(pool, worker, found.uid):
            return Effect(changed=True, detail=f"{effect.detail}; {worker} has not ended yet")
        return Effect(changed=True, detail=f"{effect.detail}; {worker} is gone")

    def restart(self, pool: Pool, worker: str, starts: Value) -> Effect:
        """Delete the pod of a worker, which its StatefulSet makes again, and wait until that one has gone.

        Raises:
            ActionError: a disruption budget keeps it, or it cannot be done.
            BusyError: somebody else restarted it.
        """
        known = starts_of(self._reader.lease())
        found = _pod(pool, worker)
        if found is None:
            raise ActionError("it has no pod", where=worker, why=f"{pool.workload} is to make one", hint="wait for it")
        now = count_starts(found, known)
        if now == starts:
            return Effect(changed=False, detail=f"{worker} was restarted already")
        if now + 1 != starts:
            raise BusyError("somebody else restarted it", where=worker, why=f"{now} starts", hint="make a new plan")
        if found.ready:
            allowed, whose = self._reader.budget(found)
            if allowed == 0:
                raise ActionError(
                    "its disruption budget allows none to go", where=worker, why=f"PodDisruptionBudget/{whose}",
                    hint="wait until the others are ready, or change the budget",
                )  # fmt: skip
        self._leader.keep()
        self._leader.note(known | next_starts(pool.pods or (), known))
        self._delete(found)
        if not self.gone(pool, worker, found.uid):
            raise ActionError("it has not ended", where=worker, why="its time to end is over", hint="look at its node")
        return Effect(changed=True, detail=f"pod {found.uid} of {worker} is gone; {pool.workload} makes the next")

    def mark(self, found: Pod, part: str, key: str, value: str) -> Effect:
        """Set a label or annotation of a pod.

        Raises:
            BusyError: the worker has another pod by now, or others change it all the time.
        """
        version = found.version
        for _ in range(TRIES):
            meta = {part: {key: value}, "uid": found.uid, "resourceVersion": version}
            try:
                self._api.call("patch", PODS, found.name, body={"metadata": meta})
            except ApiError as error:
                if error.status != 409:
                    raise
                version = self._same(found)
            else:
                return Effect(changed=True, detail=f"{key} of {found.name} is {value}")
        raise _contended(found.name)

    def gone(self, pool: Pool, worker: str, uid: str) -> bool:
        """Wait until a pod has gone, whatever has its name then; return whether it has."""
        found = _pod(pool, worker)
        limit_s = (found.grace_s if found is not None else 0.0) + GONE_S

        def is_gone(pods: Pods) -> bool:
            meta = (pods.get(worker) or {}).get("metadata") or {}
            return bool(meta.get("uid") != uid)

        return uid == "" or until(self._api, pool.selector, is_gone, limit_s)

    def _set(self, workload: Workload, before: int, after: int) -> Effect:
        for _ in range(TRIES):
            scale = self._api.get(workload.scale, workload.name)
            there = int((scale.get("spec") or {}).get("replicas") or 0)
            if there != before:
                raise _moved(workload, there, after)
            try:
                # With the version that was just compared: a change in between is a conflict, and compared again.
                self._api.call("update", workload.scale, workload.name, body={**scale, "spec": {"replicas": after}})
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                return Effect(changed=True, detail=f"{workload} has {after} replicas, before {before}")
        raise _contended(str(workload))

    def _delete(self, found: Pod) -> None:
        version = found.version
        for _ in range(TRIES):
            body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": found.uid, "resourceVersion": version}}  # fmt: skip
            try:
                self._api.call("delete", PODS, found.name, body=body)
            except ApiError as error:
                if error.status == 404:
                    return
                if error.status != 409:
                    raise
                version = self._same(found)
            else:
                return
        raise _contended(found.name)

    def _same(self, found: Pod) -> str:
        """Return the present version of a pod."""
        meta = self._api.get(PODS, found.name).get("metadata") or {}
        if meta.get("uid") != found.uid:
            raise BusyError("somebody else restarted it", where=found.name, why="it has another pod", hint="look again")
        return str(meta.get("resourceVersion"))


def routed_by_label(found: Pod) -> bool:
    """Return whether a Service that selects by the label chooses a pod."""
    return found.labels.get(ROUTED) == "true"


def _pod(pool: Pool, worker: str) -> Pod | None:
    if pool.pods is None:
        raise ActionError("the pods cannot be read", where=pool.role, why=pool.why, hint="check the account's rights")
    return next((p for p in pool.pods if p.name == worker), None)


def _count(pool: Pool) -> int:
    if pool.replicas is None:
        raise ActionError("the pool cannot be read", where=str(pool.workload), why=pool.unread, hint="check its name")
    return pool.replicas


def _last(pool: Pool, replicas: int) -> str:
    return f"{pool.workload.name}-{first_ordinal(pool.found or {}) + replicas - 1}"


def _moved(workload: Workload, there: int, wanted: Value) -> BusyError:
    return BusyError(
        "the pool has another size by now", where=str(workload), why=f"{there}, to be {wanted}", hint="make a new plan"
    )


def _contended(where: str) -> BusyError:
    return BusyError("others change it all the time", where=where, why=f"{TRIES} conflicts", hint="try again later")
