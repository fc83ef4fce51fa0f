"""Which workers the router has, and which of them may get requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pdops.model.cluster import Role
from pdops.router.settings import RouterError, WorkerSpec


class UnknownWorkerError(RouterError):
    """No worker has that id."""


class DuplicateWorkerError(RouterError):
    """A worker of that id is there already."""


@dataclass(slots=True, eq=False)
class Worker:
    """One worker as the router sees it now.

    `up` is None until it was asked for the first time. `inflight` are the legs that hold a place on it.
    """

    spec: WorkerSpec
    cordoned: bool = False
    up: bool | None = None
    why: str = "not asked yet"
    late: int = 0
    inflight: int = 0

    @property
    def id(self) -> str:
        """Its id."""
        return self.spec.id

    @property
    def zone(self) -> str | None:
        """Its zone, None when it was not told."""
        return self.spec.zone

    @property
    def routable(self) -> bool:
        """Say whether a new request may go there."""
        return self.up is True and not self.cordoned

    def shown(self) -> dict[str, object]:
        """Return it for a reader."""
        return {
            "id": self.id,
            "role": self.spec.role.value,
            "url": self.spec.url,
            "zone": self.zone,
            "up": self.up,
            "why": self.why,
            "cordoned": self.cordoned,
            "inflight": self.inflight,
        }


@dataclass(slots=True)
class Registry:
    """Workers by id.

    `removed` remembers ids taken out on purpose, so that a restart with the same command line does not bring them back.
    `listeners` are called after each change of membership, cordon or health.
    """

    workers: dict[str, Worker] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def add(self, spec: WorkerSpec, *, cordoned: bool = False) -> Worker:
        """Take a worker in.

        Raises:
            DuplicateWorkerError: its id is taken.
        """
        if spec.id in self.workers:
            raise DuplicateWorkerError(
                "a worker of that id is there already", where=spec.id, hint="remove it first, or choose another id"
            )
        worker = self.workers[spec.id] = Worker(spec, cordoned=cordoned)
        self.removed.discard(spec.id)
        self.tell()
        return worker

    def remove(self, worker_id: str) -> Worker:
        """Take a worker out; requests it has already go on.

        Raises:
            UnknownWorkerError: there is none of that id.
        """
        worker = self.get(worker_id)
        del self.workers[worker_id]
        self.removed.add(worker_id)
        self.tell()
        return worker

    def cordon(self, worker_id: str, *, cordoned: bool) -> Worker:
        """Keep new requests away from a worker, or let them come again.

        Raises:
            UnknownWorkerError: there is none of that id.
        """
        worker = self.get(worker_id)
        worker.cordoned = cordoned
        self.tell()
        return worker

    def get(self, worker_id: str) -> Worker:
        """Return the worker of that id.

        Raises:
            UnknownWorkerError: there is none.
        """
        worker = self.workers.get(worker_id)
        if worker is None:
            known = ", ".join(self.workers) or "none"
            raise UnknownWorkerError(
                "no worker of that id",
                where=worker_id[:80],
                why=f"known are: {known}",
                hint="GET /admin/workers lists them",
            )
        return worker

    def of(self, role: Role) -> list[Worker]:
        """Return the workers of a role, in the order they came."""
        return [w for w in self.workers.values() if w.spec.role is role]

    def mark(self, worker: Worker, *, up: bool, why: str) -> None:
        """Note whether a worker answers."""
        changed = worker.up is not up
        worker.up, worker.why = up, why
        if changed:
            self.tell()

    def tell(self) -> None:
        """Call the listeners."""
        for listener in self.listeners:
            listener()


def seeded(
    given: Iterable[WorkerSpec], known: Iterable[tuple[WorkerSpec, bool]] = (), removed: Iterable[str] = ()
) -> Registry:
    """Return a registry from the command line and from what an earlier run left.

    The command line says where a worker is, the earlier run says which workers were added, removed or cordoned.

    Raises:
        DuplicateWorkerError: the command line names an id twice.
        RouterError: an id changed its role.
    """
    registry = Registry(removed=set(removed))
    stored = {spec.id: (spec, cordoned) for spec, cordoned in known}
    for spec in given:
        if spec.id in registry.removed:
            continue
        old, cordoned = stored.pop(spec.id, (spec, False))
        if old.role is not spec.role:
            raise RouterError(
                "a worker changed its role",
                where=spec.id,
                why=f"it was {old.role} in the state file and is {spec.role} now",
                hint="use another id, or remove the state file",
            )
        registry.add(spec, cordoned=cordoned)
    for spec, cordoned in stored.values():
        registry.add(spec, cordoned=cordoned)
    return registry
