"""Plans written by hand, a judge whose answers are set, and an engine put together from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pdops.actuate.backend import Seen, State, Value
from pdops.clock import VirtualClock
from pdops.model.frame import Probe
from pdops.runbook.actions import actions
from pdops.runbook.execute import Executor
from pdops.runbook.gates import Outcome
from pdops.runbook.journal import Journal
from pdops.runbook.model import Mode, Risk, ScopeOf
from pdops.runbook.plan import Asked, Decision, Plan, PlannedStep, Undo, facts_hash, sealed
from pdops.runbook.stepping import Verdict
from tests.runbook.double_backend import START, DoubleBackend

PASS: Verdict = (Outcome.PASS, "")
T0 = 1_000_000.0


def step(
    id_: str, action: str, subject: str | None, before: Value, target: Value, params: dict[str, Value], **more
) -> PlannedStep:
    """Return a step; its undo is the action's inverse."""
    spec = actions()[action]
    undo = None
    if spec.inverse and subject is not None:
        back = {**params, "replicas": before} if "replicas" in params else params
        undo = Undo(action=spec.inverse, params=back, subject=subject, target=before)
    content = {
        "id": id_, "action": action, "title": spec.title, "risk": spec.risk, "params": params, "subject": subject,
        "before": before, "target": target, "already": before == target and subject is not None, "once": spec.once,
        "undo": undo, "no_undo": "" if undo else "nothing takes it back", "guards": (), "skip_when": (), "verify": (), "timeout_s": 10.0,
    }  # fmt: skip
    return PlannedStep(**{**content, **more})


SCALE_OUT = (
    step(
        "start",
        "pool.scale-out",
        "pool/prefill/replicas",
        1,
        2,
        {"role": "prefill", "worker": "prefill-1", "replicas": 2},
    ),
    step("canary", "pair.canary", None, None, None, {"worker": "prefill-1"}),
    step("route", "router.add", "worker/prefill-1/routed", False, True, {"worker": "prefill-1"}),
)
CORDON = (step("cordon", "worker.cordon", "worker/decode-0/cordoned", False, True, {"worker": "decode-0"}),)
RESTART = (
    step("cordon", "worker.cordon", "worker/decode-0/cordoned", False, True, {"worker": "decode-0"}),
    step("restart", "worker.restart", "worker/decode-0/starts", 1, 2, {"worker": "decode-0", "starts": 2}),
    step("uncordon", "worker.uncordon", "worker/decode-0/cordoned", True, False, {"worker": "decode-0"}),
)


def seen(values: dict[str, Value] = START) -> State:
    """Return a state of these values."""
    return State(at_s=0.0, values={s: Seen(v, "double") for s, v in values.items()})


def plan(
    steps: tuple[PlannedStep, ...] = SCALE_OUT,
    runbook: str = "scale-out-prefill",
    state: State | None = None,
    now_s: float = T0,
    **more: object,
) -> Plan:
    """Return a sealed plan that may be carried out."""
    content: dict[str, object] = {
        "runbook": runbook, "runbook_version": 1, "title": runbook, "cluster": "c", "backend": "double",
        "asked": Asked.PERSON, "mode": Mode.APPROVE, "risk": Risk.SAFE, "scope": ScopeOf.POOL,
        "touches": ("pool/prefill",), "topology": any(actions()[s.action].topology for s in steps), "parameters": {},
        "made_at_s": now_s, "expires_at_s": now_s + 600.0, "view_at_s": now_s,
        "facts_hash": facts_hash(state or seen()), "decision": Decision.READY, "reasons": (), "guards": (),
        "steps": steps, "left_out": (), "success": (), "observe_s": 4.0, "cooldown_s": 100.0, "budget_per_hour": 2,
        "min_ready": 1, "recovery": False, "effects": (), "will_not_fix": "-",
    }  # fmt: skip
    return sealed(Plan(**{**content, **more}))  # type: ignore[arg-type]


class SetJudge:
    """A judge whose answers are set by question, or by question and step."""

    def __init__(self) -> None:
        self.answers: dict[str, Verdict] = {}

    def _say(self, question: str, step_id: str = "") -> Verdict:
        return self.answers.get(f"{question} {step_id}", self.answers.get(question, PASS))

    def hear(self, probes: tuple[Probe, ...]) -> None:
        """Nothing is made of them."""

    def evidence(self) -> dict[str, object]:
        return {"verdict": "fault", "observed": 0.5}

    def admit(self, plan: Plan, state: State) -> Verdict:
        return self._say("admit")

    def guard(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:
        return self._say("guard", step.id)

    def skip(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:
        return self._say("skip", step.id)

    def verify(self, plan: Plan, step: PlannedStep, state: State) -> Verdict:
        return self._say("verify", step.id)

    def success(self, plan: Plan, state: State) -> Verdict:
        return self._say("success")


class Bench:
    """A journal, a double and a virtual clock in one folder; `again` is what a new process would have."""

    def __init__(self, folder: Path, clock: VirtualClock | None = None) -> None:
        self.folder, self.clock = folder, clock or VirtualClock(T0)
        self.backend, self.judge = DoubleBackend(folder / "world.json"), SetJudge()
        self.journal = Journal(folder / "journal.db", self.clock, synchronous="OFF")

    def executor(self, actor: str = "ada", reached: Callable[[str], None] = lambda _: None) -> Executor:
        """Return an executor for somebody."""
        return Executor(
            self.journal,
            self.backend,
            self.judge,
            clock=self.clock,
            sleep=self.clock.advance,
            actor=actor,
            reached=reached,
        )

    def again(self) -> None:
        """Open everything anew."""
        self.journal.close()
        self.journal = Journal(self.folder / "journal.db", self.clock, synchronous="OFF")

    def plan(
        self, steps: tuple[PlannedStep, ...] = SCALE_OUT, runbook: str = "scale-out-prefill", **more: object
    ) -> Plan:
        """Return a plan of what is there now."""
        return plan(steps, runbook, self.backend.observe(), self.clock.now(), **more)
