"""The plan of a runbook: first to read, then, on a screen of its own, to carry out."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pdops.errors import PdopsError
from pdops_tui.draw.line import Line, span, wrap
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models.format import Style
from pdops_tui.models.text import clean
from pdops_tui.places import CONFIRM, Place
from pdops_tui.screens.scene import Scene

if TYPE_CHECKING:
    from pdops.runbook.plan import Plan

_OPEN, _MID, _CLOSE = "\x01", "\x02", "\x03"
_LOOKS: dict[str, Style] = {"good": "good", "bad": "bad", "warn": "warn", "title": "title", "dim": "dim"}


def sheet(scene: Scene) -> Sheet:
    """Return what the runbook would do now; nothing can be carried out from here."""
    out = Draft(scene.width)
    out.title(f"RUNBOOK {clean(scene.place.id, 60)} · plan only")
    plan = _planned(out, scene)
    if plan is None:
        return out.sheet()
    _plan_lines(out, plan)
    out.title("TO CARRY IT OUT")
    why = _unable(scene, plan)
    if why:
        out.extend(span(f" {line}", "warn") for line in wrap(why, max(20, scene.width - 2)))
        out.add(span(f" pdops runbook plan {plan.runbook} -c pdops.yaml -o plan.json && pdops runbook apply plan.json"))
    else:
        out.spot(((" [ go on to the confirmation ]", "key"),), Place(CONFIRM, scene.place.id), start=1)
    return out.sheet()


def confirm(scene: Scene) -> Sheet:
    """Return the plan and its guards once more, and the one spot that carries out exactly this plan."""
    out = Draft(scene.width)
    out.title(f"CONFIRM {clean(scene.place.id, 60)} · this changes the cluster")
    plan = _planned(out, scene)
    if plan is None:
        return out.sheet()
    why = _unable(scene, plan)
    if why:
        out.extend(span(f" {line}", "bad") for line in wrap(why, max(20, scene.width - 2)))
    else:
        assert scene.desk.act is not None
        out.add(span(f" cluster {clean(plan.cluster)}, {len(plan.steps)} steps, risk {plan.risk}", "title"))
        line: Line = ((f" [ carry out {plan.id} ]", "bad"), (" enter does it, esc goes back", "dim"))
        out.spot(line, None, start=1, deed=partial(scene.desk.act, plan), yank=plan.id)
    _plan_lines(out, plan)
    return out.sheet()


def _planned(out: Draft, scene: Scene) -> Plan | None:
    # What makes plans is not needed before somebody asks for one.
    from pdops_tui.plans import preview

    report = scene.screen.snapshot.report
    if report is None:
        out.add(span(" ? not judged yet, so nothing can be planned", "unknown"))
        return None
    state = None
    if scene.desk.backend is not None:
        try:
            state = scene.desk.backend()
        except PdopsError as error:
            out.add(span(f" ? the backend does not answer: {clean(str(error), 300)}", "unknown"))
    if state is None:
        out.extend(
            span(f" {line}", "unknown")
            for line in wrap(
                "no backend is given: what only a backend knows is open, and nothing can be carried out",
                max(20, scene.width - 2),
            )
        )
    found = preview(scene.place.id, scene.ask.view, report, state)
    if isinstance(found, PdopsError):
        out.extend(span(f" {line}", "bad") for line in wrap(clean(f"{found}; {found.hint}"), max(20, scene.width - 2)))
        return None
    return found


def _unable(scene: Scene, plan: Plan) -> str:
    """Return why a plan cannot be carried out from here, or nothing."""
    if scene.screen.snapshot.position is not None:
        return "a recording is shown: what is planned for then cannot be carried out now"
    if scene.desk.readonly:
        return "this session is read-only"
    if scene.desk.act is None:
        return "this screen plans only"
    if plan.decision.value != "ready":
        return f"the plan is {plan.decision.value}: {'; '.join(plan.reasons)}"
    return ""


def _plan_lines(out: Draft, plan: Plan) -> None:
    from pdops.runbook.text import render_plan

    text = render_plan(
        plan, width=max(40, out.width - 2), style=lambda part, look: f"{_OPEN}{look}{_MID}{part}{_CLOSE}"
    )
    for raw in text.splitlines():
        out.add(((" ", ""), *_spans(raw)))


def _spans(raw: str) -> Line:
    """Return a line of text with marks around its styled parts as spans."""
    found: list[tuple[str, Style]] = []
    for part in raw.split(_OPEN):
        look, mid, rest = part.partition(_MID)
        if not mid:
            found.append((clean(part), ""))
            continue
        styled, _, after = rest.partition(_CLOSE)
        found += [(clean(styled), _LOOKS.get(look, "")), (clean(after), "")]
    return tuple(s for s in found if s[0])
