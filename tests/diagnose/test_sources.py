"""What sources could not read is in the report."""

from __future__ import annotations

from pdops.diagnose.engine import diagnose
from pdops.model.view import Note
from tests.diagnose.build import sound, view


def test_logs_and_facts_that_could_not_be_read_are_missing_with_what_to_do() -> None:
    notes = [
        Note(worker="prefill-0", code="facts", why="command line: no such process", fix="run pdops preflight there"),
        Note(
            worker="decode-0", code="logs/1", why="journald v.service: journalctl is not installed here", fix="use file"
        ),
        Note(worker="decode-0", code="names-escaped", why="x"),
    ]
    missing = diagnose(view(series=sound(), notes=notes)).missing
    assert [(m.signal, str(m.scope), m.why, m.fix) for m in missing[-2:]] == [
        ("logs", "decode-0", "journald v.service: journalctl is not installed here", "use file"),
        ("facts", "prefill-0", "command line: no such process", "run pdops preflight there"),
    ]
