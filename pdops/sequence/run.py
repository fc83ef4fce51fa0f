"""Go through stages: begin what may begin, probe what has begun, give up in time, and say why at every moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pdops.clock import Clock
from pdops.errors import DeploymentError
from pdops.sequence.stages import Order, Stage


class Status(StrEnum):
    """How far a stage is."""

    WAITING = "waiting"
    RUNNING = "running"
    READY = "ready"
    SKIPPED = "skipped"
    DEGRADED = "degraded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one probe said. `fatal` means that waiting longer cannot help."""

    ok: bool
    detail: str = ""
    fatal: bool = False


class Effect(Protocol):
    """What a stage does to the world, and how it is seen to have worked.

    `begin` must look first: after a crash it is called again on what is there already.
    """

    def begin(self) -> None:
        """Start it, or adopt what runs."""
        ...

    def probe(self) -> Outcome:
        """Look once; bounded in time."""
        ...


@dataclass(frozen=True, slots=True)
class Skip:
    """In place of an effect: the stage has nothing to do here, and why."""

    why: str


@dataclass(slots=True)
class Progress:
    """Where one stage stands; times in seconds of the clock's `now`."""

    stage: Stage
    status: Status = Status.WAITING
    since_s: float = 0.0
    detail: str = ""
    good: int = 0
    next_s: float = 0.0
    began_s: float = 0.0


class StageFailed(DeploymentError):  # noqa: N818  it is an outcome, named as the screen says it
    """A stage could not be made ready, so the order was given up."""

    def __init__(self, progress: Progress, why: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(f"stage {progress.stage.id} failed", where=where, why=why, hint=hint)
        self.progress = progress


Report = Callable[[tuple[Progress, ...]], None]
Sleep = Callable[[float], None]


def run(
    order: Order, effects: Mapping[str, Effect | Skip], *, clock: Clock, sleep: Sleep, report: Report
) -> tuple[Progress, ...]:
    """Bring every stage to an end and return where each stands.

    Stages whose dependencies are met go on side by side.

    Args:
        order: what there is to do.
        effects: how, by stage id; a `Skip` says why there is nothing to do.
        clock: where time comes from.
        sleep: waits seconds between looks.
        report: called with every change, and at least once a second.

    Raises:
        StageFailed: a stage that stops the rest ran out of its budget, or said that waiting cannot help.
    """
    all_ = tuple(Progress(stage, since_s=clock.now()) for stage in order.stages)
    by_id = {p.stage.id: p for p in all_}
    told = clock.monotonic() - 1.0
    while True:
        changed = False
        for progress in all_:
            if progress.status is Status.WAITING and all(_passed(by_id[a]) for a in progress.stage.after):
                changed |= _begin(progress, effects[progress.stage.id], clock)
            elif progress.status is Status.WAITING:
                waits = [a for a in progress.stage.after if not _passed(by_id[a])]
                progress.detail = f"waits for {', '.join(waits)}"
            elif progress.status is Status.RUNNING and clock.monotonic() >= progress.next_s:
                changed |= _look(progress, effects[progress.stage.id], clock)
            if progress.status is Status.FAILED:
                report(all_)
                raise StageFailed(progress, progress.detail)
        if changed or clock.monotonic() - told >= 1.0:
            report(all_)
            told = clock.monotonic()
        if all(_passed(p) for p in all_):
            return all_
        sleep(0.1)


def _passed(progress: Progress) -> bool:
    return progress.status in (Status.READY, Status.SKIPPED, Status.DEGRADED)


def _begin(progress: Progress, effect: Effect | Skip, clock: Clock) -> bool:
    progress.since_s, progress.began_s = clock.now(), clock.monotonic()
    if isinstance(effect, Skip):
        progress.status, progress.detail = Status.SKIPPED, effect.why
        return True
    progress.status, progress.detail = Status.RUNNING, ""
    progress.next_s = clock.monotonic()
    try:
        effect.begin()
    except DeploymentError as error:
        _give_up(progress, f"{error}" + (f" ({error.hint})" if error.hint else ""))
    return True


def _look(progress: Progress, effect: Effect | Skip, clock: Clock) -> bool:
    assert not isinstance(effect, Skip), "a skipped stage is never running"
    stage, was = progress.stage, progress.detail
    outcome = effect.probe()
    age = clock.monotonic() - progress.began_s
    progress.next_s = clock.monotonic() + stage.interval_s
    progress.good = progress.good + 1 if outcome.ok else 0
    progress.detail = outcome.detail
    if outcome.ok and progress.good >= stage.successes and age >= stage.min_age_s:
        progress.status, progress.since_s = Status.READY, clock.now()
        return True
    if outcome.ok and progress.good < stage.successes:
        progress.detail = f"{progress.good} of {stage.successes} good looks in a row. {outcome.detail}".rstrip()
    if outcome.fatal:
        _give_up(progress, outcome.detail)
    elif age > stage.budget_s:
        _give_up(progress, f"not ready within {stage.budget_s:.0f} s: {outcome.detail}")
    return progress.status is not Status.RUNNING or progress.detail != was


def _give_up(progress: Progress, why: str) -> None:
    progress.detail = why
    progress.status = Status.DEGRADED if progress.stage.if_fails == "degrade" else Status.FAILED
