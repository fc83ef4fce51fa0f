"""All of it together: one thread that writes down, one that plans, one that acts, and what they say."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pdops.actuate.backend import Backend
from pdops.clock import Clock
from pdops.errors import JournalError, UnreachableError
from pdops.model.times import rfc3339
from pdops.respond.alerts import MAX_ALERTS, Delivery
from pdops.respond.episodes import FINAL, Episode
from pdops.respond.intake import Intake, Taken
from pdops.respond.loop import Loop
from pdops.respond.manager import EVERY_S, Manager
from pdops.respond.planner import Planner
from pdops.respond.runner import Runner
from pdops.respond.status import Deliveries, Status, WatchdogStatus, counted, episode_status, run_status
from pdops.respond.tokens import Tokens
from pdops.respond.troubles import Troubles
from pdops.respond.watchdog import Watchdog
from pdops.runbook.journal import Journal
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.model import Runbook
from pdops.runbook.plan import Asked
from pdops.runbook.signals import Look

T = TypeVar("T")
SHOWN = 200
"""Episodes in a status; those that fire come first."""
_TAKEN_S = 10.0
WRITE_S = 4.0
"""The longest a delivery waits for the journal, seconds: Alertmanager gives up after ten, and comes again only if it is told so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a service is told. `backend` makes one for each thread, or None where plans are for reading."""

    cluster: str
    journal: Path
    runbooks: Mapping[str, Runbook]
    look: Look
    backend: Callable[[], Backend | None]
    tokens: Tokens
    watchdog_s: float
    alertmanager: str | None = None
    receiver: str | None = None
    max_alerts: int = MAX_ALERTS


class Service:
    """Takes alerts, plans and acts until it is closed."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self.watchdog = Watchdog(settings.watchdog_s, clock)
        self.manager = Manager(settings.alertmanager, settings.receiver, settings.cluster, clock)
        self.troubles = Troubles(clock)
        self.answers: Counter[int] = Counter()
        self._taken: Counter[str] = Counter()
        self._suppressed: frozenset[str] = frozenset()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pdops-intake")
        self._asked = asyncio.Event()
        self._intake: Intake | None = None
        self._planner: Planner | None = None
        self._runner: Runner | None = None
        self._planning = Loop("planner", self._make_planner, 1.0)
        self._running = Loop("runner", self._make_runner, 1.0)

    async def open(self) -> None:
        """Begin.

        Raises:
            JournalError: the journal cannot be used.
        """
        self._intake = await self._in_pool(self._make_intake)
        self._planning.start()
        self._running.start()

    async def close(self) -> None:
        """End: a run that goes on is left as it is and resumed by the next process."""
        for loop in (self._planning, self._running):
            loop.stop()
        for loop in (self._planning, self._running):
            if loop.ident is not None:
                await asyncio.to_thread(loop.join, _TAKEN_S)
        if self._intake is not None:
            await self._in_pool(self._intake.journal.close)
        self._pool.shutdown()

    def failure(self) -> Exception | None:
        """Return what ended a thread that must not end, or None."""
        return self._planning.error or self._running.error

    async def take(self, delivery: Delivery, who: str) -> Taken:
        """Write a delivery down, then let it be planned for.

        Raises:
            JournalError: it could not be written.
        """
        try:
            taken = await asyncio.wait_for(self._written(lambda intake: intake.take(delivery, who)), WRITE_S)
        except TimeoutError:
            # What is written after all is known when it comes again.
            error = JournalError(
                "the journal cannot be used", where=str(self.settings.journal),
                why=f"nothing was written for {WRITE_S:g} s: it is locked, or the disk does not answer",
                hint="see who holds it, such as a backup or sqlite3; the alerts are sent again",
            )  # fmt: skip
            self.troubles.unwritten = str(error)
            raise error from None
        self.troubles.taken(who, delivery)
        self._count(taken)
        self._planning.wake()
        return taken

    async def reconcile(self) -> None:
        """Ask Alertmanager what fires and take that.

        Raises:
            UnreachableError: it does not answer.
            JournalError: it could not be written.
        """
        asked_s = self._clock.monotonic()
        listed = await self.manager.listed()
        self.troubles.unreadable(listed.invalid)
        self._count(await self._written(lambda intake: intake.reconcile(listed)))
        if not listed.invalid:
            self.troubles.caught_up(asked_s)
        self._planning.wake()

    async def intake(self, ask: Callable[[Intake], T]) -> T:
        """Return what the intake answers, in its thread."""
        assert self._intake is not None, "opened first"
        found = self._intake
        return await self._in_pool(lambda: ask(found))

    async def follow(self) -> None:
        """Ask Alertmanager again and again, where there is one, and try to write after that failed; for ever."""
        while True:
            with contextlib.suppress(UnreachableError, JournalError):
                # Both are in the status; the next round tries again.
                await self._mend()
                if self.manager.there:
                    await self.reconcile()
            self._asked.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), EVERY_S)

    async def _mend(self) -> None:
        if (why := self.troubles.unwritten) is not None:
            await self._written(lambda intake: intake.wrote_again(why))
            self.troubles.unwritten = None

    async def _written(self, ask: Callable[[Intake], T]) -> T:
        try:
            return await self.intake(ask)
        except JournalError as error:
            self.troubles.unwritten = str(error)
            raise

    def ask_soon(self) -> None:
        """Ask Alertmanager now, as a delivery was cut or refused."""
        self._asked.set()

    def wake(self) -> None:
        """Let what was decided be carried out."""
        self._running.wake()

    def carry_on(self, run_id: str) -> None:
        """Let a run go on that was held or aborted."""
        if self._runner is not None:
            self._runner.resume(run_id)
        self._running.wake()

    async def status(self) -> Status:
        """Return how everything is.

        Raises:
            JournalError: the journal cannot be read.
        """
        return await self.intake(self._status)

    def _status(self, intake: Intake) -> Status:
        pulse, manager, frozen = self.watchdog.pulse(), self.manager.status(), KillSwitch(intake.journal)
        known = tuple(self._newest(e) for e in intake.episodes())
        episodes = sorted(known, key=lambda e: (not e.firing, -e.heard_at_s))[:SHOWN]
        runs = tuple(
            run_status(r) for r in intake.journal.runs(open_only=True)
            if r.cluster == self.settings.cluster and r.plan["asked"] == Asked.ALERT
        )  # fmt: skip
        problems = tuple(self._problems(intake.journal))
        return Status(
            cluster=self.settings.cluster,
            at=rfc3339(self._clock.now()),
            ok=not problems,
            problems=problems,
            frozen=frozen.why(self.settings.cluster),
            watchdog=WatchdogStatus(state=pulse.state, age_s=pulse.age_s, limit_s=self.watchdog.limit_s),
            alertmanager=manager,
            deliveries=Deliveries(**{name: self._taken[name] for name in ("new", "known", "invalid", "truncated")}),
            modes={name: r.mode.value for name, r in sorted(self.settings.runbooks.items()) if r.triggers.alerts},
            firing=counted(known),
            episodes=tuple(episode_status(e) for e in episodes),
            episodes_shown=len(episodes),
            episodes_total=len(known),
            runs=runs,
        )

    def _newest(self, episode: Episode) -> Episode:
        """Return an episode with what was made of it at the last look, which may not be written down."""
        made = self._planner.newest.get(episode.id) if self._planner is not None and episode.firing else None
        if made is None or (episode.decision is not None and episode.decision.made in FINAL):
            return episode
        return replace(episode, decision=made)

    def _problems(self, journal: Journal) -> Iterator[str]:
        pulse, manager = self.watchdog.pulse(), self.manager.status()
        if not pulse.alive:
            yield f"{pulse.told()}; nothing starts by itself"
        if manager.state == "waiting":
            yield "Alertmanager has not said yet what fires"
        if manager.state == "failing":
            yield f"Alertmanager does not say what fires: {manager.why}"
        yield from self.troubles.told(self.settings.tokens.role_of)
        if (error := journal.astray()) is not None:
            yield f"{error}: nothing is written down; {error.hint}"
        if self.settings.tokens.problem is not None:
            yield self.settings.tokens.problem
        if self._taken["truncated"] and not self.manager.there:
            yield f"{self._taken['truncated']} alerts were left out by Alertmanager: set max_alerts: 0"
        for loop in (self._planning, self._running):
            if loop.trouble is not None:
                yield loop.trouble
        if self._runner is not None:
            yield from (f"{run}: {why}" for run, why in sorted(self._runner.problems.items()))

    def _count(self, taken: Taken) -> None:
        self._taken.update(new=taken.new, known=taken.known, invalid=taken.invalid, truncated=taken.truncated)

    async def _in_pool(self, ask: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, ask)

    def _make_intake(self) -> Intake:
        journal = Journal(self.settings.journal, self._clock)
        return Intake(journal, self.watchdog, self._clock, self.settings.cluster, self._suppress)

    def _suppress(self, episodes: frozenset[str]) -> None:
        self._suppressed = episodes

    @contextmanager
    def _make_planner(self) -> Iterator[Planner]:
        with Journal(self.settings.journal, self._clock) as journal:
            self._planner = Planner(
                journal, self.settings.backend(), self.settings.look, self.settings.runbooks,
                cluster=self.settings.cluster, clock=self._clock, watchdog=self.watchdog,
                suppressed=lambda: self._suppressed, acts=self._running.wake,
            )  # fmt: skip
            try:
                yield self._planner
            finally:
                # A journal that cannot be written was said as a problem; the end of the process does not wait for it.
                with contextlib.suppress(JournalError):
                    self._planner.close()

    @contextmanager
    def _make_runner(self) -> Iterator[Runner | _Idle]:
        backend = self.settings.backend()
        if backend is None:
            yield _Idle()
            return
        with Journal(self.settings.journal, self._clock) as journal:
            self._runner = Runner(
                journal, backend, self.settings.look, cluster=self.settings.cluster, clock=self._clock,
                sleep=self._running.sleep, watchdog=self.watchdog,
            )  # fmt: skip
            yield self._runner


class _Idle:
    """Where nothing can be changed nothing is carried out."""

    def step(self) -> None:
        """Do nothing."""
