"""Single writes, each compared with what was read right before: nothing that others set is undone."""

from __future__ import annotations

from pdops.actuate.backend import Effect, Value
from pdops.actuate.kubernetes_api import PODS, Api, ApiError, Object
from pdops.actuate.kubernetes_lease import Leader
from pdops.actuate.kubernetes_model import Pod, Workload
from pdops.actuate.kubernetes_watch import Pods, until
from pdops.errors import BusyError

TRIES = 4
"""How often a change is compared and sent again when only what does not matter to it was changed meanwhile."""
GONE_S = 120.0
"""How much longer than its own grace period a pod is waited for, in seconds."""


class Writer:
    """Writes sizes and pods.

    Args:
        api: where they are.
        leader: is asked right before each write whether this pdops still may.
    """

    def __init__(self, api: Api, leader: Leader) -> None:
        self._api, self._leader = api, leader

    def mark(self, found: Pod, part: str, key: str, value: str) -> Effect:
        """Set a label or annotation of a pod.

        Raises:
            BusyError: the worker has another pod by now, or others change it all the time.
        """
        version = found.version
        for _ in range(TRIES):
            meta = {part: {key: value}, "uid": found.uid, "resourceVersion": version}
            self._leader.keep()
            try:
                self._api.call("patch", PODS, found.name, body={"metadata": meta})
            except ApiError as error:
                if error.status != 409:
                    raise
                version = self._same(found)
            else:
                return Effect(changed=True, detail=f"{key} of {found.name} is {value}")
        raise _contended(found.name)

    def gone(self, selector: str, found: Pod) -> bool:
        """Wait until a pod has gone, whatever takes its place; return whether it has.

        Raises:
            ApiError: it cannot be seen.
        """

        def is_gone(pods: Pods) -> bool:
            return all((p.get("metadata") or {}).get("uid") != found.uid for p in pods.values())

        return until(self._api, selector, is_gone, found.grace_s + GONE_S, self._leader.keep)

    def resize(self, workload: Workload, before: int, after: int) -> Effect:
        """Set the number of replicas, as long as it is what it was.

        Raises:
            BusyError: it is another by now, or others change it all the time.
        """
        for _ in range(TRIES):
            scale = self._api.get(workload.scale, workload.name)
            there = int((scale.get("spec") or {}).get("replicas") or 0)
            if there != before:
                raise moved(workload, there, after)
            self._leader.keep()
            try:
                # With the version that was just compared: a change in between is a conflict, and compared again.
                self._api.call("update", workload.scale, workload.name, body={**scale, "spec": {"replicas": after}})
            except ApiError as error:
                if error.status != 409:
                    raise
            else:
                return Effect(changed=True, detail=f"{workload} has {after} replicas, before {before}")
        raise _contended(str(workload))

    def delete(self, found: Pod) -> None:
        """Delete this very pod; one that has gone is no error.

        Raises:
            BusyError: another has its name by now, or others change it all the time.
        """
        version = found.version
        for _ in range(TRIES):
            self._leader.keep()
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


def moved(workload: Workload, there: int, wanted: Value) -> BusyError:
    """Return the error of a size that somebody else set."""
    return BusyError(
        "the pool has another size by now", where=str(workload), why=f"{there}, to be {wanted}", hint="make a new plan"
    )


def _contended(where: str) -> BusyError:
    return BusyError("others change it all the time", where=where, why=f"{TRIES} conflicts", hint="try again later")
