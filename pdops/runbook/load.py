"""Read runbooks: shipped ones by id, others by path. Everything a file can get wrong is said with its line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

from pdops.actuate.backend import Value
from pdops.catalog.load import catalog
from pdops.diagnose.checks import CHECKS
from pdops.errors import RunbookError
from pdops.grafana.rules import pages
from pdops.runbook.actions import actions
from pdops.runbook.model import (
    Condition,
    Each,
    FromParameter,
    IfFails,
    New,
    Parameter,
    Recovery,
    Runbook,
    Step,
    Triggers,
    With,
)
from pdops.runbook.questions import QUESTIONS
from pdops.sources.validate import build, did_you_mean, explain, path_text
from pdops.sources.yamlfile import Document, parse_yaml, read_yaml

PACKAGE = "pdops_runbooks"
_WHAT = "runbook cannot be used"
_HINT = "`pdops schema runbook` prints the format"
ALIKE = 0.88
"""Of two names, by difflib: one letter too few, too many or wrong, or two that changed places, in a name of nine."""
Loc = tuple[int | str, ...]


def shipped_ids() -> tuple[str, ...]:
    """Return the ids of the shipped runbooks, sorted."""
    entries = resources.files(PACKAGE).iterdir()
    return tuple(sorted(e.name.removesuffix(".yaml") for e in entries if e.name.endswith(".yaml")))


@cache
def shipped(runbook_id: str) -> Runbook:
    """Return a shipped runbook.

    Raises:
        RunbookError: there is none of that id.
    """
    if runbook_id not in shipped_ids():
        near = difflib.get_close_matches(runbook_id, shipped_ids(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`pdops runbook list` lists them; a path to a file works too"
        raise RunbookError("no such runbook", where=repr(runbook_id)[:80], hint=hint)
    name = f"{runbook_id}.yaml"
    return parse_runbook(resources.files(PACKAGE).joinpath(name).read_text(encoding="utf-8"), path=name)


def find_runbook(text: str) -> Runbook:
    """Return a runbook by id, or from a file when the text is a path.

    A path has a slash, ends in .yaml, .yml or .json, or is a file that is there and has no shipped runbook's id.

    Raises:
        RunbookError: there is none, or the file is not valid.
    """
    looks_like_path = os.sep in text or text.endswith((".yaml", ".yml", ".json"))
    if looks_like_path or (text not in shipped_ids() and os.path.isfile(text)):
        return load_runbook(Path(text))
    return shipped(text)


def load_runbook(path: Path) -> Runbook:
    """Read a runbook file.

    Raises:
        RunbookError: it cannot be read or is not valid; says file and line, what was expected, and a hint.
    """
    return _runbook(read_yaml(os.fspath(path), error=RunbookError, what=_WHAT))


def parse_runbook(text: str, *, path: str = "runbook.yaml") -> Runbook:
    """Read a runbook from text; see `load_runbook`."""
    return _runbook(parse_yaml(text, path=path, error=RunbookError, what=_WHAT))


def _runbook(document: Document) -> Runbook:
    runbook = build(Runbook, document, error=RunbookError, what=_WHAT)
    _Checker(runbook, document).check()
    return runbook


class _Checker:
    """Checks what one field alone cannot tell: names of actions and questions, what they are told, and references."""

    def __init__(self, runbook: Runbook, document: Document) -> None:
        self._runbook, self._document = runbook, document

    def check(self) -> None:
        self._triggers(self._runbook.triggers)
        self._part((), self._runbook)
        if self._runbook.recovery is not None:
            self._part(("recovery",), self._runbook.recovery)

    def _part(self, loc: Loc, part: Runbook | Recovery) -> None:
        for index, step in enumerate(part.steps):
            self._step((*loc, "steps", index), step)
        for name in ("guards", "success"):
            for index, condition in enumerate(getattr(part, name)):
                self._condition((*loc, name, index), condition, in_each=False)

    def _triggers(self, triggers: Triggers) -> None:
        """Refuse names that nothing has: what waits for one never starts, and nobody is told."""
        on = triggers.diagnosis
        known = {"causes": list(catalog().causes), "checks": [c.meta.id for c in CHECKS]}
        for kind, names in (("causes", on.causes), ("checks", on.checks)):
            for index, name in enumerate(names):
                if name not in known[kind]:
                    near = difflib.get_close_matches(name, known[kind], n=1)
                    hint = f"did you mean {near[0]!r}?" if near else "`pdops explain --list` lists them"
                    self._refuse(("triggers", "diagnosis", kind, index), f"no {kind[:-1]} {name!r}", hint)
        for index, alert in enumerate(triggers.alerts):
            if (meant := mistyped(alert)) is not None:
                hint = f"did you mean {meant!r}? A rule of your own needs a name less like it"
                self._refuse(("triggers", "alerts", index), f"no shipped rule is named {alert!r}", hint)

    def _step(self, loc: Loc, step: Step) -> None:
        spec = actions().get(step.action)
        if spec is None:
            self._refuse((*loc, "action"), f"no action {step.action!r}", did_you_mean(step.action, actions()))
        assert spec is not None
        if isinstance(step.if_fails, FromParameter):
            self._policy((*loc, "if_fails"), step.if_fails.param)
        self._with((*loc, "with"), step.with_, spec.params, in_each=step.for_each is not None)
        for name in ("skip_when", "verify"):
            for index, condition in enumerate(getattr(step, name)):
                self._condition((*loc, name, index), condition, in_each=step.for_each is not None)

    def _policy(self, loc: Loc, name: str) -> None:
        known = self._runbook.parameters
        if name not in known:
            self._refuse(
                loc, f"no parameter {name!r}", did_you_mean(name, known) if known else "declare it under parameters"
            )
        if not set(known[name].choices) <= set(get_args(IfFails)) or not known[name].choices:
            self._refuse(loc, f"parameter {name!r} is not a choice of stop and degrade", "give it those choices")

    def _condition(self, loc: Loc, condition: Condition, *, in_each: bool) -> None:
        question = QUESTIONS.get(condition.check)
        if question is None:
            self._refuse((*loc, "check"), f"no check {condition.check!r}", did_you_mean(condition.check, QUESTIONS))
        assert question is not None
        self._with((*loc, "with"), condition.with_, question.params, in_each=in_each)

    def _with(self, loc: Loc, given: With, model: type[BaseModel], *, in_each: bool) -> None:
        known = self._runbook.parameters
        for key, value in given.items():
            if isinstance(value, FromParameter) and value.param not in known:
                hint = did_you_mean(value.param, known) if known else "declare it under parameters"
                self._refuse((*loc, key), f"no parameter {value.param!r}", hint)
            if isinstance(value, Each) and not in_each:
                self._refuse((*loc, key), "each: worker needs for_each in its step", "name a role in for_each")
        for told in _examples(given, known):
            try:
                model.model_validate(told)
            except ValidationError as problem:
                self._explain(loc, given, model, told, problem)

    def _explain(
        self, loc: Loc, given: With, model: type[BaseModel], told: Mapping[str, Value], problem: ValidationError
    ) -> None:
        detail = problem.errors(include_url=False)[0]
        document = Document(self._document.path, dict(told), self._document.walk(loc)[0])
        why, hint = explain(model, document, detail)
        key = str(detail["loc"][0]) if detail["loc"] else ""
        if isinstance(given.get(key), FromParameter):
            why += f", which parameter {given[key].param!r} may be"  # type: ignore[union-attr]
        self._refuse((*loc, *detail["loc"]), f"{path_text(loc)}: {why}", hint if hint != "" else _HINT)

    def _refuse(self, loc: Loc, why: str, hint: str) -> None:
        raise RunbookError(_WHAT, where=self._document.where(*loc), why=why, hint=hint)


def mistyped(alert: str) -> str | None:
    """Return the shipped rule that an alert is named like but for a letter or two, or None; rules of one's own are no mistake."""
    names = [entry.id for entry in pages.index()]
    if alert in names:
        return None
    by_case = {name.casefold(): name for name in names if abs(len(name) - len(alert)) <= 1}
    near = difflib.get_close_matches(alert.casefold(), by_case, n=1, cutoff=ALIKE)
    return by_case[near[0]] if near else None


def _examples(given: With, parameters: Mapping[str, Parameter]) -> Iterator[dict[str, Value]]:
    """Yield what an action may be told at most: each parameter at its bounds, the others at their defaults."""
    plain: dict[str, Value] = {}
    spans: dict[str, tuple[Value, ...]] = {}
    for key, value in given.items():
        if isinstance(value, FromParameter):
            spans[key] = _span(parameters[value.param])
            plain[key] = spans[key][0]
        elif isinstance(value, Each | New):
            plain[key] = "worker-0"
        else:
            plain[key] = value
    yield plain
    for key, span in spans.items():
        for other in span[1:]:
            yield plain | {key: other}


def _span(parameter: Parameter) -> tuple[Value, ...]:
    if parameter.type == "worker":
        return ("worker-0",)
    if parameter.type == "choice":
        return (parameter.default, *parameter.choices)
    cast = int if parameter.type == "integer" else float
    assert parameter.min is not None
    assert parameter.max is not None
    assert isinstance(parameter.default, int | float)
    return (cast(parameter.default), cast(parameter.min), cast(parameter.max))
