"""The journal's tables as a function of its events: playing the events back gives the same tables."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from pdops.errors import JournalError
from pdops.runbook.states import ENDED, FOLLOWS, STEP_FOLLOWS, RunState, StepState

VERSION = 1
PROJECTED = ("runs", "steps", "locks", "budgets", "deliveries", "freeze")
"""Tables that the events determine."""
TABLES = """
CREATE TABLE events(seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, run TEXT NOT NULL, kind TEXT NOT NULL,
  actor TEXT NOT NULL, body TEXT NOT NULL, prev TEXT NOT NULL, hash TEXT NOT NULL UNIQUE);
CREATE TABLE runs(id TEXT PRIMARY KEY, plan TEXT NOT NULL, cluster TEXT NOT NULL, runbook TEXT NOT NULL,
  risk TEXT NOT NULL, requester TEXT NOT NULL, approver TEXT,
  state TEXT NOT NULL, why TEXT NOT NULL, before_hold TEXT, fence INTEGER NOT NULL, rollbacks INTEGER NOT NULL,
  abort INTEGER NOT NULL,  observe_until_s REAL, opened_at_s REAL NOT NULL, changed_at_s REAL NOT NULL);
CREATE TABLE steps(run TEXT NOT NULL, phase TEXT NOT NULL, position INTEGER NOT NULL, id TEXT NOT NULL,
  state TEXT NOT NULL, before TEXT, changed INTEGER, detail TEXT NOT NULL, at_s REAL NOT NULL,
  PRIMARY KEY(run, phase, position));
CREATE TABLE locks(cluster TEXT NOT NULL, scope TEXT NOT NULL, run TEXT NOT NULL, fence INTEGER NOT NULL,
  PRIMARY KEY(cluster, scope));
CREATE TABLE budgets(run TEXT PRIMARY KEY, cluster TEXT NOT NULL, runbook TEXT NOT NULL, locks TEXT NOT NULL,
  cooldown_s REAL NOT NULL, started_at_s REAL NOT NULL, ended_at_s REAL, outcome TEXT);
CREATE TABLE deliveries(key TEXT PRIMARY KEY, at_s REAL NOT NULL, run TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE freeze(scope TEXT PRIMARY KEY, actor TEXT NOT NULL, why TEXT NOT NULL, at_s REAL NOT NULL);
"""
Body = Mapping[str, Any]


def create(db: sqlite3.Connection) -> None:
    """Make the tables."""
    db.executescript(TABLES)
    db.execute(f"PRAGMA user_version={VERSION}")


def project(db: sqlite3.Connection, at_s: float, run: str, kind: str, actor: str, body: Body) -> None:
    """Change the tables by one event.

    Raises:
        JournalError: the event may not follow what is there.
    """
    _KINDS[kind](db, at_s, run, actor, body)


def _opened(db: sqlite3.Connection, at_s: float, run: str, actor: str, body: Body) -> None:
    plan = body["plan"]
    db.execute(
        "INSERT INTO runs VALUES(?,?,?,?,?,?,NULL,?,'',NULL,0,0,0,NULL,?,?)",
        (run, json.dumps(plan, sort_keys=True), plan["cluster"], plan["runbook"], plan["risk"], actor,
         RunState.PLANNED, at_s, at_s),
    )  # fmt: skip


def _approved(db: sqlite3.Connection, at_s: float, run: str, actor: str, body: Body) -> None:
    db.execute("UPDATE runs SET approver=? WHERE id=?", (actor, run))
    _state(db, at_s, run, actor, {"to": RunState.APPROVED, "why": body.get("why", "")})


def _state(db: sqlite3.Connection, at_s: float, run: str, _actor: str, body: Body) -> None:
    row = db.execute("SELECT state, before_hold, rollbacks FROM runs WHERE id=?", (run,)).fetchone()
    if row is None:
        raise JournalError("no such run", where=run, hint="`pdops runbook log` lists the runs")
    now, to = RunState(row[0]), RunState(body["to"])
    if to not in FOLLOWS[now]:
        raise JournalError("a run cannot go there", where=run, why=f"{now} is not followed by {to}", hint="look at it")
    db.execute("UPDATE runs SET state=?, why=?, changed_at_s=? WHERE id=?", (to, body.get("why", ""), at_s, run))
    if to is RunState.HELD:
        db.execute("UPDATE runs SET before_hold=? WHERE id=?", (now, run))
    if to is RunState.ROLLING_BACK and not (now is RunState.HELD and row[1] == RunState.ROLLING_BACK):
        if row[2]:
            raise JournalError("a run is rolled back once at most", where=run, hint="put the rest back by hand")
        db.execute("UPDATE runs SET rollbacks=1 WHERE id=?", (run,))
    if to is RunState.OBSERVING:
        db.execute("UPDATE runs SET observe_until_s=? WHERE id=?", (body.get("until_s"), run))
    if to in ENDED:
        db.execute("DELETE FROM locks WHERE run=?", (run,))
        db.execute("UPDATE budgets SET ended_at_s=?, outcome=? WHERE run=?", (at_s, to, run))


def _claimed(db: sqlite3.Connection, _at_s: float, run: str, _actor: str, body: Body) -> None:
    db.execute("UPDATE runs SET fence=? WHERE id=?", (body["fence"], run))
    db.execute("UPDATE locks SET fence=? WHERE run=?", (body["fence"], run))


def _started(db: sqlite3.Connection, at_s: float, run: str, actor: str, body: Body) -> None:
    cluster, runbook, fence = db.execute("SELECT cluster, runbook, fence FROM runs WHERE id=?", (run,)).fetchone()
    for lock in body["locks"]:
        db.execute("INSERT INTO locks VALUES(?,?,?,?)", (cluster, lock, run, fence))
    db.execute(
        "INSERT INTO budgets VALUES(?,?,?,?,?,?,NULL,NULL)",
        (run, cluster, runbook, json.dumps(body["locks"]), body["cooldown_s"], at_s),
    )
    _state(db, at_s, run, actor, {"to": RunState.ACTING})


def _abort(db: sqlite3.Connection, _at_s: float, run: str, _actor: str, _body: Body) -> None:
    db.execute("UPDATE runs SET abort=1 WHERE id=?", (run,))


def _step(db: sqlite3.Connection, at_s: float, run: str, _actor: str, body: Body) -> None:
    key = (run, body["phase"], body["position"])
    row = db.execute("SELECT state FROM steps WHERE run=? AND phase=? AND position=?", key).fetchone()
    before, to = (StepState(row[0]) if row else None), StepState(body["to"])
    if to not in STEP_FOLLOWS[before]:
        raise JournalError(
            "a step cannot go there", where=f"{run} {body['id']}", why=f"{before} is not followed by {to}", hint="look"
        )
    changed, was = body.get("changed"), body.get("before")
    db.execute(
        "INSERT INTO steps VALUES(?,?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET state=excluded.state, "
        "before=coalesce(before, excluded.before), changed=coalesce(excluded.changed, changed), "
        "detail=excluded.detail, at_s=excluded.at_s",
        (*key, body["id"], to, None if was is None else json.dumps(was), None if changed is None else int(changed),
         body.get("detail", ""), at_s),
    )  # fmt: skip


def _noted(_db: sqlite3.Connection, _at_s: float, _run: str, _actor: str, _body: Body) -> None:
    """What was seen is in the event itself."""


def _delivered(db: sqlite3.Connection, at_s: float, run: str, _actor: str, body: Body) -> None:
    db.execute("INSERT INTO deliveries VALUES(?,?,?,?)", (body["key"], at_s, run, body.get("detail", "")))


def _froze(db: sqlite3.Connection, at_s: float, _run: str, actor: str, body: Body) -> None:
    db.execute("INSERT OR REPLACE INTO freeze VALUES(?,?,?,?)", (body["scope"], actor, body["why"], at_s))


def _thawed(db: sqlite3.Connection, _at_s: float, _run: str, _actor: str, body: Body) -> None:
    db.execute("DELETE FROM freeze WHERE scope=?", (body["scope"],))


_KINDS = {
    "opened": _opened,
    "approved": _approved,
    "state": _state,
    "claimed": _claimed,
    "started": _started,
    "abort": _abort,
    "step": _step,
    "noted": _noted,
    "delivered": _delivered,
    "froze": _froze,
    "thawed": _thawed,
}
