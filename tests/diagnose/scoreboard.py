"""What became of the case files, as one table: in the terminal after a test run, and as a page of docs/measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from pdops.sources.case import load_case, scaled
from tests.diagnose.casework import EXCLUDED, INCIDENTS, blinded, judge, stays

Row = Mapping[str, object]

COLUMNS = ("layer", "cause", "forbidden", "next", "x0.5", "x2", "blinded")
MEANING = {
    "layer": "layer of the first hypothesis right",
    "cause": "cause among the first two hypotheses",
    "forbidden": "forbidden conclusion avoided",
    "next": "next step named",
    "x0.5": "in a cluster half as fast, no other fault",
    "x2": "in a cluster twice as fast, no other fault",
    "blinded": "without its best series, no other fault",
}
_SIGN = {True: "ok", False: "NO", None: "-"}


def excluded() -> dict[str, str]:
    """Return the public incidents without a case, with the reason, by id."""
    return dict(yaml.safe_load(EXCLUDED.read_text(encoding="utf-8"))["excluded"])


def text_table(rows: Mapping[str, Row]) -> Iterable[str]:
    """Yield the table as lines of text."""
    width = max(map(len, rows))
    yield f"{'case':{width}}  {'answer':44} {' '.join(f'{c:9}' for c in COLUMNS)}"
    for case, found in sorted(rows.items()):
        marks = " ".join(f"{_sign(found.get(c)):9}" for c in COLUMNS)
        yield f"{case:{width}}  {found.get('answer', '?')!s:44} {marks}".rstrip()
    yield from totals(rows)


def markdown_table(rows: Mapping[str, Row]) -> Iterable[str]:
    """Yield the table as lines of Markdown."""
    yield f"| case | answer | {' | '.join(COLUMNS)} |"
    yield "|---" * (len(COLUMNS) + 2) + "|"
    for case, found in sorted(rows.items()):
        yield f"| {case} | {found.get('answer', '?')} | {' | '.join(_sign(found.get(c)) for c in COLUMNS)} |"


def totals(rows: Mapping[str, Row]) -> Iterable[str]:
    """Yield how many cases got each part right: of public incidents, and of the written cases beside them."""
    public = {p.stem for p in INCIDENTS}
    for name, wanted in (("public incidents", public.__contains__), ("written cases", lambda c: c not in public)):
        yield from _totals(name, [row for case, row in rows.items() if wanted(case)])
    yield f"public incidents without a case: {len(excluded())} (fixtures/incidents/EXCLUDED.yaml says why)"


def _totals(name: str, rows: list[Row]) -> Iterable[str]:
    if not rows:
        return
    counted = {c: [bool(row[c]) for row in rows if row.get(c) is not None] for c in COLUMNS}
    unknown = sum(1 for row in rows if str(row.get("answer", "")).startswith("unknown"))
    yield f"{name}: {len(rows)}, of which answered `unknown`: {unknown}"
    for column, told in counted.items():
        if told:
            yield f"  {MEANING[column]:44} {sum(told)} of {len(told)}"


def _sign(told: object) -> str:
    return _SIGN[None if told is None else bool(told)]


def score(path: Path) -> dict[str, object]:
    """Return the row of a case."""
    case = load_case(path)
    judged = judge(case)
    key, right = blinded(path)
    return {
        "answer": judged.answer,
        "layer": judged.layer,
        "cause": judged.cause,
        "forbidden": judged.forbidden,
        "next": judged.following,
        "x0.5": stays(scaled(case, 0.5)),
        "x2": stays(scaled(case, 2.0)),
        "blinded": None if key is None else right,
    }
