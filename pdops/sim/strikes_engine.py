"""Faults of engines: speed, sizes, limits, caches, leaks."""

from __future__ import annotations

from collections.abc import Callable

from pdops.model.cluster import Role
from pdops.sim.decode import DecodeWorker
from pdops.sim.engine import EngineWorker
from pdops.sim.faults import Blow, Strike, Undo
from pdops.sim.prefill import PrefillWorker


def _each(workers: list[EngineWorker], do: Callable[[EngineWorker], None]) -> None:
    for worker in workers:
        do(worker)
        worker.replan()


def _slower(blow: Blow, workers: list[EngineWorker], factor: float) -> Undo:
    """With `period_s` off and on, as clocks that heat reduces and rest brings back."""

    def put(slow: bool) -> None:
        _each(workers, lambda w: w.speed.set(blow, max(1e-6, factor) if slow else 1.0))

    return blow.swing(put, blow.number("period_s", 0.0))


def _prefill_speed(blow: Blow) -> Undo:
    return _slower(blow, blow.workers(Role.PREFILL), blow.number("factor", 0.5))


def _decode_speed(blow: Blow) -> Undo:
    return _slower(blow, blow.workers(Role.DECODE), blow.number("factor", 0.5))


def _rank_imbalance(blow: Blow) -> Undo:
    """Steps wait for the rank with most work; vLLM tells of it in its log alone."""
    factor, workers = max(1e-6, blow.number("factor", 2.0)), blow.workers(Role.DECODE)
    for worker in workers:
        text = f"EPLB step: avg_tokens=512.00, max_tokens={512 * factor:.2f}, balancedness={1 / factor:.4f}"
        blow.sim.log(worker.name, text)
    return _slower(blow, workers, 1.0 / factor)


def _kv_blocks(blow: Blow) -> Undo:
    factor = blow.number("factor", 0.5)
    workers = blow.workers(Role.DECODE)
    before = {w.name: w.pool.total for w in workers}
    _each(workers, lambda w: w.pool.resize(max(1, int(w.pool.total * factor))))
    return lambda: _each(workers, lambda w: w.pool.resize(before[w.name]))


def _max_num_seqs(blow: Blow) -> Undo:
    workers = blow.workers(Role.DECODE)
    usual = blow.sim.spec.engine.max_num_seqs
    value = int(blow.number("value", 0.0)) or max(1, round(usual * blow.number("share", 0.25)))

    def put(number: int) -> None:
        for worker in workers:
            worker.max_num_seqs = number
            blow.sim.fact(worker.name, max_num_seqs=str(number))
            worker.replan()

    put(value)
    return lambda: put(usual)


def _max_num_batched_tokens(blow: Blow) -> Undo:
    workers = blow.workers(Role.PREFILL)
    usual = blow.sim.spec.engine.max_num_batched_tokens

    def put(number: int) -> None:
        for worker in workers:
            worker.max_num_batched_tokens = number
            blow.sim.fact(worker.name, max_num_batched_tokens=str(number))
            worker.replan()

    put(max(1, int(blow.number("value", 256.0))))
    return lambda: put(usual)


def _lease_short(blow: Blow) -> Undo:
    """Leases of KV prefilled from now on; those of before keep theirs."""
    engine = blow.sim.spec.engine
    workers = [w for w in blow.workers(Role.PREFILL) if isinstance(w, PrefillWorker)]

    def put(seconds: float, *, renewed: bool) -> None:
        for worker in workers:
            worker.lease_s, worker.lease_renewed = seconds, renewed

    put(max(0.001, blow.number("lease_s", 1.0)), renewed=bool(blow.number("renewed", 0.0)))
    return lambda: put(engine.lease_s, renewed=engine.lease_renewed)


def _cache_wipe(blow: Blow) -> Undo:
    share, every_s = blow.number("share", 1.0), blow.number("every_s", 0.0)
    workers, over = blow.workers(Role.PREFILL), list[bool]()

    def wipe() -> None:
        if over:
            return
        for worker in workers:
            worker.pool.wipe(share)
        if every_s > 0:
            blow.later(every_s, wipe)

    wipe()
    return lambda: over.append(True)


def _cache_disable(blow: Blow) -> Undo:
    def put(worker: EngineWorker, *, enabled: bool) -> None:
        worker.pool.enabled = enabled
        if not enabled:
            worker.pool.wipe()

    workers = blow.workers(Role.PREFILL)
    _each(workers, lambda w: put(w, enabled=False))
    return lambda: _each(workers, lambda w: put(w, enabled=True))


def _kv_leak(blow: Blow) -> Undo:
    """Blocks that nobody holds any more and that are not free; a new process has them back."""
    workers = [w for w in blow.workers(Role.DECODE) if isinstance(w, DecodeWorker)]
    owed = dict.fromkeys((w.name for w in workers), 0.0)
    over = list[bool]()

    def leak() -> None:
        if over:
            return
        for worker in workers:
            owed[worker.name] += blow.number("blocks_per_s", 50.0)
            taken = max(0, min(int(owed[worker.name]), worker.pool.free))
            owed[worker.name] -= taken
            worker.replan()
            worker.pool.leak(taken)
        blow.later(1.0, leak)

    leak()
    return lambda: over.append(True)


def _admission_reject(blow: Blow) -> Undo:
    """What stands before the engine of decode answers a `ratio` of requests with an error; the engine hears of none."""
    workers = [w for w in blow.victims(Role.DECODE) if isinstance(w, DecodeWorker)]
    for worker in workers:
        worker.rejects[blow] = min(1.0, max(0.0, blow.number("ratio", 1.0)))

    def undo() -> None:
        for worker in workers:
            worker.rejects.pop(blow, None)

    return undo


def _step_stall(blow: Blow) -> Undo:
    """All stop in the same step for `stall_s`, every `every_s`, as when experts are placed anew."""
    workers, over = blow.workers(Role.DECODE), list[bool]()
    stall_s, every_s = max(0.0, blow.number("stall_s", 5.0)), max(0.1, blow.number("every_s", 30.0))

    def stall() -> None:
        if over:
            return
        for worker in workers:
            # One with nothing to do is through with it before a request comes.
            if worker.works and worker.requests():
                worker.extra_s += stall_s
                worker.replan()
        blow.later(every_s, stall)

    stall()
    return lambda: over.append(True)


STRIKES: dict[str, Strike] = {
    "prefill-speed": _prefill_speed,
    "decode-speed": _decode_speed,
    "rank-imbalance": _rank_imbalance,
    "kv-blocks": _kv_blocks,
    "max-num-seqs": _max_num_seqs,
    "max-num-batched-tokens": _max_num_batched_tokens,
    "lease-short": _lease_short,
    "cache-wipe": _cache_wipe,
    "cache-disable": _cache_disable,
    "kv-leak": _kv_leak,
    "admission-reject": _admission_reject,
    "step-stall": _step_stall,
}
