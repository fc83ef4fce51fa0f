"""Print what became of the case files, once, at the end of the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

ROWS: pytest.StashKey[dict[str, dict[str, object]]] = pytest.StashKey()
_COLUMNS = ("layer", "cause", "forbidden", "next", "x0.5", "x2", "blinded")
_SIGN = {True: "ok", False: "NO", None: "-"}


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
    width = max(map(len, rows))
    terminalreporter.write_line(f"{'case':{width}}  {'answer':44} {' '.join(f'{c:9}' for c in _COLUMNS)}")
    for case, found in sorted(rows.items()):
        marks = " ".join(f"{_SIGN.get(found.get(c), '-'):9}" for c in _COLUMNS)  # type: ignore[call-overload]
        terminalreporter.write_line(f"{case:{width}}  {found.get('answer', '?')!s:44} {marks}")
    for column in _COLUMNS:
        told = [found[column] for found in rows.values() if found.get(column) is not None]
        terminalreporter.write_line(f"{column:10} {sum(map(bool, told))} of {len(told)}")
    named = sum(1 for found in rows.values() if found.get("layer") and found.get("cause"))
    terminalreporter.write_line(f"{len(rows)} cases; {named} with layer and cause right")
