"""Judge what a diagnosis says of a case file, as it stands and changed in ways that must not change the answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pdops.diagnose.engine import diagnose
from pdops.model.report import Evidence, Hypothesis, Report, Verdict
from pdops.sources.case import Case, case_view, load_case, scaled, series_keys, without

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
INCIDENTS = tuple(sorted((FIXTURES / "incidents").glob("[0-9]*.yaml")))
EXCLUDED = FIXTURES / "incidents" / "EXCLUDED.yaml"
WRITTEN = tuple(sorted((FIXTURES / "cases").glob("*.yaml")))
PATHS = (*INCIDENTS, *WRITTEN)


@dataclass(frozen=True, slots=True)
class Judged:
    """Which parts of an expectation were met; None where the case expects nothing of that part."""

    report: Report
    verdict: bool
    layer: bool | None
    cause: bool | None
    forbidden: bool | None
    following: bool | None

    @property
    def right(self) -> bool:
        """Whether everything that was expected is there."""
        return False not in (self.verdict, self.layer, self.cause, self.forbidden, self.following)

    @property
    def answer(self) -> str:
        """The verdict, and the first hypothesis with its confidence."""
        top = self.report.top
        return f"{self.report.verdict} {top.cause} {top.confidence:.2f}" if top else str(self.report.verdict)


def judge(case: Case) -> Judged:
    """Diagnose a case and compare with what it expects."""
    view, _ = case_view(case)
    report = diagnose(view)
    expect = case.expect
    assert expect is not None
    top = report.top
    first_two = report.hypotheses[:2]
    steps = [step.lower() for h in first_two for step in h.next]
    return Judged(
        report=report,
        verdict=report.verdict is expect.verdict,
        layer=(top is not None and top.layer in expect.layers_ok) if expect.layers_ok else None,
        cause=bool({h.cause for h in first_two} & set(expect.causes)) if expect.causes else None,
        forbidden=not (_named(top) & set(expect.not_)) if expect.not_ else None,
        following=any(word.lower() in s for word in expect.next_any for s in steps) if expect.next_any else None,
    )


def stays(case: Case) -> bool:
    """Whether a changed case still gets the right answer, or none; never another fault."""
    judged = judge(case)
    if judged.report.verdict is Verdict.UNKNOWN:
        return True
    return False not in (judged.verdict, judged.layer, judged.cause, judged.forbidden)


def times(path: Path, factor: float) -> bool:
    """Whether the same fault in a faster or slower cluster is still not taken for another."""
    return stays(scaled(load_case(path), factor))


def strongest(case: Case) -> str | None:
    """Return the series behind the first evidence of the first hypothesis that rests on a series."""
    top = judge(case).report.top
    keys = series_keys(case)
    for evidence in top.for_ if top is not None else ():
        found = _series(evidence, keys)
        if found is not None:
            return found
    return None


def _series(evidence: Evidence, keys: tuple[str, ...]) -> str | None:
    stem = evidence.signal.partition(".")[0]
    names = [k for k in keys if k.partition("@")[0].partition(".")[0] == stem]
    if evidence.scope is None:
        return names[0].partition("@")[0] if names else None
    prefix = {"pool": "pool:", "pair": "pair:"}.get(evidence.scope.kind, "")
    return next((k for k in names if k.partition("@")[2] == prefix + evidence.scope.id), None)


def blinded(path: Path) -> tuple[str | None, bool]:
    """Return the series that was taken away, and whether the rest is still not taken for another fault."""
    case = load_case(path)
    key = strongest(case)
    return key, key is None or stays(without(case, key))


def _named(top: Hypothesis | None) -> set[str]:
    return set() if top is None else {top.cause, top.check, *top.runbooks}
