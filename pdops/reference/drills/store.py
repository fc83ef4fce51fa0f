"""The KV store beside the hand-off."""

from __future__ import annotations

from pdops.model.report import Layer, Verdict
from pdops.reference.drills.plan import Drill, Expect, Need, Split
from pdops.reference.drills.stage import Stage


def _stop(stage: Stage) -> None:
    store = stage.names["store"]
    stage.undo("serves again", store, lambda: stage.revive(store))
    stage.deployment.stop(store, grace_s=10.0)
    stage.did("stop", store)


DRILLS = (
    Drill(
        name="kv-store-stopped",
        family="store",
        summary="the KV store's master stops",
        split=Split.JUDGE,
        expect=Expect(Verdict.FAULT, (Layer.KVSTORE,), ("kvstore-down",), (("worker", "{store}"),)),
        act=_stop,
        needs=(Need.STORE, Need.ROUTER),
        settle_s=15,
        linger_s=20,
    ),
)
