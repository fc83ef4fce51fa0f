"""What is new in a diagnosis since the one before, for somebody who watches."""

from __future__ import annotations

from pdops.diagnose.candidate import ABSTAIN
from pdops.diagnose.report_cells import place, when
from pdops.model.report import Hypothesis, Report, Scope, Verdict


def believed(report: Report) -> tuple[Hypothesis, ...]:
    """Return the likeliest hypothesis of each fault that is likelier than not."""
    first: dict[int, Hypothesis] = {}
    for item in report.hypotheses:
        if item.confidence >= ABSTAIN:
            first.setdefault(item.fault, item)
    return tuple(first.values())


def changed(before: Report | None, after: Report) -> bool:
    """Whether a reader must hear of it: another verdict, cause or place; another symptom while no cause is believed."""
    return before is None or _key(before) != _key(after)


def line(before: Report | None, after: Report) -> str:
    """Return one change as text: when, from what to what, where, and the first thing to do."""
    was = f"{before.verdict} -> " if before is not None and before.verdict is not after.verdict else ""
    said = "; ".join(f"{h.cause} at {place(h.scopes)} ({h.layer}, {h.confidence:.2f})" for h in believed(after))
    if not said and after.verdict is Verdict.UNKNOWN:
        said = "; ".join(dict.fromkeys(m.why for m in after.missing[:2]))
    symptoms = f" [{', '.join(after.symptoms)}]" if after.symptoms else ""
    top = believed(after)
    known = {h.cause for h in believed(before)} if before is not None else set()
    step = f"\n    next: {top[0].next[0]}" if top and top[0].next and top[0].cause not in known else ""
    return f"{when(after)}  {was}{after.verdict}{f': {said}' if said else ''}{symptoms}{step}"


def _key(report: Report) -> tuple[Verdict, frozenset[tuple[str, tuple[Scope, ...]]], frozenset[str]]:
    causes = frozenset((h.cause, tuple(sorted(h.scopes))) for h in believed(report))
    return report.verdict, causes, frozenset() if causes else frozenset(report.symptoms)
