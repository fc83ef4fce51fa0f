"""Whether a journal is what was written: the chain of hashes, and the tables that follow from it."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from pdops.errors import PdopsError
from pdops.runbook import projection
from pdops.runbook.journal import GENESIS, Journal, digest


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found. `head` is the hash of the last event, to be kept elsewhere; `problems` is empty when all is right."""

    events: int
    head: str
    problems: tuple[str, ...] = ()


def verify(journal: Journal, expected_head: str | None = None) -> Audit:
    """Check every link, play the events back and compare the tables.

    A journal that was cut at its end has a chain without fault: only a head kept elsewhere shows it.

    Args:
        journal: what is checked.
        expected_head: a head noted earlier, which must be a link of this chain.
    """
    # One look at events and tables, however much is written meanwhile.
    journal.db.execute("BEGIN")
    try:
        return _verified(journal, expected_head)
    finally:
        journal.db.execute("ROLLBACK")


def _verified(journal: Journal, expected_head: str | None) -> Audit:
    problems = []
    prev, count, seen = GENESIS, 0, expected_head is None
    again = sqlite3.connect(":memory:", isolation_level=None)
    projection.create(again)
    for row in journal.db.execute("SELECT * FROM events ORDER BY seq"):
        seq, at_s, run, kind, actor, body, linked, hashed = row
        count += 1
        if seq != count:
            problems.append(f"event {count} is missing")
        if linked != prev:
            problems.append(f"event {seq} does not follow the one before it")
        if digest(seq, at_s, run, kind, actor, body, linked) != hashed:
            problems.append(f"event {seq} was changed after it was written")
        seen |= hashed == expected_head
        prev = hashed
        if problems:
            break
        try:
            projection.project(again, at_s, run, kind, actor, _read(body))
        except (PdopsError, KeyError, ValueError, TypeError, sqlite3.Error) as error:
            problems.append(f"event {seq} cannot be played back: {error}")
            break
    if not problems:
        for table in projection.PROJECTED:
            if _rows(journal.db, table) != _rows(again, table):
                problems.append(f"table {table} does not follow from the events")
    again.close()
    if not seen and not problems:
        problems.append("the noted head is not in this journal: events were cut off or replaced")
    return Audit(count, prev, tuple(problems))


def _rows(db: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    return sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr)  # noqa: S608  a name of ours


def _read(body: str) -> dict[str, object]:

    content = json.loads(body)
    if not isinstance(content, dict):
        raise TypeError("not an object")
    return content
