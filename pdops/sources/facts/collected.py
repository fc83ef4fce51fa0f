"""What was collected about each worker, and what could not be read and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pdops.sources.redact import REDACTED, clean, is_secret, redact

MAX_TEXT = 4_096
"""Characters kept of one value; a connector configuration is the longest that is compared."""
_MAX_FACTS = 2_000
DEFAULTED = "options_by_default"
"""Fact that lists the options nobody gave, whose value is the engine's documented default; a JSON list."""


@dataclass(frozen=True, slots=True, order=True)
class Unread:
    """One fact that could not be read. `key` may end in `.*` for a family of facts."""

    worker: str
    key: str
    why: str


@dataclass(slots=True)
class Collected:
    """Facts by worker and key, and the list of what is not among them. Secrets never enter."""

    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)

    def put(self, worker: str, facts: Mapping[str, str]) -> None:
        """Keep facts of a worker; a later value of the same key wins, so read what is given before what is resolved."""
        mine = self.facts.setdefault(worker, {})
        for key, value in facts.items():
            name = clean(key)
            if len(mine) >= _MAX_FACTS and name not in mine:
                return
            mine[name] = REDACTED if is_secret(key, value) else redact(clean(value))[:MAX_TEXT]

    def miss(self, worker: str, key: str, why: str) -> None:
        """Note that a fact could not be read."""
        self.unread.append(Unread(worker, clean(key), redact(clean(why))))

    def add(self, other: Collected) -> None:
        """Take in another collection; its values win."""
        for worker, facts in other.facts.items():
            self.facts.setdefault(worker, {}).update(facts)
        self.unread += other.unread

    def get(self, worker: str, key: str) -> str | None:
        """Return one fact, or None."""
        return self.facts.get(worker, {}).get(key)

    def still_unread(self) -> tuple[Unread, ...]:
        """Return, sorted and each once, what stayed unread: a fact that another collector found is left out."""
        return tuple(sorted({u for u in self.unread if u.key not in self.facts.get(u.worker, {})}))


def missing(worker: str, keys: Iterable[str], why: str) -> list[Unread]:
    """Return one `Unread` a key."""
    return [Unread(worker, key, why) for key in keys]
