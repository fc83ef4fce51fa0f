"""What sources say they could not read, as missing data of a report."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.model.report import Missing

SIGNALS = ("logs", "facts")
"""Kinds of data a source tells of by a note, whose code is the kind, or the kind, a slash and a number."""


def unread(ctx: Context) -> Iterator[Missing]:
    """Yield what could not be read, logs before facts, by worker."""
    for signal in SIGNALS:
        for note in sorted(ctx.view.notes, key=lambda n: (n.worker, n.code)):
            if note.code.partition("/")[0] == signal:
                yield Missing(signal=signal, why=note.why, fix=note.fix, scope=ctx.scope(note.worker))
