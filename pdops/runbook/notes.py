"""Which events people are told of, and in which words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pdops.actuate.notify import Level, Note
from pdops.runbook.journal import Event, Run
from pdops.runbook.states import ENDED, RunState

MOST_LINES = 10
"""Runs named one by one when many events are told at once."""
_R = RunState
_LEVELS: dict[str, Level] = {
    _R.HELD: "warning",
    _R.ROLLING_BACK: "warning",
    _R.ROLLED_BACK: "warning",
    _R.REFUSED: "warning",
    _R.ABORTED: "warning",
    _R.FAILED: "error",
    _R.DONE: "info",
}
_KINDS = frozenset({"opened", "approved", "started", "abort", "froze", "thawed"})
_MARKS = frozenset({"started", "froze", "thawed"})


def telling(event: Event) -> bool:
    """Whether people are told of an event: how a run stands, what stops automation, and a noted `say`."""
    if event.kind == "state":
        return event.body["to"] in _LEVELS
    return event.kind in _KINDS or (event.kind == "noted" and isinstance(event.body.get("say"), str))


def marking(event: Event) -> bool:
    """Whether an event belongs on a time axis: where runs begin and end, and where automation stops."""
    return event.kind in _MARKS or (event.kind == "state" and event.body["to"] in ENDED)


def note(event: Event, run: Run | None) -> Note:
    """Return what is told of an event that `telling` is true for."""
    text, level = words(event, run)
    cluster = run.cluster if run is not None else str(event.body.get("scope", ""))
    head = f"[{cluster}] " if cluster and cluster != "*" else ""
    return Note(
        id=event.hash, at_s=event.at_s, level=level, event=_name(event), cluster="" if cluster == "*" else cluster,
        runbook=run.runbook if run is not None else "", run=event.run, text=head + text,
    )  # fmt: skip


def summary(events: Sequence[tuple[Event, Run | None]]) -> Note:
    """Return one note for many events: the newest of each run, at most `MOST_LINES` of them."""
    newest: dict[str, Note] = {}
    for event, run in events:
        newest.pop(event.run or event.hash, None)
        newest[event.run or event.hash] = note(event, run)
    told = list(newest.values())
    lines = [n.text for n in told[-MOST_LINES:]]
    if len(told) > MOST_LINES:
        lines.append(f"and {len(told) - MOST_LINES} more: pdops runbook log")
    last, worst = events[-1][0], ("info", "warning", "error")
    level = max((n.level for n in told), key=worst.index)
    clusters = {n.cluster for n in told}
    return Note(
        id=last.hash, at_s=last.at_s, level=level, event="summary",
        cluster=clusters.pop() if len(clusters) == 1 else "", runbook="", run="",
        text=f"{len(events)} events that were not told before; newest of each run: " + "; ".join(lines),
    )  # fmt: skip


def _name(event: Event) -> str:
    return str(event.body["to"]) if event.kind == "state" else event.kind


def words(event: Event, run: Run | None) -> tuple[str, Level]:
    """Return a sentence for an event that `telling` is true for, and how bad it is."""
    body, who = event.body, event.run
    if event.kind == "opened":
        plan = body["plan"]
        waits = " and waits for approval" if plan["risk"] != "safe" or plan["asked"] != "person" else ""
        return f"{who}: {event.actor} asked for {plan['runbook']} ({plan['risk']}){waits}", "info"
    if event.kind == "approved":
        return f"{who}: approved by {event.actor}", "info"
    if event.kind == "started":
        return f"{who}: started", "info"
    if event.kind == "abort":
        return f"{who}: {event.actor} asked to abort it", "warning"
    if event.kind == "noted":
        return (f"{who}: " if who else "") + str(body["say"]), "warning"
    if event.kind in ("froze", "thawed"):
        scope = "everything" if body["scope"] == "*" else body["scope"]
        why = f": {body['why']}" if body.get("why") else ""
        what = f"automation of {scope} was {'frozen' if event.kind == 'froze' else 'let go on'} by {event.actor}{why}"
        return what, "warning" if event.kind == "froze" else "info"
    to = str(body["to"])
    after = f"; next: pdops runbook resume {who}, or abort it" if to == _R.HELD else ""
    why = f": {body['why']}" if body.get("why") else ""
    kind = f" ({run.runbook})" if run is not None and run.runbook not in who else ""
    return f"{who}{kind}: {to}{why}{after}", _LEVELS[to]
