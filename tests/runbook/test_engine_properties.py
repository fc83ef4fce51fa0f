"""Whatever comes in whatever order — plans, kills, freezes, faults, clocks — the rules hold."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pdops.errors import FencedError, RefusedError
from pdops.runbook import audit
from pdops.runbook.allowance import CLUSTER_BUDGET, HOUR_S
from pdops.runbook.gates import Outcome
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.states import RunState
from tests.runbook.engine_kit import CORDON, SCALE_OUT, Bench, step

ACTIVE = {RunState.ACTING, RunState.VERIFYING, RunState.OBSERVING, RunState.ROLLING_BACK}
SCALE_IN = (
    step("cordon", "worker.cordon", "worker/decode-0/cordoned", False, True, {"worker": "decode-0"}),
    step(
        "stop", "pool.scale-in", "pool/decode/replicas", 2, 1, {"role": "decode", "worker": "decode-1", "replicas": 1}
    ),
)
KINDS = {
    "scale-out": (SCALE_OUT, ("pool/prefill",)),
    "cordon": (CORDON, ("worker/decode-0",)),
    "scale-in": (SCALE_IN, ("pool/decode",)),
}
ANSWERS = st.sampled_from([Outcome.PASS, Outcome.FAIL, Outcome.UNKNOWN])
AT = st.none() | st.none() | st.integers(0, 20)
"""The boundary at which something happens, if it does."""


class _Killed(BaseException):
    """The process is gone; nothing of ours may catch it."""


class Engine(RuleBasedStateMachine):
    """One cluster, one journal, many processes one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.bench = Bench(Path(self.folder.name))
        self.switch = KillSwitch(self.bench.journal)
        self.bench.backend.on_effect = self._effect
        self.names = itertools.count()
        self.put_back = False

    def teardown(self) -> None:
        self.bench.journal.close()
        self.folder.cleanup()

    def _effect(self, _subject: str) -> None:
        assert self.switch.why("c") is None, "an effect while frozen"

    def _drive(self, run_id: str, dies_at: int | None, frozen_at: int | None = None) -> None:
        passed = itertools.count()

        def reached(_point: str) -> None:
            now = next(passed)
            if now == frozen_at:
                self.switch.on("eve", "")
            if now == dies_at:
                raise _Killed

        with contextlib.suppress(_Killed, RefusedError, FencedError):
            self.bench.executor(reached=reached).drive(run_id)
        if dies_at is not None:
            self.bench.again()
            self.switch = KillSwitch(self.bench.journal)

    def _open(self) -> list[str]:
        return [r.id for r in self.bench.journal.runs() if not r.ended]

    @rule(kind=st.sampled_from(sorted(KINDS)), dies_at=AT, frozen_at=AT, twice=st.booleans())
    def ask(self, kind: str, dies_at: int | None, frozen_at: int | None, twice: bool) -> None:
        steps, touches = KINDS[kind]
        plan = self.bench.plan(steps, kind, touches=touches, cooldown_s=100.0, view_at_s=float(next(self.names)))
        for _ in range(2 if twice else 1):
            self.bench.executor().open(plan)
        self._drive(plan.id, dies_at, frozen_at)

    @precondition(lambda self: self._open())
    @rule(data=st.data(), dies_at=AT, frozen_at=AT)
    def resume(self, data: st.DataObject, dies_at: int | None, frozen_at: int | None) -> None:
        self._drive(data.draw(st.sampled_from(self._open())), dies_at, frozen_at)

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.bench.executor("bob").abort(data.draw(st.sampled_from(self._open())))

    @rule()
    def freeze(self) -> None:
        self.switch.on("eve", "")

    @rule()
    def thaw(self) -> None:
        self.switch.off("eve")
        self.switch.off("eve", "c")

    @rule(seconds=st.sampled_from([1.0, 60.0, 700.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-5000.0, -100.0]))
    def clock_is_set_back(self, seconds: float) -> None:
        self.bench.clock.step_wall(seconds)

    @rule(question=st.sampled_from(["admit", "guard", "verify", "success"]), answer=ANSWERS)
    def signals_change(self, question: str, answer: Outcome) -> None:
        self.bench.judge.answers[question] = (answer, "drawn")

    @rule(action=st.sampled_from(["pair.canary", "router.add", "worker.uncordon", "pool.scale-in"]))
    def action_breaks(self, action: str) -> None:
        self.bench.backend.fails ^= {action}

    @rule(blind=st.booleans())
    def state_is_unreadable(self, blind: bool) -> None:
        self.bench.backend.blind = {"pool/prefill/replicas"} if blind else set()

    @rule()
    def world_is_put_back_by_hand(self) -> None:
        self.put_back = True
        for subject, value in (("pool/prefill/replicas", 1), ("worker/prefill-1/routed", False),
                               ("worker/decode-0/cordoned", False), ("pool/decode/replicas", 2)):  # fmt: skip
            self.bench.backend.move(subject, value)

    @invariant()
    def one_topology_run_at_a_time(self) -> None:
        runs = [r for r in self.bench.journal.runs() if r.state in ACTIVE and r.plan["topology"]]
        assert len(runs) <= 1
        held = [run for _, scope, run in self.bench.journal.locks() if scope == "topology"]
        assert len(held) == len(set(held)) <= 1

    @invariant()
    def an_effect_happens_once_and_is_taken_back_once(self) -> None:
        did = [(run, action, subject) for run, action, subject, _ in self.bench.backend.effects]
        # Between an intent and its resumption a person may have put it back; then it is done again, rightly.
        assert self.put_back or len(did) == len(set(did))

    @invariant()
    def nobody_is_left_without_a_worker(self) -> None:
        assert all(self.bench.backend.world["values"][f"pool/{role}/replicas"] >= 1 for role in ("prefill", "decode"))

    @invariant()
    def cool_downs_and_budgets_hold(self) -> None:
        rows = self.bench.journal.db.execute(
            "SELECT runbook, started_at_s, ended_at_s, cooldown_s FROM budgets ORDER BY rowid"
        ).fetchall()
        for at, row in enumerate(rows):
            recent = [r for r in rows[: at + 1] if 0 <= row[1] - r[1] < HOUR_S]
            assert len(recent) <= CLUSTER_BUDGET
            before = [r for r in rows[:at] if r[0] == row[0] and r[2] is not None and r[2] <= row[1]]
            assert all(row[1] - r[2] >= r[3] for r in before)

    @invariant()
    def ended_runs_hold_no_lock_and_rolled_back_once_at_most(self) -> None:
        ended = {r.id for r in self.bench.journal.runs() if r.ended}
        assert not ended & {run for _, _, run in self.bench.journal.locks()}
        assert all(r.rollbacks <= 1 for r in self.bench.journal.runs())

    @invariant()
    def the_journal_plays_back_to_the_same_tables(self) -> None:
        assert audit.verify(self.bench.journal).problems == ()


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
