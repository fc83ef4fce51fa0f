"""Guards and verification from signals: the questions of a plan, asked of the same View and diagnosis that people see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pdops.actuate.backend import State
from pdops.diagnose.encode import to_dict
from pdops.model.frame import Probe
from pdops.model.report import Report
from pdops.model.view import View
from pdops.runbook.gates import Answer, Ask, Facts, Outcome, ask, together
from pdops.runbook.plan import Plan, PlannedStep
from pdops.runbook.questions import QUESTIONS
from pdops.runbook.stepping import Verdict

Look = Callable[[], tuple[View, Report]]


class Signals:
    """Answers a plan's questions.

    Args:
        look: returns what is seen now, and what the diagnosis makes of it.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._probes: list[Probe] = []
        self._since: dict[str, float] = {}

    def hear(self, probes: tuple[Probe, ...]) -> None:
        """Take what an effect asked on its way; questions find it in the View."""
        self._probes += probes

    def evidence(self) -> Mapping[str, Any]:
        """Return the diagnosis as of now, with the readings it rests on."""
        return to_dict(self._look()[1])

    def admit(self, plan: Plan, state: State) -> Verdict:
        """Ask every guard of the plan again."""
        return self._ask((Ask(check=g.check, params=g.params) for g in plan.guards), state)

    def guard(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:
        """Ask what must hold before every effect, and the step's own guards."""
        lasting = [Ask(check=g.check, params=g.params) for g in plan.guards if QUESTIONS[g.check].again]
        self._since[step.id] = self._look()[0].at_s
        return self._ask([*lasting, *step.guards], state)

    def skip(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:  # noqa: ARG002  a judge is given the plan
        """Ask whether a step is not needed."""
        return self._ask(step.skip_when, state)

    def verify(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:  # noqa: ARG002  a judge is given the plan
        """Ask whether a step did what it is for; what was probed before it began says nothing."""
        since_s = self._since.setdefault(step.id, self._look()[0].at_s)
        return self._ask(step.verify, state, since_s)

    def success(self, plan: Plan, state: State) -> Verdict:
        """Ask whether the symptom is gone."""
        return self._ask(plan.success, state)

    def _ask(self, questions: Iterable[Ask], state: State, since_s: float | None = None) -> Verdict:
        view, report = self._look()
        seen = replace(view, probes=(*view.probes, *self._probes))
        facts = Facts(view=seen, report=report, state=state, since_s=since_s)
        answers = [ask(question, facts) for question in questions]
        return together(a.outcome for a in answers), "; ".join(map(_told, answers))


def _told(answer: Answer) -> str:
    if answer.outcome is Outcome.PASS:
        return f"{answer.check}: {answer.observed}"
    return f"{answer.check}: {answer.observed}, {answer.why}"
