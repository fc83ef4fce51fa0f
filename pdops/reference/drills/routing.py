"""A router that forgets: the KV address of a request, or the workers it had."""

from __future__ import annotations

from pdops.model.report import Layer, Verdict
from pdops.reference import pages
from pdops.reference.drills import direct
from pdops.reference.drills.plan import Drill, Expect, Need, Split
from pdops.reference.drills.stage import READY_S, Stage


def _drop_params(stage: Stage) -> None:
    stage.undo("hand kv_transfer_params over again", stage.router, lambda: stage.switch_router("none"))
    stage.switch_router("drop-params")
    stage.did("drop kv_transfer_params", stage.router)


def _lose_state(stage: Stage) -> None:
    d, router = stage.deployment, stage.router
    decode = d.spec.engine(stage.decode)
    entry = {"id": decode.id, "role": decode.role.value, "url": decode.url}
    workers = f"{d.router_url}/admin/workers"

    def register() -> None:
        if not d.alive(router):
            d.start(router)
            d.wait_ready(router, timeout_s=READY_S)
        if decode.id not in pages.get(workers, 10.0, d.admin_token_file):
            pages.post(workers, entry, 10.0, d.admin_token_file)

    stage.undo(f"register {decode.id} again", router, register)
    d.kill(router)
    stage.did("kill -9", router)
    d.start(router)
    d.wait_ready(router, timeout_s=READY_S)
    # It may have been given the worker on its command line, or have written it down; either way it is to know it no more.
    direct.removed(f"{workers}/{decode.id}", d.admin_token_file)
    stage.did(f"start a new one, which knows nothing of {decode.id}", router)


DRILLS = (
    Drill(
        name="router-drops-kv-params",
        family="routing",
        summary="the router forgets kv_transfer_params, so decode computes the prompts itself",
        split=Split.DEVELOP,
        expect=Expect(Verdict.FAULT, (Layer.ROUTER,), ("silent-local-prefill",), (("worker", "{decode}"),)),
        act=_drop_params,
        needs=(Need.ROUTER_DRILLS,),
        settle_s=15,
        hold_s=60,
        linger_s=35,
    ),
    Drill(
        name="router-restart-lost-state",
        family="routing",
        summary="the router restarts and no longer knows the decode worker, which is up",
        split=Split.DEVELOP,
        expect=Expect(Verdict.FAULT, (Layer.ROUTER,), ("router-stale-state",), (("worker", "{router}"),)),
        act=_lose_state,
        needs=(Need.ROUTER,),
        settle_s=15,
        linger_s=35,
        note="the lost registration is taken out through the router's admin API",
    ),
)
