"""What comes and goes with every look is written down once, and then as a number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pdops.clock import Clock
from pdops.respond.episodes import FINAL, Decision, Episode, Made, Repeat

FOLD_S = 3600.0
"""Between two notes of one alert that say nothing new: a diagnosis at its threshold changes with every look, and hundreds of
alerts with it."""
_STAYS = FINAL | {Made.OPENING}
_What = tuple[Made, str]


@dataclass(slots=True)
class _Fold:
    written_s: float
    known: set[_What]
    repeats: dict[_What, Repeat] = field(default_factory=dict)


class Folding:
    """Says what is written down of alerts that are looked at again and again, and keeps what is not.

    Args:
        clock: where time comes from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._folds: dict[str, _Fold] = {}

    def written(self, episode: Episode, decision: Decision) -> bool:
        """Return whether a decision is to be written down now, with the repeats until then; one that is not is kept as a repeat.

        What an alert comes to for the first time is, and all that nothing more is made of.
        """
        before, what = episode.decision, (decision.made, decision.runbook)
        if before is not None and (before.made, before.runbook, before.run) == (*what, decision.run):
            # Readings in the reason differ from look to look; the journal is told when what is made of it does.
            return False
        fold = self._folds.get(episode.id)
        if decision.made in _STAYS or before is None or before.made in _STAYS or fold is None:
            return True
        if what not in fold.known or self._clock.monotonic() - fold.written_s >= FOLD_S:
            return True
        at_s = self._clock.now()
        last = fold.repeats.get(what, Repeat(*what, 0, at_s, at_s))
        fold.repeats[what] = Repeat(*what, last.times + 1, last.first_s, at_s)
        return False

    def repeats(self, episode: Episode) -> tuple[Repeat, ...]:
        """Return what was kept of an alert since it was last written down."""
        fold = self._folds.get(episode.id)
        return tuple(fold.repeats.values()) if fold is not None else ()

    def noted(self, episode: Episode, decision: Decision) -> None:
        """Take that a decision is in the journal, with the repeats until then."""
        if decision.made in FINAL:
            self.forget(episode.id)
            return
        old = episode.decision
        before: set[_What] = {(old.made, old.runbook)} if old is not None else set()
        fold = self._folds.setdefault(episode.id, _Fold(0.0, before))
        fold.known.add((decision.made, decision.runbook))
        fold.written_s, fold.repeats = self._clock.monotonic(), {}

    def ended(self, firing: Iterable[Episode]) -> dict[str, tuple[Repeat, ...]]:
        """Return what was kept of alerts that do not fire any more, by id."""
        gone = self._folds.keys() - {e.id for e in firing}
        return {name: tuple(self._folds[name].repeats.values()) for name in gone}

    def forget(self, episode_id: str) -> None:
        """Keep nothing of an alert any more."""
        self._folds.pop(episode_id, None)
