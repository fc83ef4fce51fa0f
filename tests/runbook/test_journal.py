"""The journal says what was written, all of it or none, and shows when it was touched."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdops.clock import VirtualClock
from pdops.errors import JournalError
from pdops.runbook import audit, locks, projection
from pdops.runbook.journal import Journal
from tests.runbook.engine_kit import T0, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    x = found.executor()
    x.drive(x.open(found.plan()).id)
    yield found
    found.journal.close()


def _touch(bench: Bench, statement: str) -> tuple[str, ...]:
    with sqlite3.connect(bench.journal.path) as other:
        other.execute(statement)
    other.close()
    return audit.verify(bench.journal).problems


def test_a_journal_as_written_verifies(bench: Bench) -> None:
    found = audit.verify(bench.journal)
    assert found.problems == ()
    assert found.events == len(list(bench.journal.events()))
    assert audit.verify(bench.journal, found.head).problems == ()


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE events SET actor='eve' WHERE seq=3", "event 3 was changed"),
        ("UPDATE events SET at_s=at_s+1 WHERE seq=2", "event 2 was changed"),
        ("UPDATE events SET body=replace(body, 'prefill', 'decode') WHERE seq=1", "event 1 was changed"),
        ("DELETE FROM events WHERE seq=4", "event 4 is missing"),
        ("UPDATE runs SET state='failed'", "table runs does not follow"),
        ("DELETE FROM budgets", "table budgets does not follow"),
        ("INSERT INTO locks VALUES('c','topology','x',1)", "table locks does not follow"),
    ],
)
def test_what_was_touched_is_named(bench: Bench, statement: str, says: str) -> None:
    assert any(says in problem for problem in _touch(bench, statement))


def test_a_chain_that_was_cut_off_shows_beside_a_head_kept_elsewhere(bench: Bench) -> None:
    head = audit.verify(bench.journal).head
    last = max(e.seq for e in bench.journal.events())
    _touch(bench, f"DELETE FROM events WHERE seq={last}")
    _touch(bench, "UPDATE runs SET state='observing', changed_at_s=0")
    assert audit.verify(bench.journal, head).problems != ()


def test_a_transaction_that_raises_leaves_nothing(bench: Bench) -> None:
    before = list(bench.journal.events())
    with contextlib.suppress(RuntimeError), bench.journal.transaction() as tx:
        tx.append("froze", actor="ada", body={"scope": "*", "why": ""})
        raise RuntimeError
    assert list(bench.journal.events()) == before
    assert bench.journal.frozen() is None


def test_an_event_that_may_not_follow_is_refused_and_leaves_nothing(bench: Bench) -> None:
    run = bench.journal.runs()[0]
    with pytest.raises(JournalError, match="done is not followed by acting"), bench.journal.transaction() as tx:
        tx.append("state", run.id, actor="ada", body={"to": "acting"})
    assert audit.verify(bench.journal).problems == ()


def test_nothing_is_changed_when_the_journal_was_moved_away(bench: Bench) -> None:
    run = bench.executor().open(bench.plan(view_at_s=7.0))
    world = bench.folder / "world.json"
    before, moved = world.read_text(), bench.journal.path.with_name("moved.db")
    bench.journal.path.rename(moved)
    with pytest.raises(JournalError, match="it was moved away or deleted"):
        bench.executor().drive(run.id)
    assert world.read_text() == before
    assert bench.journal.run(run.id).state is run.state
    moved.rename(bench.journal.path)
    assert bench.executor().drive(run.id).state is not run.state


def test_a_delivery_is_taken_once_also_after_a_restart(bench: Bench) -> None:
    taken = []
    for _ in range(7):
        bench.again()
        with bench.journal.transaction() as tx:
            taken.append(tx.deliver("fingerprint|startsAt|runbook|1", actor="alertmanager"))
    assert taken == [True] + [False] * 6


def test_a_delivery_carries_its_alert_and_is_of_no_run(bench: Bench) -> None:
    end = max(e.seq for e in bench.journal.events())
    with bench.journal.transaction() as tx:
        assert not tx.delivered("alert|a|firing")
        tx.deliver("alert|a|firing", actor="alertmanager", alert={"name": "PDTtftHigh", "labels": {}})
        assert tx.delivered("alert|a|firing")
    (event,) = bench.journal.events("", after=end)
    assert (event.kind, event.body["alert"]["name"]) == ("delivered", "PDTtftHigh")
    assert list(bench.journal.events("", after=event.seq)) == []
    assert audit.verify(bench.journal).problems == ()


def test_runs_that_have_not_ended_are_told_apart(bench: Bench) -> None:
    waits = bench.executor().open(bench.plan(view_at_s=7.0))
    assert [r.id for r in bench.journal.runs(open_only=True)] == [waits.id]
    assert len(bench.journal.runs()) == 2


def test_credentials_and_control_characters_are_not_written_down(bench: Bench) -> None:
    with bench.journal.transaction() as tx:
        tx.append(
            "noted",
            actor="a\x1b[31mda",
            body={"text": "Authorization: Bearer abcdefghijkl", "in": ["hf_abcdefghijklmnop"]},
        )
    last = list(bench.journal.events())[-1]
    assert last.actor == "ada"
    assert "abcdefghijkl" not in str(last.body)


def test_a_run_is_found_by_the_beginning_of_its_id(bench: Bench) -> None:
    run = bench.journal.runs()[0]
    assert bench.journal.run(run.id[:-3]) == run
    for wrong in ("nobody", "%", "scale_out"):
        with pytest.raises(JournalError, match="no such run"):
            bench.journal.run(wrong)


def test_a_journal_is_for_its_owner_only_and_survives_a_power_cut(tmp_path: Path) -> None:
    with Journal(tmp_path / "new" / "journal.db", VirtualClock(T0)) as journal:
        assert journal.path.stat().st_mode & 0o077 == 0
        assert journal.path.parent.stat().st_mode & 0o077 == 0
        assert journal.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert journal.db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_journal_of_another_format_and_what_is_no_journal_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path, VirtualClock(T0)).close()
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version={projection.VERSION + 1}")
    other.close()
    with pytest.raises(JournalError, match="another format"):
        Journal(path, VirtualClock(T0))
    text = tmp_path / "text.db"
    text.write_text("not a database " * 100)
    with pytest.raises(JournalError, match="cannot be used"):
        Journal(text, VirtualClock(T0))


@pytest.mark.parametrize(
    ("a", "b", "excludes"),
    [
        (("cluster",), ("worker/x",), True),
        (("pool/prefill",), ("worker/prefill-0",), True),
        (("pool/prefill",), ("worker/decode-0",), False),
        (("pool/prefill",), ("worker/unheard-of",), True),
        (("worker/prefill-0",), ("worker/prefill-1",), False),
        (("pool/prefill",), ("pool/decode",), False),
        (("topology", "pool/prefill"), ("topology", "pool/decode"), True),
        (("topology", "worker/decode-0"), ("worker/prefill-0",), False),
        (("store/s",), ("worker/prefill-0",), False),
    ],
)
def test_scopes_exclude_each_other_as_a_tree(a: tuple[str, ...], b: tuple[str, ...], excludes: bool) -> None:
    pools = {"prefill-0": "prefill", "prefill-1": "prefill", "decode-0": "decode"}
    assert (locks.overlap(a, b, pools) is not None) is excludes
    assert (locks.overlap(b, a, pools) is not None) is excludes


def test_a_new_journal_does_not_give_out_fences_below_those_of_an_older_one(bench: Bench, tmp_path: Path) -> None:
    given = bench.journal.runs()[0].fence
    bench.clock.advance(10)
    with Journal(tmp_path / "new.db", bench.clock) as new, new.transaction() as tx:
        assert tx.next_fence() > given


def test_what_a_process_with_two_connections_writes_is_seen_after_another_process_has_come_and_gone(
    tmp_path: Path,
) -> None:
    """A second connection must not cost the first its locks: the other process would take the log away from under it."""
    path = tmp_path / "journal.db"
    look = (
        "import sys, pathlib; from pdops.clock import WallClock; from pdops.runbook.journal import Journal\n"
        "with Journal(pathlib.Path(sys.argv[1]), WallClock()) as j: print(sum(1 for _ in j.events()))"
    )

    def seen() -> int:
        done = subprocess.run([sys.executable, "-c", look, str(path)], capture_output=True, text=True, check=True)
        return int(done.stdout)

    with Journal(path, VirtualClock(0.0)) as first, Journal(path, VirtualClock(0.0)) as second:
        for number, journal in enumerate((first, second, first), start=1):
            with journal.transaction() as tx:
                tx.append("noted", actor="ada", body={"n": number})
            assert seen() == number
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["journal.db"]


def test_what_is_written_while_the_journal_is_checked_is_no_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, names = audit._rows, iter("abcdefghijklmnopqrstuvwxyz")

    def slow(db: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
        with Journal(bench.journal.path, bench.clock) as other, other.transaction() as tx:
            tx.append("froze", actor="eve", body={"scope": next(names), "why": ""})
        return real(db, table)

    monkeypatch.setattr(audit, "_rows", slow)
    assert audit.verify(bench.journal).problems == ()
    monkeypatch.undo()
    assert audit.verify(bench.journal).problems == ()
    assert len(bench.journal.freezes()) > 1
