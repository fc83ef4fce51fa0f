"""Workers that end, hang, join, leave and are replaced; and how many there are."""

from __future__ import annotations

from collections.abc import Callable

from pdops.model.cluster import Role
from pdops.model.frame import EventKind
from pdops.sim.engine import EngineWorker
from pdops.sim.faults import Blow, Strike, Undo
from pdops.sim.router import LATE_S

_DRAIN_LOOK_S = 2.0
_DRAIN_MOST_S = 60.0


def _down(blow: Blow, worker: EngineWorker) -> None:
    if worker.up:
        blow.sim.kill(worker.name)
        blow.sim.happened(EventKind.DOWN, worker.name)


def _back(blow: Blow, worker: EngineWorker, kind: EventKind = EventKind.RESTART, revision: str | None = None) -> None:
    if worker.name in blow.sim.engines and not worker.up:
        blow.sim.start(worker.name)
        blow.sim.happened(kind, worker.name, revision=revision)


def _worker_kill(blow: Blow) -> Undo:
    workers = blow.victims(Role.DECODE)
    never = blow.fault.params.get("restart_after_s") == "never"
    for worker in workers:
        _down(blow, worker)
        if not never:
            blow.later(blow.number("restart_after_s", 60.0), _bound(blow, worker))

    def undo() -> None:
        for worker in workers:
            _back(blow, worker)

    return undo


def _bound(blow: Blow, worker: EngineWorker) -> Callable[[], None]:
    return lambda: _back(blow, worker)


def _prefill_workers_lost(blow: Blow) -> Undo:
    """`count` or `share` of the pool, the last ones, unless they are named; one always stays."""
    workers = blow.workers(Role.PREFILL)
    if not blow.fault.target:
        pool = len(workers)
        count = int(blow.number("count", 0.0)) or round(pool * blow.number("share", 0.5))
        workers = workers[max(1, pool - max(1, count)) :]
    for worker in workers:
        _down(blow, worker)

    def undo() -> None:
        for worker in workers:
            _back(blow, worker)

    return undo


def _worker_freeze(blow: Blow) -> Undo:
    sim, workers = blow.sim, blow.victims(Role.DECODE)
    for worker in workers:
        if worker.works:
            worker.freeze()
            sim.fabric.halt(sim.fabric.nics[worker.name], blow, halted=True)
            blow.later(LATE_S, _looked_at(blow, worker))

    def undo() -> None:
        for worker in workers:
            sim.fabric.halt(sim.fabric.nics[worker.name], blow, halted=False)
            if worker.frozen:
                worker.thaw()
                blow.later(sim.spec.router.health_every_s / 2, _looked_at(blow, worker))

    return undo


def _looked_at(blow: Blow, worker: EngineWorker) -> Callable[[], None]:
    return lambda: blow.sim.router.mark(worker.name, up=worker.works)


def _scale_out(blow: Blow) -> None:
    role = Role(blow.text("role", "decode"))
    for _ in range(int(blow.number("count", 1.0))):
        _join(blow, role)


def _join(blow: Blow, role: Role) -> None:
    worker = blow.sim.add(role, cold=True)
    blow.sim.regroup()
    blow.sim.happened(EventKind.SCALE_OUT, worker.name)


def _ratio(blow: Blow) -> None:
    """Workers leave their pool and come back in the other one (`to`), under another name."""
    sim = blow.sim
    to = Role(blow.text("to", "decode"))
    source = Role.DECODE if to is Role.PREFILL else Role.PREFILL
    workers = blow.workers(source)
    if not blow.fault.target:
        workers = workers[-max(1, int(blow.number("move", 1.0))) :]
    for worker in workers:
        sim.router.cordon(worker.name, cordoned=True)
        sim.happened(EventKind.SCALE_IN, worker.name)
        _drained(blow, worker, lambda w: _moved(blow, w, to))


def _moved(blow: Blow, worker: EngineWorker, to: Role) -> None:
    blow.sim.remove(worker.name)
    blow.later(blow.number("restart_s", 30.0), lambda: _join(blow, to))


def _drained(blow: Blow, worker: EngineWorker, then: Callable[[EngineWorker], None], waited_s: float = 0.0) -> None:
    """Go on once the router has nothing on a worker any more, or after a minute."""
    seat = blow.sim.router.seats.get(worker.name)
    if seat is None:
        return
    if seat.inflight == 0 or waited_s >= _DRAIN_MOST_S:
        then(worker)
        return
    blow.later(_DRAIN_LOOK_S, lambda: _drained(blow, worker, then, waited_s + _DRAIN_LOOK_S))


def _drain(blow: Blow) -> Undo:
    sim = blow.sim
    workers = blow.victims(Role.DECODE)
    for worker in workers:
        sim.router.cordon(worker.name, cordoned=True)
        sim.happened(EventKind.SCALE_IN, worker.name, "planned drain")

    def undo() -> None:
        for worker in workers:
            if worker.name in sim.router.seats:
                sim.router.cordon(worker.name, cordoned=False)
                sim.happened(EventKind.SCALE_OUT, worker.name, "drain ended")

    return undo


def _rolling_deploy(blow: Blow) -> None:
    """One worker after another, or a `share` of them at a time, is drained, ended and begun anew with another revision.

    The first step of the new process takes `warm_s` longer, the usual time where that is not given.
    """
    queue = blow.workers(Role.DECODE)
    revision, warm_s = blow.text("revision", "r2"), blow.number("warm_s", blow.sim.spec.engine.warm_step_s)

    def next_one() -> None:
        if queue:
            worker = queue.pop(0)
            blow.sim.router.cordon(worker.name, cordoned=True)
            _drained(blow, worker, replace)

    def replace(worker: EngineWorker) -> None:
        blow.sim.kill(worker.name)
        blow.sim.happened(EventKind.ROLLOUT, worker.name, revision=revision)
        blow.later(blow.number("restart_s", 20.0), lambda: done(worker))

    def done(worker: EngineWorker) -> None:
        blow.sim.start(worker.name)
        worker.extra_s = warm_s
        blow.sim.router.cordon(worker.name, cordoned=False)
        blow.later(blow.number("every_s", 10.0), next_one)

    for _ in range(max(1, round(len(queue) * blow.number("share", 0.0)))):
        next_one()


def _scaler_swing(blow: Blow) -> Undo:
    """A `share` of a pool is taken away, the newest first, and half a `period_s` later as many join, again and again."""
    sim, role, period_s = blow.sim, Role(blow.text("role", "decode")), max(2.0, blow.number("period_s", 120.0))
    over, away = list[bool](), list[str]()

    def shrink() -> None:
        if over:
            return
        seats = sim.router.seats
        pool = [w for w in sim.engines.values() if w.name.startswith(role.value) and not seats[w.name].cordoned]
        count = min(len(pool) - 1, max(1, round(len(pool) * blow.number("share", 0.5))))
        for worker in pool[len(pool) - count :]:
            away.append(worker.name)
            sim.router.cordon(worker.name, cordoned=True)
            sim.happened(EventKind.SCALE_IN, worker.name)
            _drained(blow, worker, lambda w: sim.remove(w.name))
        blow.later(period_s / 2, grow)

    def grow() -> None:
        for _ in away:
            _join(blow, role)
        away.clear()
        if not over:
            blow.later(period_s / 2, shrink)

    def undo() -> None:
        over.append(True)

    shrink()
    return undo


STRIKES: dict[str, Strike] = {
    "worker-kill": _worker_kill,
    "prefill-workers-lost": _prefill_workers_lost,
    "worker-freeze": _worker_freeze,
    "scale-out": _scale_out,
    "ratio": _ratio,
    "scaler-swing": _scaler_swing,
    "drain": _drain,
    "rolling-deploy": _rolling_deploy,
}
