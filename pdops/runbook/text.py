"""Runbooks and plans for people: what is so, what would be done, and why not."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pdops.actuate.backend import Value
from pdops.model.times import rfc3339
from pdops.runbook.gates import Outcome
from pdops.runbook.make import NO_BACKEND
from pdops.runbook.model import Condition, Each, FromParameter, New, Runbook, Step
from pdops.runbook.plan import Decision, Plan

Style = Callable[[str, str], str]
_LOOKS = {Outcome.PASS: "good", Outcome.FAIL: "bad", Outcome.UNKNOWN: "warn"}
_DECIDED = {Decision.READY: "good", Decision.HELD: "warn", Decision.REFUSED: "bad"}
_HEADS = {Decision.HELD: "why it is held", Decision.REFUSED: "why it is refused", Decision.READY: ""}


def render_plan(plan: Plan, *, width: int, style: Style) -> str:
    """Return a plan as text of at most `width` columns."""
    way = " (recovery)" if plan.recovery else ""
    lines = [
        f"[{style(plan.decision.value.upper(), _DECIDED[plan.decision])}] {style(plan.id, 'title')}",
        f"    {plan.title}: {plan.runbook} {plan.runbook_version}{way}, {plan.risk}, mode {plan.mode}",
        f"    cluster {plan.cluster}, backend {plan.backend}{_expiry(plan)}",
    ]
    if plan.parameters:
        lines.append("    with " + ", ".join(f"{k}={_word(v)}" for k, v in plan.parameters.items()))
    lines += _section(_HEADS[plan.decision], _wrapped(plan.reasons, width), style)
    lines += _section(
        "guards now",
        _table(
            ((g.outcome.value, g.check, g.why if g.outcome is Outcome.UNKNOWN else g.observed) for g in plan.guards),
            width,
            style,
        ),
        style,
    )
    lines += _section("what would change", _steps(plan, width, style), style)
    lines += _section("left out", _wrapped((f"{left.step}: {left.why}" for left in plan.left_out), width), style)
    if plan.success and plan.steps:
        asks = "; ".join(_ask(a.check, a.params) for a in plan.success)
        lines += _section(
            f"it has worked when, {plan.observe_s:g} s after the last step", _wrapped((asks,), width), style
        )
    lines += _section("what it will not fix", _wrapped((plan.will_not_fix,), width), style)
    lines += _section("to know", _wrapped(plan.notes, width), style)
    return "\n".join(lines) + "\n"


def render_runbook(runbook: Runbook, *, width: int, style: Style) -> str:
    """Return a runbook as text of at most `width` columns."""
    trigger = runbook.triggers
    lines = [
        style(f"{runbook.id} {runbook.version}", "title"),
        f"    {runbook.title}",
        f"    {runbook.risk}, mode {runbook.mode}, about one {runbook.scope}; then no other for {runbook.cooldown_s:g} s, "
        f"at most {runbook.budget_per_hour} an hour",
    ]
    starts = [f"alert {', '.join(trigger.alerts)}"] if trigger.alerts else []
    named = (*trigger.diagnosis.causes, *trigger.diagnosis.checks)
    if named:
        starts.append(f"a diagnosis of {', '.join(named)} with {trigger.diagnosis.min_confidence:g} or more")
    if trigger.by_hand:
        starts.append("a person, without a diagnosis")
    if trigger.unanswered:
        starts.append("such an alert where no worker answers, without a diagnosis")
    lines += _section("what may start it", _wrapped(starts, width), style)
    chosen = [f"{name} ({_kind(p)}): {p.help}" for name, p in runbook.parameters.items()]
    lines += _section("what may be chosen", _wrapped(chosen, width), style)
    lines += _section("guards", _wrapped(map(_condition, runbook.guards), width), style)
    lines += _section("steps", _wrapped(map(_step, runbook.steps), width), style)
    lines += _section("it has worked when", _wrapped(map(_condition, runbook.success), width), style)
    if runbook.recovery is not None:
        lines += _section(
            f"recovery: {runbook.recovery.title}", _wrapped(map(_step, runbook.recovery.steps), width), style
        )
    lines += _section("what it will not fix", _wrapped((runbook.will_not_fix,), width), style)
    lines += _section("to know", _wrapped(runbook.notes, width), style)
    return "\n".join(lines) + "\n"


def _expiry(plan: Plan) -> str:
    if plan.backend == NO_BACKEND or plan.expires_at_s < 1e9:
        return ""
    return f", expires {rfc3339(plan.expires_at_s)}"


def _steps(plan: Plan, width: int, style: Style) -> list[str]:
    lines: list[str] = []
    for number, (step, effect) in enumerate(zip(plan.steps, plan.effects, strict=True), 1):
        lines += _wrap(f"{number:>2}  {effect}", width, initial_indent="  ", subsequent_indent=" " * 6)
        details = []
        if step.skip_when:
            within = f", within {step.settle_s:g} s," if step.settle_s else ""
            asked = "; ".join(_ask(a.check, a.params) for a in step.skip_when)
            details.append(f"not needed when{within} {asked}")
        if step.verify:
            details.append(
                f"verified within {step.timeout_s:g} s by " + "; ".join(_ask(a.check, a.params) for a in step.verify)
            )
        if step.if_fails == "degrade":
            details.append("when it fails the run goes on without it")
        if step.undo is not None:
            details.append(f"undone by {_ask(step.undo.action, step.undo.params)}")
        elif step.subject is not None and not step.already:
            details.append(f"no undo: {step.no_undo}")
        for detail in details:
            shown = _wrap(detail, width, initial_indent=" " * 6, subsequent_indent=" " * 8)
            lines += [style(line, "dim") for line in shown]
    return lines


def _table(rows: Iterable[tuple[str, str, str]], width: int, style: Style) -> list[str]:
    found = tuple(rows)
    longest = max((len(name) for _, name, _ in found), default=0)
    lines: list[str] = []
    for outcome, name, text in found:
        first, *rest = _wrap(text, max(20, width - longest - 13)) or [""]
        lines.append(f"  {style(f'{outcome:<7}', _LOOKS[Outcome(outcome)])}  {name:<{longest}}  {first}")
        lines += [f"  {'':<7}  {'':<{longest}}  {line}" for line in rest]
    return lines


def _wrap(text: str, width: int, *, initial_indent: str = "", subsequent_indent: str = "") -> list[str]:
    # Names have dashes, and are copied.
    return textwrap.wrap(
        text,
        width,
        initial_indent=initial_indent,
        subsequent_indent=subsequent_indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _section(title: str, body: list[str], style: Style) -> list[str]:
    return ["", style(title, "title"), *body] if body and title else []


def _wrapped(texts: Iterable[Any], width: int) -> list[str]:
    return [line for text in texts for line in _wrap(str(text), width, initial_indent="  - ", subsequent_indent="    ")]


def _ask(name: str, params: Mapping[str, Value]) -> str:
    return " ".join([name, *(f"{k}={_word(v)}" for k, v in params.items() if v is not None)])


def _condition(condition: Condition) -> str:
    return _ask(condition.check, {k: _written(v) for k, v in condition.with_.items()})


def _step(step: Step) -> str:
    each = f" for each {step.for_each} worker" if step.for_each is not None else ""
    where = ", where the backend can" if step.optional else ""
    verified = f"; verified by {', '.join(c.check for c in step.verify)}" if step.verify else ""
    return f"{step.id}: {_ask(step.action, {k: _written(v) for k, v in step.with_.items()})}{each}{where}{verified}"


def _written(value: object) -> Value:
    if isinstance(value, FromParameter):
        return f"<{value.param}>"
    if isinstance(value, Each):
        return "<each>"
    if isinstance(value, New):
        return f"<new {value.new}>"
    return value if isinstance(value, str | int | float) else None


def _kind(parameter: Any) -> str:
    if parameter.type == "choice":
        return " | ".join(parameter.choices) + f", {parameter.default} unless said"
    if parameter.type == "worker":
        return f"a {' or '.join(parameter.roles)} worker, from the diagnosis unless said"
    return f"{parameter.min:g} to {parameter.max:g}, {parameter.default:g} unless said"


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else "?" if value is None else str(value)
