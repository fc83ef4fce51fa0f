"""Where the person stands: a stack of places, the main screen below all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdops_tui.models.text import clean

MAIN = "main"
POOL, WORKER, PAIR, MATRIX = "pool", "worker", "pair", "matrix"
DIAGNOSIS, RUNBOOK, CONFIRM = "diagnosis", "runbook", "confirm"
FLEET, EVENTS, START, COMPARE = "fleet", "events", "start", "compare"


@dataclass(frozen=True, slots=True)
class Place:
    """One screen that can be opened: its kind, a name in the registry of screens, and what it is about.

    `id` is a pool, a worker, a pair `P>D`, the number of a hypothesis or a runbook, as the kind has it; empty for a kind
    that is about the whole cluster.
    """

    kind: str
    id: str = ""

    @property
    def label(self) -> str:
        """The place in a breadcrumb."""
        return clean(f"{self.kind} {self.id}".strip(), 60)


def crumbs(places: Iterable[Place]) -> str:
    """Return the way from the main screen to the last place."""
    return " > ".join(("pdops top", *(place.label for place in places)))
