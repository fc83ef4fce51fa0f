"""Engines that die."""

from __future__ import annotations

from pdops.model.report import Layer, Verdict
from pdops.reference.drills.links import limit
from pdops.reference.drills.plan import Drill, Expect, Need, Split
from pdops.reference.drills.stage import READY_S, Stage

IN_PROGRESS = "vllm:num_requests_kv_fetch_by_stage"
FAILED = "vllm:nixl_num_failed_transfers_total"
_PREFILL_DOWN = Expect(Verdict.FAULT, (Layer.PREFILL,), ("prefill-down",), (("worker", "{prefill}"),))


def _before_pull(stage: Stage) -> None:
    stage.undo("serves again", stage.prefill, lambda: stage.revive(stage.prefill))
    held = stage.undo("release held requests", stage.router, lambda: stage.switch_router("none"))
    stage.did("hold requests between prefill and decode", stage.router)
    stage.switch_router("hold")
    stage.wait(4)
    stage.deployment.kill(stage.prefill)
    stage.did("kill -9", stage.prefill)
    stage.end(held)


def _during_pull(stage: Stage) -> None:
    stage.undo("serves again", stage.prefill, lambda: stage.revive(stage.prefill))
    # Slow enough that a pull of the steady load takes five seconds.
    slow = limit(stage, seconds=5.0)
    stage.wait_for("pulls under way", lambda: stage.total(stage.decode, IN_PROGRESS, stage="in_progress") > 0, 60)
    stage.deployment.kill(stage.prefill)
    stage.did("kill -9 while decode pulls", stage.prefill)
    stage.end(slow)


def _decode(stage: Stage) -> None:
    stage.undo("serves again", stage.decode, lambda: stage.revive(stage.decode))
    stage.deployment.kill(stage.decode)
    stage.did("kill -9", stage.decode)


def _same_identity(stage: Stage) -> None:
    d, prefill = stage.deployment, stage.prefill
    stage.undo("serves again under a new engine id", prefill, lambda: stage.restart(prefill))
    d.kill(prefill)
    stage.did("kill -9", prefill)
    d.start(prefill, same_identity=True)
    stage.did("start a new one under the engine id of the dead one", prefill)
    d.wait_ready(prefill, timeout_s=READY_S)
    stage.did("serves again", prefill)
    stage.until_moved(stage.decode, FAILED, 60)


DRILLS = (
    Drill(
        name="prefill-killed-before-pull",
        family="kills",
        summary="prefill dies between its answer and decode's pull",
        split=Split.DEVELOP,
        expect=_PREFILL_DOWN,
        act=_before_pull,
        needs=(Need.ROUTER_DRILLS,),
        hold_s=45,
    ),
    Drill(
        name="prefill-killed-during-pull",
        family="kills",
        summary="prefill dies while decode pulls from it over a slow link",
        split=Split.JUDGE,
        expect=_PREFILL_DOWN,
        act=_during_pull,
        needs=(Need.NAMESPACES, Need.ROUTER),
        hold_s=45,
    ),
    Drill(
        name="decode-killed-replaced",
        family="kills",
        summary="decode dies and a new one takes its place",
        split=Split.DEVELOP,
        expect=Expect(Verdict.FAULT, (Layer.DECODE,), ("decode-down",), (("worker", "{decode}"),)),
        act=_decode,
        needs=(Need.ROUTER,),
        hold_s=45,
        # What prefill held for the dead one expires a lease later.
        linger_s=35,
    ),
    Drill(
        name="peer-restart-stale-state",
        family="kills",
        summary="prefill is replaced under the dead one's engine id, and decode uses what it knew of that",
        split=Split.JUDGE,
        expect=Expect(
            Verdict.FAULT,
            (Layer.TRANSFER,),
            ("peer-restart-stale-state",),
            (("pair", "{prefill}>{decode}"), ("worker", "{decode}")),
        ),
        act=_same_identity,
        needs=(Need.ROUTER,),
        settle_s=15,
        linger_s=35,
    ),
)
