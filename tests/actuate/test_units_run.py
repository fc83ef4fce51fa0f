"""A run over units and a router that is killed at every boundary and resumed: every effect happens once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pdops.actuate.local import LocalBackend
from pdops.actuate.sglang_router import SglangRouter
from pdops.clock import VirtualClock
from pdops.runbook.execute import Executor
from pdops.runbook.journal import Journal
from pdops.runbook.states import RunState
from tests.actuate import api_doubles as apis
from tests.actuate.test_contract import _Rig
from tests.runbook.engine_kit import SetJudge, plan, step

POINTS = ("after-intent", "after-effect", "after-applied", "verified")


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Rig]:
    with ExitStack() as stack:
        yield _Rig(tmp_path, stack, monkeypatch)


class KilledError(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("point", POINTS)
def test_a_restart_that_is_killed_everywhere_happens_once(rig: _Rig, point: str) -> None:
    deployment, double = rig.units("systemd")
    router = rig.serve(apis.SglangRouterDouble(rig.workers))
    ids = {url: w for w, (_, url) in rig.workers.items()}
    clock = VirtualClock(1_000_000.0)
    backend = LocalBackend(deployment, SglangRouter(router.url, ids, clock, clock.advance), clock, clock.advance)
    here = "worker/decode-1"
    starts = backend.observe().get(f"{here}/starts").value
    assert isinstance(starts, int)
    steps = (
        step("cordon", "worker.cordon", f"{here}/cordoned", False, True, {"worker": "decode-1"}),
        step(
            "restart",
            "worker.restart",
            f"{here}/starts",
            starts,
            starts + 1,
            {"worker": "decode-1", "starts": starts + 1},
        ),
        step("uncordon", "worker.uncordon", f"{here}/cordoned", True, False, {"worker": "decode-1"}),
    )
    made = plan(steps, "restart-worker", backend.observe(), clock.now(), backend=backend.name)
    kills = 0

    def killed(reached: str) -> None:
        nonlocal kills
        if reached == point and kills < len(steps):
            kills += 1
            raise KilledError

    with Journal(rig.folder / "journal.db", clock, synchronous="OFF") as journal:
        x = Executor(journal, backend, SetJudge(), clock=clock, sleep=clock.advance, actor="ada", reached=killed)
        run = x.open(made)
        for _ in range(len(steps) + 1):
            try:
                x.drive(run.id)
            except KilledError:
                continue
        ended = journal.run(run.id)
    assert (ended.state, kills) == (RunState.DONE, len(steps))
    assert [c[-1] for c in double.changes] == ["pd-decode-1.service"] * 2
    assert [m for m, _ in router.changes] == ["DELETE", "POST"]
    assert backend.observe().get(f"{here}/starts").value == starts + 1
