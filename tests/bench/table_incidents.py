"""Print, or with --write keep in docs/measured, what the diagnosis says of every case file."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.diagnose.casework import PATHS  # noqa: E402
from tests.diagnose.scoreboard import MEANING, excluded, markdown_table, score, text_table, totals  # noqa: E402

NOTES = "\n## Notes\n"
"""What stands from this heading on was written by hand and is kept when the page is written again."""


def page(rows: dict[str, dict[str, object]], day: str) -> str:
    """Return the page as Markdown."""
    parts = [
        f"# The diagnosis on public incidents: {day}",
        "",
        "Command: `python tests/bench/table_incidents.py --write`",
        f"pdops {version('pdops')}. Files: `fixtures/incidents` (written from public reports, `basis: mixed`; what is made up is",
        "said in each file) and `fixtures/cases` (written). They were seen while rules were written, so this shows that nothing",
        "known is answered wrongly, and not how often an unseen fault is named.",
        "",
        "`-`: the case expects nothing of that part; a case that expects `unknown` expects no layer and no cause.",
        *(f"`{column}`: {text}." for column, text in MEANING.items()),
        "",
        "```",
        *totals(rows),
        "```",
        "",
        *markdown_table(rows),
    ]
    left_out = excluded()
    if left_out:
        parts += ["", "## Without a case", "", *(f"- {name}: {why}" for name, why in sorted(left_out.items()))]
    return "\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    """Score every case; the status is 1 when one is wrong."""
    rows = {path.stem: score(path) for path in PATHS}
    for text in text_table(rows):
        print(text)
    if "--write" in arguments:
        day = datetime.now(tz=UTC).date().isoformat()
        place = ROOT / "docs" / "measured" / f"incidents-{day}.md"
        kept = place.read_text(encoding="utf-8").partition(NOTES) if place.exists() else ("", "", "")
        place.write_text(page(rows, day) + "".join(kept[1:]), encoding="utf-8")
        print(place.relative_to(ROOT))
    return int(any(row[column] is False for row in rows.values() for column in MEANING))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
