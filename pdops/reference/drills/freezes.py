"""Engines that stand still: alive for the system, silent for everybody else."""

from __future__ import annotations

from pdops.model.report import Layer, Verdict
from pdops.reference.drills.plan import Drill, Expect, Need, Split
from pdops.reference.drills.stage import Stage


def _freeze(stage: Stage, worker: str) -> None:
    stage.undo("SIGCONT", worker, lambda: stage.deployment.thaw(worker))
    stage.deployment.freeze(worker)
    stage.did("SIGSTOP", worker)


DRILLS = (
    Drill(
        name="prefill-frozen",
        family="freezes",
        summary="prefill stands still (SIGSTOP)",
        split=Split.DEVELOP,
        expect=Expect(Verdict.FAULT, (Layer.PREFILL,), ("prefill-down",), (("worker", "{prefill}"),)),
        act=lambda stage: _freeze(stage, stage.prefill),
        needs=(Need.ROUTER,),
        settle_s=15,
        linger_s=10,
    ),
    Drill(
        name="decode-frozen",
        family="freezes",
        summary="decode stands still (SIGSTOP); its leases on prefill run out",
        split=Split.JUDGE,
        expect=Expect(Verdict.FAULT, (Layer.DECODE,), ("decode-down",), (("worker", "{decode}"),)),
        act=lambda stage: _freeze(stage, stage.decode),
        needs=(Need.ROUTER,),
        settle_s=15,
        linger_s=35,
    ),
)
