"""Print what became of the case files, once, at the end of the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.diagnose.scoreboard import text_table

ROWS: pytest.StashKey[dict[str, dict[str, object]]] = pytest.StashKey()


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Note what a test found out about a case."""
    rows: dict[str, dict[str, object]] = {}
    request.config.stash[ROWS] = rows

    def note(case: str, **found: object) -> None:
        rows.setdefault(case, {}).update(found)

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash.get(ROWS, {})
    if not rows:
        return
    terminalreporter.section("case files")
    for text in text_table(rows):
        terminalreporter.write_line(text)
