"""Whatever alerts, people, kills, clocks and faults come in whatever order, the rules hold."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pdops.actuate.backend import Value
from pdops.errors import JournalError, RefusedError, UnreachableError
from pdops.model.report import Verdict
from pdops.model.view import Presence
from pdops.respond.alerts import Listed, read_delivery
from pdops.respond.episodes import Episodes
from pdops.respond.tokens import Person, Role
from pdops.runbook import audit
from pdops.runbook.killswitch import KillSwitch
from pdops.runbook.plan import Asked
from pdops.runbook.states import RunState
from tests.respond.kit import CLUSTER, Desk, alert, body, hypothesis

ACTIVE = {RunState.ACTING, RunState.VERIFYING, RunState.OBSERVING, RunState.ROLLING_BACK}
NAMES = st.sampled_from(["PDPrefillQueueing", "PDTtftHigh", "PDDecodeWorkerDown", "SomethingElse", "Watchdog"])
AT = st.none() | st.none() | st.integers(0, 20)
PEOPLE = st.sampled_from([Person("alertmanager", Role.APPROVER), Person("bob", Role.APPROVER)])


class _Killed(BaseException):
    """The process is gone; nothing of ours may catch it."""


class Alerts(RuleBasedStateMachine):
    """One cluster, one journal, many processes one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.desk = Desk(Path(self.folder.name), watchdog_s=600.0)
        self.desk.world.on_effect = self._effect
        self.dies_at: int | None = None
        self.frozen_at: int | None = None
        self.points = itertools.count()
        self.desk.reached = self._reached

    def teardown(self) -> None:
        self.desk.journal.close()
        self.folder.cleanup()

    def _effect(self, subject: str) -> None:
        assert KillSwitch(self.desk.journal).why(CLUSTER) is None, "an effect while frozen"
        if subject.endswith("/starts"):
            others = [w for w in ("decode-0", "decode-1") if w not in subject]
            serving = [self.desk.world.world["values"][f"worker/{w}/serving"] for w in others]
            me = self.desk.world.world["values"][f"{subject.removesuffix('/starts')}/serving"]
            assert me is False or serving == [True], "a worker was taken out below the minimum"
        assert self.desk.world.world["values"]["pool/prefill/rollout"] is not True or "prefill" not in subject
        assert self.desk.scene.fails is None, "an effect without data"

    def _reached(self, _point: str) -> None:
        now = next(self.points)
        if now == self.frozen_at:
            KillSwitch(self.desk.journal).on("eve", "", CLUSTER)
        if now == self.dies_at:
            raise _Killed

    def _going(self, dies_at: int | None, frozen_at: int | None = None) -> None:
        self.points, self.dies_at, self.frozen_at = itertools.count(), dies_at, frozen_at
        try:
            self.desk.step()
        except _Killed:
            self.desk.again()
        self.dies_at = self.frozen_at = None

    @rule(
        name=NAMES,
        status=st.sampled_from(["firing", "firing", "resolved"]),
        copies=st.integers(1, 3),
        dies_at=AT,
        frozen_at=AT,
    )
    def an_alert_comes(self, name: str, status: str, copies: int, dies_at: int | None, frozen_at: int | None) -> None:
        # Episodes begin at whole hours, so that some news is about one that is known.
        starts_s = self.desk.clock.now() // 3600 * 3600
        for _ in range(copies):
            self.desk.deliver(alert(name, status, starts_s=starts_s))
        self._going(dies_at, frozen_at)

    @rule(
        name=st.sampled_from(["PDPrefillQueueing", "PDTtftHigh", "PDDecodeWorkerDown"]),
        person=PEOPLE, dies_at=AT, frozen_at=AT, fault=st.booleans(),
    )  # fmt: skip
    def everything_fits_and_an_alert_comes(
        self, name: str, person: Person, dies_at: int | None, frozen_at: int | None, fault: bool
    ) -> None:
        """Without this most of what is drawn forbids any run, and nothing would be tried."""
        self.it_is_frozen_or_thawed(on=False)
        self.data_grow_old_or_end(Presence.UP, blind=False)
        self.desk.world.fails = set()
        self.a_person_decides(Person("bob", Role.APPROVER), "abort")
        self._going(None)
        self.the_diagnosis_changes("decode" if name == "PDDecodeWorkerDown" else "prefill")
        self.desk.world.move("pool/prefill/rollout", False)
        self.desk.world.move("pool/prefill/owner", "")
        self.desk.world.move("pool/prefill/free", 2)
        self.desk.world.move("worker/decode-0/serving", True)
        self.desk.clock.advance(3600.0)
        self.desk.watchdog.hear()
        self.desk.world.fails ^= {"pool.scale-out"} if fault else set()
        self.an_alert_comes(name, "firing", 2, None if name == "PDDecodeWorkerDown" else dies_at, frozen_at)
        if name == "PDDecodeWorkerDown":
            self.a_person_decides(person, "approve")
            self._going(dies_at, frozen_at)

    @rule(dies_at=AT)
    def time_goes_on(self, dies_at: int | None) -> None:
        self.desk.clock.advance(20.0)
        self._going(dies_at)

    @rule(seconds=st.sampled_from([120.0, 700.0, 4000.0]))
    def nothing_happens_for_long(self, seconds: float) -> None:
        self.desk.clock.advance(seconds)

    @rule(seconds=st.sampled_from([-5000.0, -100.0]))
    def the_clock_is_set_back(self, seconds: float) -> None:
        self.desk.clock.step_wall(seconds)

    @rule(there=st.booleans(), silenced=st.booleans())
    def alertmanager_is_asked(self, there: bool, silenced: bool) -> None:
        starts_s = self.desk.clock.now() // 3600 * 3600
        alerts = read_delivery(body(alert(starts_s=starts_s))).alerts if there else ()
        suppressed = frozenset(a.episode for a in alerts if silenced)
        self.desk.intake.reconcile(Listed(alerts=alerts, suppressed=suppressed, watchdog_at_s=self.desk.clock.now()))

    @rule(person=PEOPLE, what=st.sampled_from(["approve", "abort", "resume"]))
    def a_person_decides(self, person: Person, what: str) -> None:
        for run in self.desk.journal.runs(open_only=True):
            with contextlib.suppress(RefusedError, JournalError):
                if what == "resume":
                    self.desk.runner.resume(self.desk.intake.resumable(run.id, person).id)
                elif what == "approve":
                    self.desk.intake.approve(run.id, person)
                else:
                    self.desk.runner.resume(self.desk.intake.abort(run.id, person).id)

    @rule(on=st.booleans())
    def it_is_frozen_or_thawed(self, on: bool) -> None:
        switch = KillSwitch(self.desk.journal)
        if on:
            switch.on("eve", "", CLUSTER)
        else:
            switch.off("eve", CLUSTER)

    @rule(what=st.sampled_from(["prefill", "decode", "healthy", "unknown", "slow link"]))
    def the_diagnosis_changes(self, what: str) -> None:
        scene = self.desk.scene
        if what == "prefill":
            scene.verdict, scene.found = Verdict.OVERLOAD, (hypothesis(),)
        elif what == "decode":
            scene.names("decode-down", "decode-1")
        elif what == "slow link":
            scene.verdict, scene.found = Verdict.FAULT, (hypothesis("transport-slow"),)
        else:
            scene.verdict, scene.found = Verdict(what), ()

    @rule(presence=st.sampled_from([Presence.UP, Presence.UP, Presence.STALE]), blind=st.booleans())
    def data_grow_old_or_end(self, presence: Presence, blind: bool) -> None:
        self.desk.scene.presence |= {"decode-0": presence, "decode-1": presence}
        self.desk.scene.fails = UnreachableError("no target answered", hint="-") if blind else None

    @rule(
        change=st.sampled_from([
            ("pool/prefill/rollout", True), ("pool/prefill/rollout", False), ("pool/prefill/owner", "hpa"),
            ("pool/prefill/owner", ""), ("worker/decode-0/serving", False), ("worker/decode-0/serving", True),
            ("pool/prefill/free", 2), ("pool/prefill/free", 0),
        ])
    )  # fmt: skip
    def the_world_changes(self, change: tuple[str, Value]) -> None:
        self.desk.world.move(*change)

    @rule(action=st.sampled_from(["pool.scale-out", "pool.scale-in", "worker.restart"]))
    def an_action_breaks_or_is_mended(self, action: str) -> None:
        self.desk.world.fails ^= {action}

    @invariant()
    def one_topology_run_at_a_time(self) -> None:
        active = [r for r in self.desk.runs() if r.state in ACTIVE and r.plan["topology"]]
        assert len(active) <= 1
        held = [run for _, scope, run in self.desk.journal.locks() if scope == "topology"]
        assert len(held) == len(set(held)) <= 1

    @invariant()
    def one_episode_has_one_run_and_that_was_asked_for_by_an_alert(self) -> None:
        opened: dict[str, set[str]] = {}
        runs = {r.id for r in self.desk.runs()}
        for event in self.desk.journal.events(""):
            if event.body.get("made") in ("waits", "started") and event.body["run"] in runs:
                opened.setdefault(event.body["episode"], set()).add(event.body["run"])
        assert all(len(found) == 1 for found in opened.values())
        assert all(r.plan["asked"] == Asked.ALERT for r in self.desk.runs())

    @invariant()
    def nothing_rough_was_approved_by_itself_or_by_who_asked(self) -> None:
        for run in self.desk.runs():
            if run.risk != "safe" and run.approver is not None:
                assert run.approver not in (run.requester, "respond")

    @invariant()
    def pools_keep_their_least(self) -> None:
        values = self.desk.world.world["values"]
        assert values["pool/prefill/replicas"] >= 2
        assert values["pool/decode/replicas"] >= 2

    @invariant()
    def the_journal_plays_back_to_the_same(self) -> None:
        assert audit.verify(self.desk.journal).problems == ()
        fresh = Episodes(self.desk.journal)
        fresh.follow()
        self.desk.planner.episodes.follow()
        assert fresh.all() == self.desk.planner.episodes.all()

    @precondition(lambda self: self.desk.journal.frozen(CLUSTER) is not None)
    @rule()
    def nothing_is_done_while_frozen(self) -> None:
        before = len(self.desk.world.effects)
        self.desk.clock.advance(20.0)
        self.desk.step()
        assert len(self.desk.world.effects) == before


TestAlerts = Alerts.TestCase
TestAlerts.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
