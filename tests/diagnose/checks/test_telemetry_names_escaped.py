"""telemetry/names-escaped: said once per worker, and nothing is called faulty for it."""

from __future__ import annotations

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from pdops.model.view import Note
from tests.diagnose.build import ask, golden, one, sound, view

ID = "telemetry/names-escaped"
NOTE = Note(
    worker="decode-0", code="names-escaped", why="9 names came with ':' written as '_'", fix="add a relabel rule"
)


def test_tells_the_worker_and_the_cure() -> None:
    found = one(ask(ID, view(series=sound(), notes=[NOTE])), Status.UNKNOWN)
    assert found.cause == "telemetry-gap"
    assert (found.missing[0].why, found.missing[0].fix) == (NOTE.why, NOTE.fix)
    assert str(found.scopes[0]) == "decode-0"


def test_is_silent_without_a_note_or_with_another() -> None:
    other = Note(worker="decode-0", code="clock", why="a sample was older than the one before")
    assert ask(ID, view(series=sound())) == ()
    assert ask(ID, view(series=sound(), notes=[other])) == ()


def test_reading_both_spellings_leaves_a_sound_cluster_sound() -> None:
    report = golden(ID, view(series=sound(), notes=[NOTE]))
    assert report.verdict is Verdict.HEALTHY
    assert "metric names" in [m.signal for m in report.missing]
