"""Changes of pools: one worker more, one less, one started again."""

from __future__ import annotations

from collections.abc import Mapping

from pdops.actuate.backend import Effect, Value
from pdops.actuate.kubernetes_api import Api
from pdops.actuate.kubernetes_lease import Leader, starts_of
from pdops.actuate.kubernetes_model import DELETION_COST, ROUTED, Pod, first_ordinal
from pdops.actuate.kubernetes_owner import lower_floor, raise_floor
from pdops.actuate.kubernetes_read import Pool, Reader, count_starts, next_starts
from pdops.actuate.kubernetes_write import Writer, moved
from pdops.errors import ActionError, BusyError

_FIRST = "-2147483648"


class Changes:
    """Changes pools.

    Args:
        api: where they are.
        reader: reads them.
        writer: writes them.
        leader: is asked right before each change whether this pdops still may.
    """

    def __init__(self, api: Api, reader: Reader, writer: Writer, leader: Leader) -> None:
        self._api, self._reader, self._writer, self._leader = api, reader, writer, leader

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
            raise moved(pool.workload, there, replicas)
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
        if owner is not None:
            self._leader.keep()
            return raise_floor(self._api, owner, there, there + 1)
        return self._writer.resize(pool.workload, there, there + 1)

    def may_scale_in(self, pool: Pool, worker: str, replicas: Value) -> Effect | None:
        """Return the effect when nothing is left to do, None when the worker may go.

        Raises:
            ActionError: it is not the one that would go, or somebody else sets the size.
            BusyError: the pool is of another size by now.
        """
        there, found = _count(pool), _pod(pool, worker)
        if there == replicas and (found is None or found.ending):
            if found is not None:
                self._writer.gone(pool.selector, found)
            return Effect(changed=False, detail=f"{worker} is gone")
        if not isinstance(replicas, int) or there - 1 != replicas:
            raise moved(pool.workload, there, replicas)
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
            self._writer.mark(found, "annotations", DELETION_COST, _FIRST)
        if owner is not None:
            self._leader.keep()
            return lower_floor(self._api, owner, there, there - 1)
        effect = self._writer.resize(pool.workload, there, there - 1)
        if found is not None and not self._writer.gone(pool.selector, found):
            return Effect(changed=True, detail=f"{effect.detail}; {worker} has not ended yet")
        return Effect(changed=True, detail=f"{effect.detail}; {worker} is gone")

    def restart(self, pool: Pool, worker: str, starts: Value) -> Effect:
        """Delete the pod of a worker, which its StatefulSet makes again, and wait until that one has gone.

        Raises:
            ActionError: a disruption budget keeps it, or it cannot be done.
            BusyError: somebody else restarted it.
        """
        return self.restart_pod(pool, worker, _pod(pool, worker), starts)

    def restart_pod(self, pool: Pool, worker: str, found: Pod | None, starts: Value) -> Effect:
        """Do the same to a pod that may be called otherwise. See `restart`."""
        known = starts_of(self._reader.lease())
        if found is None:
            raise ActionError("it has no pod", where=worker, why=f"{pool.workload} is to make one", hint="wait for it")
        now = count_starts(worker, found, known)
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
        self.note({p.name: p for p in pool.pods or () if pool.role != "kvstore"} | {worker: found})
        self._writer.delete(found)
        if not self._writer.gone(pool.selector, found):
            raise ActionError("it has not ended", where=worker, why="its time to end is over", hint="look at its node")
        return Effect(changed=True, detail=f"pod {found.uid} of {worker} is gone; {pool.workload} makes the next")

    def note(self, pods: Mapping[str, Pod]) -> None:
        """Write down how often workers were started up to now, by id, so that a new pod counts as one start more.

        Raises:
            FencedError: somebody else has taken the lease.
            BusyError: others write it all the time.
        """
        known = starts_of(self._reader.lease())
        self._leader.note(known | next_starts(pods, known))


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
