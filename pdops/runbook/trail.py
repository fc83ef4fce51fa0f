"""A run as spans: one for the run, one for each step and each taking back, made from its events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pdops.runbook.journal import Event
from pdops.runbook.states import ENDED, StepState
from pdops.telemetry.past import PastSpan
from pdops.telemetry.tracing import Attribute

ROOT = "run"
_OVER = frozenset({StepState.VERIFIED, StepState.FAILED})


def closing(event: Event) -> bool:
    """Whether an event ends a span: a step that is verified or failed, or a run that has ended."""
    if event.kind == "step":
        return event.body["to"] in _OVER
    return event.kind == "state" and event.body["to"] in ENDED


@dataclass(slots=True)
class _Begun:
    at_s: float
    attempt: int = 1
    attributes: dict[str, Attribute] = field(default_factory=dict)
    moments: list[tuple[float, str]] = field(default_factory=list)


def spans(events: Iterable[Event], wanted: frozenset[int]) -> tuple[PastSpan, ...]:
    """Return the spans that events end.

    Args:
        events: all of one run, in order.
        wanted: numbers of those whose spans are asked for.
    """
    found: list[PastSpan] = []
    root = _Begun(0.0)
    steps: dict[tuple[str, int], _Begun] = {}
    planned: Sequence[Mapping[str, Any]] = []
    for event in events:
        body = event.body
        if event.kind == "opened":
            plan = body["plan"]
            planned = list(plan["steps"])
            root = _Begun(event.at_s, attributes=_of_run(event))
        elif event.kind == "step":
            key = (str(body["phase"]), int(body["position"]))
            begun = steps.setdefault(key, _Begun(event.at_s))
            begun.moments.append((event.at_s, str(body["to"])))
            begun.attributes |= _of_step(event, planned)
            if body["to"] in _OVER:
                if event.seq in wanted:
                    found.append(_step(event, begun, key))
                steps[key] = _Begun(event.at_s, begun.attempt + 1)
        elif event.kind == "state" and body["to"] in ENDED:
            root.attributes |= {"pdops.runbook.outcome": str(body["to"])}
            if event.seq in wanted:
                failed = body["to"] != "done"
                found.append(_span(event, root, ROOT, None, "runbook", str(body.get("why", "")) if failed else ""))
        elif event.kind in ("state", "started", "approved", "abort", "claimed"):
            root.moments.append((event.at_s, str(body["to"]) if event.kind == "state" else event.kind))
    return tuple(found)


def _of_run(event: Event) -> dict[str, Attribute]:
    plan = event.body["plan"]
    return {
        "pdops.run": event.run, "pdops.cluster": str(plan["cluster"]), "pdops.runbook": str(plan["runbook"]),
        "pdops.runbook.risk": str(plan["risk"]), "pdops.requester": event.actor, "pdops.plan.hash": str(plan["plan_hash"]),
    }  # fmt: skip


def _of_step(event: Event, planned: Sequence[Mapping[str, Any]]) -> dict[str, Attribute]:
    body = event.body
    told: dict[str, Attribute] = {
        "pdops.run": event.run, "pdops.step": str(body["id"]), "pdops.step.phase": str(body["phase"]),
        "pdops.action": action_of(body, planned),
    }  # fmt: skip
    if body.get("subject"):
        told |= {
            "pdops.subject": str(body["subject"]),
            "pdops.before": str(body["before"]),
            "pdops.target": str(body["target"]),
        }
    if body.get("changed") is not None:
        told["pdops.changed"] = bool(body["changed"])
    if body.get("detail"):
        told["pdops.detail"] = str(body["detail"])[:500]
    return told


def action_of(body: Mapping[str, Any], planned: Sequence[Mapping[str, Any]]) -> str:
    """Return the action of an event of a step: what it says itself, else what was planned."""
    if body.get("action"):
        return str(body["action"])
    position = body.get("position")
    if not isinstance(position, int) or not 0 <= position < len(planned):
        return "unknown"
    step = planned[position]
    if body.get("phase") == "undo":
        undo = step.get("undo")
        return str(undo["action"]) if isinstance(undo, dict) else "unknown"
    return str(step.get("action", "unknown"))


def _step(event: Event, begun: _Begun, key: tuple[str, int]) -> PastSpan:
    failed = str(event.body.get("detail", "")) or "failed" if event.body["to"] == StepState.FAILED else ""
    name = f"{'take back ' if key[0] == 'undo' else ''}{event.body['id']}"
    return _span(event, begun, f"{key[0]}/{key[1]}/{begun.attempt}", ROOT, name, failed)


def _span(event: Event, begun: _Begun, key: str, parent: str | None, name: str, error: str) -> PastSpan:
    runbook = begun.attributes.get("pdops.runbook")
    return PastSpan(
        trace=event.run, key=key, parent=parent, name=f"{name} {runbook}" if runbook else name, start_s=begun.at_s,
        # A wall clock that was set back must not make a span that ends before it begins.
        end_s=max(event.at_s, begun.at_s), attributes=begun.attributes, moments=tuple(begun.moments), error=error[:500],
    )  # fmt: skip
