"""Runbooks on a real pair: it comes up from nothing, a worker that fails its canary is taken back, and kills change nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdops.actuate import processes
from pdops.actuate.backend import Effect, Fence, Params
from pdops.actuate.local import LocalBackend
from pdops.actuate.router_admin import PdopsRouter
from pdops.clock import WallClock
from pdops.model.frame import Probe
from pdops.reference.operate import Operated
from pdops.reference.running import Running
from pdops.runbook import audit
from pdops.runbook.execute import Executor
from pdops.runbook.gates import Outcome
from pdops.runbook.journal import Journal, Run
from pdops.runbook.plan import Plan
from pdops.runbook.states import RunState
from tests.real.conftest import pdops
from tests.runbook.engine_kit import SetJudge, plan, step

pytestmark = [pytest.mark.real, pytest.mark.kills, pytest.mark.timeout(2400)]
READY_S = 600.0
WORKER = "prefill-1"
STEPS = (
    step("start", "pool.scale-out", "pool/prefill/replicas", 1, 2, {"role": "prefill", "worker": WORKER, "replicas": 2},
         timeout_s=READY_S),
    step("canary", "pair.canary", None, None, None, {"worker": WORKER}, timeout_s=1.0),
    step("route", "router.add", f"worker/{WORKER}/routed", False, True, {"worker": WORKER}),
)  # fmt: skip


class CanaryJudge(SetJudge):
    """Waits for the new worker to serve, and judges its canary; other answers are set."""

    def __init__(self) -> None:
        super().__init__()
        self.probes: tuple[Probe, ...] = ()

    def hear(self, probes: tuple[Probe, ...]) -> None:
        self.probes += probes

    def verify(self, plan, step, state):
        if step.id == "start":
            seen = state.get(f"worker/{WORKER}/serving")
            return (Outcome.PASS if seen.value is True else Outcome.FAIL), seen.why
        if step.id == "canary":
            wrong = [p for p in self.probes if p.ok is not True]
            return (Outcome.FAIL if wrong or not self.probes else Outcome.PASS), str(wrong)
        return super().verify(plan, step, state)


class FrozenPeer(LocalBackend):
    """Freezes the new worker before its canary, so that it fails."""

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:
        if action == "pair.canary":
            Running.open(self.place).freeze(WORKER)
        return super().apply(action, params, fence)


@pytest.fixture(scope="module")
def place(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A pair of its own, from nothing, in the strict order."""
    folder = tmp_path_factory.mktemp("runbooks")
    done = pdops("up", "--state-dir", str(folder), timeout_s=1500)
    assert done.returncode == 0, done.stderr
    try:
        yield Running.open(folder)
    finally:
        pdops("down", "--state-dir", str(folder), "--force")


def _backend(place: Running, kind: type[LocalBackend] = LocalBackend) -> LocalBackend:
    made = kind(Operated(place.home), PdopsRouter(place.router_url, place.admin_token_file), WallClock(), time.sleep)
    made.place = place.home
    return made


def _drive(
    place: Running, folder: Path, wanted: Plan, kind=LocalBackend, reached: Callable[[str], None] = lambda _: None
) -> Run:
    clock = WallClock()
    with Journal(folder / "journal.db", clock) as journal:
        x = Executor(
            journal, _backend(place, kind), CanaryJudge(), clock=clock, sleep=time.sleep, actor="ada", reached=reached
        )
        run = x.drive(x.open(wanted).id)
        assert audit.verify(journal).problems == ()
        return run


def _engines(place: Running) -> int:
    """Return how many engines of ours run, written down or not."""
    found = 0
    for pid in processes.with_mark(place.home.mark()):
        ref = processes.leader(pid, place.home.mark())
        found += ref is not None and b"vllm.entrypoints" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return found


def test_a_pair_comes_up_from_nothing_in_cold_start_order(place: Running) -> None:
    assert Running.open(place.home).state.phase == "up"
    since = {s.id: s.since_s for s in Running.open(place.home).state.stages}
    assert since["prefill"] <= since["decode"] <= since["pair-canary"] <= since["router"] <= since["canary"]
    seen = _backend(place).observe()
    assert all(seen.get(f"worker/{w}/serving").value is True for w in ("prefill-0", "decode-0"))


def test_a_scale_out_whose_worker_fails_its_canary_is_taken_back(place: Running, tmp_path: Path) -> None:
    wanted = plan(STEPS, state=_backend(place).observe(), now_s=WallClock().now(), observe_s=0.0)
    run = _drive(place, tmp_path, wanted, FrozenPeer)
    assert run.state is RunState.ROLLED_BACK, run.why
    assert WORKER not in Running.open(place.home).spec.ids()
    assert WORKER not in _backend(place)._router.workers()
    assert _engines(place) == 2
    (place.home.path / "fence").unlink()


@pytest.mark.parametrize("point", ["after-intent", "after-effect"])
def test_a_scale_out_killed_around_its_effect_ends_with_one_engine_more(
    place: Running, tmp_path: Path, point: str
) -> None:
    wanted = plan(STEPS, state=_backend(place).observe(), now_s=WallClock().now(), observe_s=0.0)
    child = os.fork()
    if child == 0:

        def die(at: str) -> None:
            if at == point:
                os.kill(os.getpid(), signal.SIGKILL)

        _drive(place, tmp_path, wanted, reached=die)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    run = _drive(place, tmp_path, wanted)
    assert run.state is RunState.DONE, run.why
    assert _engines(place) == 3
    back = {"role": "prefill", "worker": WORKER, "replicas": 1}
    _backend(place).apply("pool.scale-in", back, Fence("after", run.fence))
    assert _engines(place) == 2
    (place.home.path / "fence").unlink()
