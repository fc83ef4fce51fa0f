"""The timeline of an incident in Markdown, for a channel or a review, from what the journal holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pdops.model.times import rfc3339
from pdops.runbook import notes
from pdops.runbook.journal import Event, Journal, Run
from pdops.runbook.states import RunState
from pdops.runbook.timeline import told

_MARKUP = re.compile(r"([\\`*_\[\]<>|#~])")
_PASSED = frozenset({RunState.GATING, RunState.ACTING, RunState.VERIFYING})
"""States that a run passes at every step; the steps tell the same."""
_CELL = 600
"""Characters of one cell; the journal keeps the rest."""


def of_run(journal: Journal, run: Run) -> str:
    """Return the timeline of one run."""
    events = list(journal.events(run.id))
    head = [
        f"# Timeline of {_text(run.id)}",
        "",
        *_facts(run),
        "",
    ]
    return "\n".join([*head, *_table(events, several=False)]) + "\n"


def since(journal: Journal, from_s: float) -> str:
    """Return the timeline of everything from a Unix time in seconds on: runs, freezes, and what was noted."""
    events = [event for event in journal.events() if event.at_s >= from_s]
    runs = {run.id: run for run in journal.runs()}
    named = [runs[run] for run in dict.fromkeys(e.run for e in events) if run in runs]
    head = [f"# Timeline since {rfc3339(from_s)}", ""]
    if not any(told(e) or notes.telling(e) for e in events):
        return "\n".join([*head, "The journal holds nothing since then."]) + "\n"
    for run in named:
        head.append(f"- {_text(run.id)}: {_text(run.runbook)} on {_text(run.cluster)}, {_outcome(run)}")
    return (
        "\n".join([*head, "" if named else "No run.", *([""] if not named else []), *_table(events, several=True)])
        + "\n"
    )


def _facts(run: Run) -> Iterator[str]:
    yield f"- Runbook: {_text(run.runbook)}, {run.risk}; cluster {_text(run.cluster)}"
    yield f"- Asked for by {_text(run.requester)}; approved by {_text(run.approver) if run.approver else 'nobody'}"
    touches = run.plan.get("touches") or ()
    yield f"- Touches: {_text(', '.join(map(str, touches)) or 'nothing')}"
    yield f"- Outcome: {_outcome(run)}"
    yield f"- Will not fix: {_text(str(run.plan.get('will_not_fix', '')))}"
    for out in run.plan.get("left_out") or ():
        yield f"- Left out: {_text(str(out['step']))}: {_text(str(out['why']))}"


def _outcome(run: Run) -> str:
    why = f": {_text(run.why)}" if run.why else ""
    took = f" after {run.changed_at_s - run.opened_at_s:.0f} s" if run.ended else ""
    return f"**{run.state.value}**{took}{why}" + ("" if run.ended else " (not ended)")


def _table(events: Iterable[Event], *, several: bool) -> Iterator[str]:
    yield "| Time (UTC) | + s |" + (" Run |" if several else "") + " Who | What |"
    yield "|---|---:|" + ("---|" if several else "") + "---|---|"
    first: float | None = None
    for event in events:
        text = (
            "" if event.kind == "state" and event.body["to"] in _PASSED and not event.body.get("why") else told(event)
        )
        if not text and notes.telling(event):
            text = notes.words(event, None)[0]
        if not text:
            continue
        first = event.at_s if first is None else first
        cells = [rfc3339(event.at_s), f"{event.at_s - first:.0f}"]
        if several:
            cells.append(_text(event.run or "-"))
        cells += [_text(event.actor), _text(text)]
        yield f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return text that Markdown shows as it is, on one line: names and reasons are other people's."""
    one = " ".join(text.split())
    return _MARKUP.sub(r"\\\1", one if len(one) <= _CELL else one[: _CELL - 1] + "…")
