"""What comes in is written down before it is answered, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pdops.clock import Clock
from pdops.errors import JournalError, RefusedError
from pdops.respond.alerts import WATCHDOG, Alert, Delivery, Listed, Status
from pdops.respond.episodes import Episode, Episodes
from pdops.respond.tokens import Person
from pdops.respond.watchdog import Watchdog
from pdops.runbook import aborting, approval
from pdops.runbook.journal import Journal, Run, Transaction
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.plan import Asked
from pdops.runbook.states import RunState

ACTOR = "respond"
"""Who the journal names for what pdops does by itself."""
RESUME = "resume"
"""What is noted of a run that a person lets go on."""
ABSENT_S = 120.0
"""An alert that Alertmanager's API has not had for so long is over: rules are sent again every minute while they fire, and
an Alertmanager that was just started has nothing yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What came of a delivery, as numbers of alerts."""

    new: int = 0
    known: int = 0
    invalid: int = 0
    truncated: int = 0


class Intake:
    """Writes down what Alertmanager delivers and what people decide.

    Args:
        journal: where it is written.
        watchdog: told when the Watchdog comes.
        clock: where time comes from.
        cluster: whose Watchdog counts.
        suppressed: takes the episodes that are silenced or inhibited now.
    """

    def __init__(
        self,
        journal: Journal,
        watchdog: Watchdog,
        clock: Clock,
        cluster: str,
        suppressed: Callable[[frozenset[str]], None] = lambda _: None,
    ) -> None:
        self.journal, self._watchdog, self._clock, self._cluster = journal, watchdog, clock, cluster
        self._suppressed = suppressed
        self._episodes = Episodes(journal)
        self._absent: dict[str, float] = {}
        self._back: frozenset[str] = frozenset()

    def take(self, delivery: Delivery, who: str) -> Taken:
        """Write a delivery down; when this returns it is on disk.

        Raises:
            JournalError: it could not be; nothing of it was.
        """
        new = known = 0
        self._episodes.follow()
        with self.journal.transaction() as tx:
            for alert in delivery.alerts:
                if alert.name == WATCHDOG:
                    if alert.status is Status.FIRING and alert.about(self._cluster):
                        self._watchdog.hear()
                elif self._deliver(tx, alert, who):
                    new += 1
                else:
                    known += 1
            for bad in delivery.invalid:
                tx.deliver(bad.key(), actor=who, detail=f"cannot be read: {bad.why}")
        return Taken(new=new, known=known, invalid=len(delivery.invalid), truncated=delivery.truncated)

    def reconcile(self, listed: Listed) -> Taken:
        """Take what Alertmanager has now: it does not send again what it was once told was received.

        What is silenced or inhibited there is not begun here. What fired and is not there any more is resolved, unless something
        that is there cannot be read. What is over and there twice fires again: once may be a list from before its end.
        """
        now_s = self._clock.monotonic()
        if listed.watchdog_at_s is not None:
            self._watchdog.hear(self._clock.now() - listed.watchdog_at_s)
        self._suppressed(listed.suppressed)
        self._episodes.follow()
        there = {alert.episode for alert in listed.alerts}
        absent = [e for e in self._episodes.firing() if e.id not in there and not listed.invalid]
        self._absent = {e.id: self._absent.get(e.id, now_s) for e in absent}
        over = [e for e in absent if now_s - self._absent[e.id] >= ABSENT_S]
        new = 0
        active = [a for a in listed.alerts if a.episode not in listed.suppressed]
        back = {e.id: e for a in active if (e := self._episodes.get(a.episode)) is not None and not e.firing}
        again = [e for e in back.values() if e.id in self._back]
        with self.journal.transaction() as tx:
            new += sum(self._deliver(tx, alert, ACTOR) for alert in active)
            for episode in over:
                key = _key(episode.id, Status.RESOLVED, episode.again)
                body = _body(episode, Status.RESOLVED)
                new += tx.deliver(key, actor=ACTOR, detail="Alertmanager has it no more", alert=body)
            for episode in again:
                key = _key(episode.id, Status.FIRING, episode.again + 1)
                body = {**_body(episode, Status.FIRING), "again": True}
                tx.deliver(key, actor=ACTOR, detail="Alertmanager has it again", alert=body)
        self._back = frozenset(back) - {e.id for e in again}
        return Taken(new=new, known=len(active) + len(over) - new)

    def _deliver(self, tx: Transaction, alert: Alert, who: str) -> bool:
        known = self._episodes.get(alert.episode)
        again = known.again if known is not None else 0
        # News of what is known to be over is late; it begins nothing.
        late = alert.status is Status.FIRING and tx.delivered(_key(alert.episode, Status.RESOLVED, again))
        key = _key(alert.episode, alert.status, again)
        return tx.deliver(key, actor=who, detail=alert.name, alert=_body(alert, alert.status, late=late))

    def wrote_again(self, why: str) -> None:
        """Write down that for a while nothing could be, and why.

        Raises:
            JournalError: it still cannot.
        """
        say = f"{self._cluster}: alerts could not be written down ({why}); now they can"
        with self.journal.transaction() as tx:
            tx.append("noted", actor=ACTOR, body={"say": say})

    def episodes(self) -> tuple[Episode, ...]:
        """Return the episodes as they are now."""
        self._episodes.follow()
        return self._episodes.all()

    def approve(self, run_id: str, person: Person) -> Run:
        """Approve a run.

        Raises:
            JournalError: there is no such run.
            RefusedError: it waits for no approval, is too old, or this person asked for it.
        """
        return approval.approve(self.journal, self.run(run_id).id, person.name)

    def abort(self, run_id: str, person: Person) -> Run:
        """Ask a run to end; what it did is taken back by whoever carries it out.

        Raises:
            JournalError: there is no such run, or it has ended.
        """
        return aborting.ask(self.journal, self.run(run_id).id, person.name, f"by {person.name}")

    def run(self, run_id: str) -> Run:
        """Return a run of this cluster.

        Raises:
            JournalError: there is none.
        """
        run = self.journal.run(run_id)
        if run.cluster != self._cluster:
            raise JournalError("no such run", where=run_id[:80], hint="`pdops runbook log` lists the runs")
        return run

    def resumable(self, run_id: str, person: Person) -> Run:
        """Return a run that is held and that alerts asked for, and write down who lets it go on.

        Raises:
            JournalError: there is no such run.
            RefusedError: it is not held.
        """
        run = self.run(run_id)
        if run.state is not RunState.HELD:
            raise RefusedError("the run is not held", where=run.id, why=f"it is {run.state}", hint="look at it")
        if run.plan["asked"] != Asked.ALERT:
            raise RefusedError(
                "a person started it",
                where=run.id,
                why=run.requester,
                hint=f"pdops runbook resume {run.id} -c pdops.yaml",
            )
        with self.journal.transaction() as tx:
            tx.append("noted", run.id, actor=person.name, body={"asked": RESUME})
        return run

    def freeze(self, person: Person, why: str) -> str | None:
        """Freeze this cluster and return what is said of it."""
        switch = KillSwitch(self.journal)
        switch.on(person.name, why, self._cluster)
        return switch.why(self._cluster)

    def thaw(self, person: Person) -> str | None:
        """Let this cluster go on and return what still freezes it."""
        switch = KillSwitch(self.journal)
        switch.off(person.name, self._cluster)
        return switch.why(self._cluster)


def _key(episode: str, status: Status, again: int) -> str:
    """Return what is the same for every delivery of the same news of an episode, each time that it fires."""
    return f"alert|{episode}|{status}" + (f"|{again}" if again else "")


def _body(about: Alert | Episode, status: Status, *, late: bool = False) -> dict[str, object]:
    name = about.episode if isinstance(about, Alert) else about.id
    return {"episode": name, "status": status, "late": late, "name": about.name, "labels": dict(about.labels),
            "starts_ms": about.starts_ms}  # fmt: skip
