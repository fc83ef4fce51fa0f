"""Episodes of alerts as the journal has them: what was delivered, and what was made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from pdops.respond.alerts import Status
from pdops.runbook.journal import Event, Journal, Transaction

KEPT = 1000
"""Episodes that are over and still shown."""


class Made(StrEnum):
    """What was made of an episode."""

    NO_RUNBOOK = "no-runbook"
    OTHER_CLUSTER = "other-cluster"
    ADVISED = "advised"
    """A plan was made and written; nobody acts."""
    WAITS = "waits"
    """A run waits for approval."""
    STARTED = "started"
    """A run was started by itself."""
    JOINED = "joined"
    """A run or an advice for another episode is about this one as well."""
    OPENING = "opening"
    """Written down before a run is opened."""
    DISAGREES = "disagrees"
    """The diagnosis names something else, or nothing."""
    HELD = "held"
    """Something is not known that has to be."""
    REFUSED = "refused"
    NO_DATA = "no-data"
    FROZEN = "frozen"
    LATER = "later"
    """Another run, a cool-down or a budget comes first."""
    WATCHDOG_SILENT = "watchdog-silent"
    SILENCED = "silenced"


FINAL = frozenset({Made.NO_RUNBOOK, Made.OTHER_CLUSTER, Made.ADVISED, Made.WAITS, Made.STARTED, Made.JOINED})
"""Nothing more is made of these while they fire; the others are looked at again."""
_QUIET = frozenset(
    {Made.NO_RUNBOOK, Made.OTHER_CLUSTER, Made.OPENING, Made.WAITS, Made.STARTED, Made.JOINED, Made.SILENCED}
)
"""Runs tell of themselves, and the rest concerns nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was made of an episode: why, and the runbook, run or written plan it came to."""

    made: Made
    why: str = ""
    runbook: str = ""
    run: str = ""
    plan: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One alert from when it began to when it was resolved. `heard_at_s` is Unix seconds; `requester` delivered it.

    `again` is how often it was found to fire although it had been taken as over.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    starts_ms: int
    requester: str
    heard_at_s: float
    firing: bool
    decision: Decision | None = None
    again: int = 0


class Episodes:
    """Follows a journal; a new one over the same journal comes to the same."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._seq = 0
        self._all: dict[str, Episode] = {}

    def follow(self) -> None:
        """Take in what was written since."""
        for event in self._journal.events("", after=self._seq):
            self._seq = event.seq
            if event.kind == "delivered" and isinstance(event.body.get("alert"), dict):
                self._delivered(event, event.body["alert"])
            elif event.kind == "noted" and isinstance(event.body.get("episode"), str):
                self._decided(event)
        over = [e.id for e in self._all.values() if not e.firing]
        for old in over[: max(0, len(over) - KEPT)]:
            del self._all[old]

    def all(self) -> tuple[Episode, ...]:
        """Return those that fire and the newest that are over, oldest first."""
        return tuple(self._all.values())

    def firing(self) -> tuple[Episode, ...]:
        """Return those that fire, oldest first."""
        return tuple(e for e in self._all.values() if e.firing)

    def get(self, episode_id: str) -> Episode | None:
        """Return one of those, or None."""
        return self._all.get(episode_id)

    def of_run(self, run_id: str) -> tuple[Episode, ...]:
        """Return those a run is about."""
        return tuple(e for e in self._all.values() if e.decision is not None and e.decision.run == run_id)

    def _delivered(self, event: Event, alert: Mapping[str, Any]) -> None:
        known = self._all.get(alert["episode"])
        firing = alert["status"] == Status.FIRING and not alert["late"]
        if known is not None and alert.get("again"):
            # What was made of it ended with it.
            self._all[known.id] = replace(known, firing=True, decision=None, again=known.again + 1)
            return
        if known is not None:
            self._all[known.id] = replace(known, firing=known.firing and firing)
            return
        self._all[alert["episode"]] = Episode(
            id=alert["episode"], name=alert["name"], labels=alert["labels"], starts_ms=alert["starts_ms"],
            requester=event.actor, heard_at_s=event.at_s, firing=firing,
        )  # fmt: skip

    def _decided(self, event: Event) -> None:
        known = self._all.get(event.body["episode"])
        if known is not None:
            self._all[known.id] = replace(known, decision=decision_of(event.body))


def decision_of(body: Mapping[str, Any]) -> Decision:
    """Return a decision from the body of its event."""
    return Decision(
        made=Made(body["made"]), why=body["why"], runbook=body["runbook"], run=body["run"], plan=body["plan"]
    )


@dataclass(frozen=True, slots=True)
class Repeat:
    """How often an alert came back to what had been made of it before. Times are Unix seconds."""

    made: Made
    runbook: str
    times: int
    first_s: float
    last_s: float


def note(tx: Transaction, episode: Episode, decision: Decision, *, actor: str, repeats: Sequence[Repeat] = ()) -> None:
    """Write down what was made of an episode; `say` is what people are told of it, where nothing else tells them.

    `repeats` are what was not written down one by one.
    """
    body: dict[str, object] = {
        "episode": episode.id, "made": decision.made, "why": decision.why, "runbook": decision.runbook,
        "run": decision.run, "plan": decision.plan,
    }  # fmt: skip
    if repeats:
        body["repeats"] = [asdict(r) for r in repeats]
    if decision.made not in _QUIET and decision != episode.decision:
        about = f" {decision.runbook}" if decision.runbook else ""
        again = ", ".join(f"{r.made} {r.times} times" for r in repeats)
        body["say"] = (
            f"{episode.name}:{about} {decision.made}"
            + (f": {decision.why}" if decision.why else "")
            + (f" (in between: {again})" if again else "")
        )
    tx.append("noted", actor=actor, body=body)
