"""The journal of runs: an append-only chain of events in SQLite, and tables that follow from them.

Every change is an event, committed to disk (WAL, synchronous=FULL) before what it announces happens. Each event carries
the hash of the one before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from pdops.actuate.backend import Value
from pdops.clock import Clock
from pdops.errors import FencedError, JournalError
from pdops.runbook import projection
from pdops.runbook.states import ENDED, RunState, StepState
from pdops.sources.redact import clean, redact

GENESIS = "0" * 64
"""What the first event carries in place of the hash of the one before it."""
_BUSY_S = 10.0
Phase = Literal["do", "undo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run as the journal has it. Times are Unix seconds; `plan` is the published JSON form."""

    id: str
    plan: Mapping[str, Any]
    cluster: str
    runbook: str
    risk: str
    requester: str
    approver: str | None
    state: RunState
    why: str
    before_hold: RunState | None
    fence: int
    rollbacks: int
    abort: bool
    observe_until_s: float | None
    opened_at_s: float
    changed_at_s: float

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """How far one step, or the undoing of one, is. `before` is what its subject was at the intent.

    `changed` is None while that is not known.
    """

    run: str
    phase: Phase
    position: int
    id: str
    state: StepState
    before: Value
    changed: bool | None
    detail: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One link of the chain."""

    seq: int
    at_s: float
    run: str
    kind: str
    actor: str
    body: Mapping[str, Any]
    prev: str
    hash: str


def digest(seq: int, at_s: float, run: str, kind: str, actor: str, body: str, prev: str) -> str:
    """Return the hash of an event: SHA-256 over the one before and the canonical JSON of all its fields."""
    fields = json.dumps([seq, at_s, run, kind, actor, body, prev], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(fields.encode()).hexdigest()


class Transaction:
    """What may be read and appended while nobody else writes."""

    def __init__(self, db: sqlite3.Connection, now_s: float) -> None:
        self.db, self.now_s = db, now_s

    def append(
        self, kind: str, run: str = "", *, actor: str, body: Mapping[str, Any] | None = None, fence: int | None = None
    ) -> None:
        """Append one event and let the tables follow.

        Args:
            kind: what happened.
            run: to which run, empty when to none.
            actor: who made it happen.
            body: more about it; what looks like a credential is replaced.
            fence: the number the writer got when it took the run; a newer one in the journal refuses the event.

        Raises:
            FencedError: the run was taken over since.
            JournalError: it may not follow what is there.
        """
        if fence is not None:
            row = self.db.execute("SELECT fence FROM runs WHERE id=?", (run,)).fetchone()
            if row is None or row[0] != fence:
                raise FencedError(
                    "another process has taken the run over", where=run, hint="`pdops runbook log` shows who"
                )
        last = self.db.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        seq, prev = (last[0] + 1, last[1]) if last else (1, GENESIS)
        safe = cleaned(dict(body or {}))
        text = json.dumps(safe, sort_keys=True, separators=(",", ":"), allow_nan=False)
        who = clean(redact(actor))[:200]
        at_s = float(self.now_s)
        self.db.execute(
            "INSERT INTO events VALUES(?,?,?,?,?,?,?,?)",
            (seq, at_s, run, kind, who, text, prev, digest(seq, at_s, run, kind, who, text, prev)),
        )
        projection.project(self.db, at_s, run, kind, who, json.loads(text))

    def run(self, run_id: str) -> Run | None:
        """Return a run, or None."""
        row = self.db.execute("SELECT * FROM runs WHERE id=?", (run_id,)).fetchone()
        return _run(row) if row is not None else None

    def held(self, cluster: str, *, but: str) -> dict[str, str]:
        """Return the locks of a cluster and the runs that hold them, without those of one run."""
        rows = self.db.execute("SELECT scope, run FROM locks WHERE cluster=? AND run<>?", (cluster, but))
        return dict(rows.fetchall())

    def frozen(self, cluster: str) -> str | None:
        """Return why a cluster is frozen, or None when it is not."""
        row = self.db.execute("SELECT actor, why FROM freeze WHERE scope IN ('*', ?) LIMIT 1", (cluster,)).fetchone()
        return f"frozen by {row[0]}" + (f": {row[1]}" if row[1] else "") if row else None

    def next_fence(self) -> int:
        """Return a number above every fence given out so far.

        It goes by the clock, so that a new journal does not begin below what a backend remembers of an older one.
        """
        highest = int(self.db.execute("SELECT coalesce(max(fence), 0) FROM runs").fetchone()[0])
        return max(highest + 1, int(self.now_s))

    def deliver(
        self, key: str, *, actor: str, run: str = "", detail: str = "", alert: Mapping[str, Any] | None = None
    ) -> bool:
        """Note a delivery, and the alert it tells of, once; return False when one of that key was noted before."""
        if self.delivered(key):
            return False
        about = {} if alert is None else {"alert": dict(alert)}
        self.append("delivered", run, actor=actor, body={"key": key, "detail": detail, **about})
        return True

    def delivered(self, key: str) -> bool:
        """Return whether a delivery of that key was noted before."""
        return self.db.execute("SELECT 1 FROM deliveries WHERE key=?", (key,)).fetchone() is not None


class Journal:
    """A journal file.

    Args:
        path: the SQLite file; made with its folder, for its owner only, when it is not there.
        clock: where event times come from.
        synchronous: FULL, or OFF where a power cut does not matter (a journal that lives in memory).
        read_only: open one that is there, to read it; nothing is made and nothing can be appended.

    Raises:
        JournalError: it cannot be opened, or a newer pdops wrote it.
    """

    def __init__(
        self, path: Path, clock: Clock, *, synchronous: Literal["FULL", "OFF"] = "FULL", read_only: bool = False
    ) -> None:
        self.path, self._clock = path, clock
        self._file: tuple[int, int] | None = None
        with self._told():
            if read_only:
                self._db = sqlite3.connect(
                    f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None
                )
                self._checked()
                self._file = _identity(path)
                return
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _private(path)
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute(f"PRAGMA synchronous={synchronous}")
                self._made()
                self._file = _identity(path)
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Read and append as one: all of it is on disk when the block ends, or none of it when it raises.

        Raises:
            JournalError: the disk or the file does not allow it, or it is not the file of this path any more.
        """
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(self._db, self._clock.now())
                if (error := self.astray()) is not None:
                    raise error
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def astray(self) -> JournalError | None:
        """Return the error of a file that was moved away or replaced since it was opened; None while it is in its place.

        What is written to it then is read by nobody who opens the path.
        """
        if self._file is None:
            return None
        try:
            there = _identity(self.path)
        except OSError as error:
            why = f"it was moved away or deleted ({error.strerror})"
        else:
            if there == self._file:
                return None
            why = "another file was put in its place"
        hint = "put back the file that was there, or start pdops again with the one that is to be used"
        return JournalError("the journal cannot be used", where=str(self.path), why=why, hint=hint)

    def run(self, run_id: str) -> Run:
        """Return a run by its id or by a beginning of it that no other has.

        Raises:
            JournalError: there is none, or more than one.
        """
        # An empty text begins every id: a variable that was not set must not name the only run there is.
        if not run_id or clean(run_id) != run_id:
            where = clean(run_id)[:80] or "''"
            raise JournalError("no such run", where=where, hint="`pdops runbook log` lists the runs")
        with self._told():
            like = run_id.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_") + "%"
            rows = self._db.execute(
                r"SELECT * FROM runs WHERE id=? OR id LIKE ? ESCAPE '\' ORDER BY id<>? LIMIT 2", (run_id, like, run_id)
            ).fetchall()
        if not rows or (len(rows) > 1 and rows[0][0] != run_id):
            why = "more than one begins so" if rows else ""
            raise JournalError("no such run", where=run_id[:80], why=why, hint="`pdops runbook log` lists the runs")
        return _run(rows[0])

    def runs(self, *, open_only: bool = False) -> tuple[Run, ...]:
        """Return all runs, or those that have not ended, oldest first."""
        ended = sorted(ENDED) if open_only else []
        where = f"WHERE state NOT IN ({','.join('?' * len(ended))})" if ended else ""
        with self._told():
            rows = self._db.execute(f"SELECT * FROM runs {where} ORDER BY opened_at_s, rowid", ended)  # noqa: S608  no outside text
            return tuple(_run(row) for row in rows)

    def newest(self, cluster: str, most: int) -> tuple[tuple[Run, ...], int]:
        """Return the newest runs of a cluster, at most so many and oldest first, and how many there are."""
        with self._told():
            rows = self._db.execute(
                "SELECT * FROM runs WHERE cluster=? ORDER BY opened_at_s DESC, rowid DESC LIMIT ?", (cluster, most)
            ).fetchall()
            total = self._db.execute("SELECT count(*) FROM runs WHERE cluster=?", (cluster,)).fetchone()[0]
        return tuple(_run(row) for row in reversed(rows)), total

    def clusters(self) -> tuple[str, ...]:
        """Return the clusters that runs are about, sorted."""
        with self._told():
            return tuple(r[0] for r in self._db.execute("SELECT DISTINCT cluster FROM runs ORDER BY 1").fetchall())

    def steps(self, run_id: str, phase: Phase = "do") -> dict[int, StepRecord]:
        """Return how far the steps of a run are that were begun, by position."""
        with self._told():
            rows = self._db.execute("SELECT * FROM steps WHERE run=? AND phase=?", (run_id, phase)).fetchall()
        return {row[2]: _step(row) for row in rows}

    def events(self, run_id: str | None = None, *, after: int = 0) -> Iterator[Event]:
        """Yield the events of one run (an empty text: of none), or all, in order; with `after` only those behind that number."""
        where, args = ("", (after,)) if run_id is None else (" AND run=?", (after, run_id))
        with self._told():
            for row in self._db.execute(f"SELECT * FROM events WHERE seq>?{where} ORDER BY seq", args):  # noqa: S608  no outside text
                yield Event(
                    seq=row[0], at_s=row[1], run=row[2], kind=row[3], actor=row[4], body=json.loads(row[5]),
                    prev=row[6], hash=row[7],
                )  # fmt: skip

    def head(self) -> tuple[int, str]:
        """Return number and hash of the last event; 0 and `GENESIS` before the first."""
        with self._told():
            row = self._db.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        return (row[0], row[1]) if row else (0, GENESIS)

    def link(self, seq: int) -> str | None:
        """Return the hash of an event, `GENESIS` for number 0, None when there is none of that number."""
        if seq == 0:
            return GENESIS
        with self._told():
            row = self._db.execute("SELECT hash FROM events WHERE seq=?", (seq,)).fetchone()
        return row[0] if row else None

    def locks(self) -> tuple[tuple[str, str, str], ...]:
        """Return the locks that are held: cluster, scope, run."""
        with self._told():
            return tuple(self._db.execute("SELECT cluster, scope, run FROM locks ORDER BY 1, 2").fetchall())

    def frozen(self, cluster: str = "*") -> str | None:
        """Return why a cluster is frozen in the journal, or None."""
        with self._told():
            return Transaction(self._db, 0.0).frozen(cluster)

    def freezes(self) -> dict[str, str]:
        """Return why each frozen cluster is frozen in the journal; `*` stands for all of them."""
        with self._told():
            rows = self._db.execute("SELECT scope, actor, why FROM freeze ORDER BY scope").fetchall()
        return {scope: f"frozen by {actor}" + (f": {why}" if why else "") for scope, actor, why in rows}

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, for the audit, which reads all of it."""
        return self._db

    def _made(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            for statement in projection.TABLES.split(";\n"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version={projection.VERSION}")
        self._db.execute("COMMIT")
        if version != 0:
            self._checked()

    def _checked(self) -> None:
        """Close it and raise unless it has the format that is read here."""
        try:
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
        except BaseException:
            self._db.close()
            raise
        if version != projection.VERSION:
            self._db.close()
            raise JournalError(
                "the journal has another format",
                where=str(self.path),
                why=f"version {version}, this pdops reads {projection.VERSION}",
                hint="use the pdops that wrote it, or give another file with --journal",
            )

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            # SQLite goes by the path for its write-ahead log, and then says anything.
            if (moved := self.astray()) is not None:
                raise moved from error
            raise JournalError(
                "the journal cannot be used",
                where=str(self.path),
                why=str(error),
                hint="check its permissions and the space left; nothing is changed without a journal",
            ) from error


def cleaned(value: Any) -> Any:
    """Return what may be written down: without credentials, control characters and endless text."""
    if isinstance(value, str):
        return clean(redact(value))[:4000]
    if isinstance(value, Mapping):
        return {str(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value


def _run(row: tuple[Any, ...]) -> Run:
    return Run(
        id=row[0], plan=json.loads(row[1]), cluster=row[2], runbook=row[3], risk=row[4], requester=row[5],
        approver=row[6], state=RunState(row[7]), why=row[8], before_hold=RunState(row[9]) if row[9] else None,
        fence=row[10], rollbacks=row[11], abort=bool(row[12]), observe_until_s=row[13], opened_at_s=row[14],
        changed_at_s=row[15],
    )  # fmt: skip


def _step(row: tuple[Any, ...]) -> StepRecord:
    return StepRecord(
        run=row[0], phase=row[1], position=row[2], id=row[3], state=StepState(row[4]),
        before=None if row[5] is None else json.loads(row[5]), changed=None if row[6] is None else bool(row[6]),
        detail=row[7], at_s=row[8],
    )  # fmt: skip


def _identity(path: Path) -> tuple[int, int]:
    """Return what tells a file from any other, whatever it is called."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _private(path: Path) -> None:
    """Make an empty file that only its owner may read, unless one is there.

    It is made beside and linked into its place: closing any handle on a file lets go of all locks that this process has on
    it (POSIX), those of another connection too, and a process that closes it then takes away what that one still writes.
    """
    if path.exists():
        return
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
