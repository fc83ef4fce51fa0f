"""The KV store as a workload of one pod: stopped by having none, started by having one, restarted by deleting its pod."""

from __future__ import annotations

from pdops.actuate.backend import Effect, Seen, Value
from pdops.actuate.kubernetes_change import Changes
from pdops.actuate.kubernetes_model import Operated, Pod, Workload
from pdops.actuate.kubernetes_read import Pool, Reader, count_starts
from pdops.actuate.kubernetes_write import Writer
from pdops.errors import ActionError

ACTIONS = ("store.start", "store.stop", "store.restart")


class Store:
    """Reads and changes the store.

    Args:
        operated: which workload it is.
        reader: reads it.
        writer: sets its size.
        changes: restart its pod.
    """

    def __init__(self, operated: Operated, reader: Reader, writer: Writer, changes: Changes) -> None:
        assert operated.store is not None, "made only where there is one"
        self.workload: Workload = operated.store
        self._id, self._reader, self._writer, self._changes = operated.store_id, reader, writer, changes

    def observe(self) -> dict[str, Seen]:
        """Return what of the store is known."""
        pool, here, source = self._pool(), f"store/{self._id}", str(self.workload)
        known, why = self._reader.starts()
        if pool.pods is None or pool.replicas is None:
            return {f"{here}/{part}": Seen(None, source, pool.unread) for part in ("process", "serving", "starts")}
        found = _newest(pool)
        runs = found is not None and found.phase == "Running"
        process = "stopped" if found is None and pool.replicas == 0 else "running" if runs else "absent"
        serving = bool(runs and found is not None and found.ready and not found.ending)
        return {
            f"{here}/process": Seen(process, source),
            f"{here}/serving": Seen(serving, source, "" if serving else "its pod is not ready"),
            f"{here}/starts": Seen(
                count_starts(self._id, found, known) if found is not None and known is not None else None,
                source,
                why or ("it has no pod now" if found is None else ""),
            ),
        }

    def apply(self, action: str, store: str, starts: Value) -> Effect:
        """Do one of `ACTIONS`.

        Raises:
            ActionError: it cannot be done.
            BusyError: somebody else changed it.
        """
        if store != self._id:
            raise ActionError("no such store", where=store, why=f"{self.workload} is {self._id}", hint="name that one")
        pool = self._pool()
        if pool.replicas is None or pool.pods is None:
            raise ActionError(
                "the store cannot be read", where=str(self.workload), why=pool.unread, hint="check its name"
            )
        if action == "store.restart":
            return self._changes.restart_pod(pool, store, _newest(pool), starts)
        wanted = 1 if action == "store.start" else 0
        if (pool.replicas > 0) == (wanted > 0):
            return Effect(changed=False, detail=f"{self.workload} has {pool.replicas} replicas")
        found = _newest(pool)
        if found is not None:
            self._changes.note({store: found})
        effect = self._writer.resize(self.workload, pool.replicas, wanted)
        if wanted == 0 and found is not None and not self._writer.gone(pool.selector, found):
            raise ActionError("it has not ended", where=store, why="its time to end is over", hint="look at its node")
        return effect

    def _pool(self) -> Pool:
        return self._reader.workload("kvstore", self.workload)


def _newest(pool: Pool) -> Pod | None:
    """Return the pod that counts: one that stays before one that ends."""
    return min(pool.pods or (), key=lambda p: p.ending, default=None)
