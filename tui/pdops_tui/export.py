"""The screen as a file or a text to paste: CSV, JSON, Markdown, plain text. What writes never replaces a file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from pdops.diagnose.report_markdown import render as markdown
from pdops.errors import UsageError
from pdops.model.times import rfc3339
from pdops_tui.encode import to_json
from pdops_tui.models.screen import Screen
from pdops_tui.models.text import clean
from pdops_tui.once import render_screen

ENDINGS = (".csv", ".json", ".md", ".svg", ".txt")


def to_csv(screen: Screen) -> str:
    """Return one line a worker, pool and column; `value` is in base units, empty when it is not known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("cluster", "at", "role", "kind", "id", "column", "value", "shown", "mark", "why"))
    view = screen.snapshot.view
    at = f"{view.at_s:g}" if view.relative else rfc3339(view.at_s)
    for table in screen.tables:
        for row in table.rows():
            head = (clean(view.cluster.name), at, table.role.value, "pool" if row.is_pool else "worker", clean(row.id))
            writer.writerow(
                [_inert(part) for part in (*head, "state", "", row.state.text, row.state.mark, row.state.why)]
            )
            for column, cell in zip(table.columns, row.cells, strict=True):
                value = "" if cell.sort is None else f"{cell.sort:.12g}"
                writer.writerow([_inert(part) for part in (*head, column.key, value, cell.text, cell.mark, cell.why)])
    return out.getvalue()


def _inert(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "@") or (text[:1] == "-" and not _number(text)) else text


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def to_markdown(screen: Screen, width: int = 110) -> str:
    """Return the screen and the diagnosis for a ticket or a channel."""
    snapshot = screen.snapshot
    text = render_screen(screen, width)
    said = markdown(snapshot.report) if snapshot.report is not None else "not judged yet\n"
    longest = max((len(run) for run in _backticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{said}\n{fence}text\n{text}{fence}\n"


def _backticks(text: str) -> Sequence[str]:
    return "".join(c if c == "`" else " " for c in text).split()


def to_text(screen: Screen, ending: str, width: int = 120) -> str:
    """Return the screen in the form that a file's ending asks for.

    Raises:
        UsageError: no form of text has this ending.
    """
    if ending == ".csv":
        return to_csv(screen)
    if ending == ".json":
        return to_json([screen])
    if ending == ".md":
        return to_markdown(screen, width)
    if ending == ".txt":
        return render_screen(screen, width)
    raise UsageError(
        "the file's ending names no form", where=repr(ending), hint=f"end its name with one of {', '.join(ENDINGS)}"
    )


def write_new(path: str, text: str) -> str:
    """Write a text to a new file and return its absolute path; `~` is the home folder.

    Raises:
        UsageError: the file is there already, or cannot be written.
    """
    try:
        wanted = Path(path).expanduser()
        with wanted.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError("not written", where=path, why="the file exists", hint="choose another name") from None
    except (OSError, RuntimeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError("not written", where=path, why=why.lower(), hint="choose another place") from error
    return os.path.abspath(wanted)
