"""What clients do: steady, too many, longer prompts, long outputs into a small KV cache."""

from __future__ import annotations

from pdops.model.report import Layer, Verdict
from pdops.reference.drills.plan import STEADY, Drill, Expect, Need, Split
from pdops.reference.drills.stage import Stage

PREEMPTED = "vllm:num_preemptions_total"
WAITING = "vllm:num_requests_waiting"
QUEUED = "pdops_router_queue_depth"
SMALL_BLOCKS = 130
"""KV blocks of decode for the burst: four requests of the longest length."""
_SHORT = {"rate": 8, "prompt": 64, "tokens": 16, "concurrency": 64}


def _burst(stage: Stage, what: str, target: str, **settings: float) -> None:
    end = stage.load(seed=11, **settings)
    stage.undo(f"end of {what}", target, end)
    stage.did(what, target)


def _waiting(stage: Stage, least: float) -> bool:
    in_engines = stage.total(stage.prefill, WAITING) + stage.total(stage.decode, WAITING)
    return in_engines + stage.total(stage.router, QUEUED) >= least


def _overload(stage: Stage) -> None:
    _burst(stage, "arrivals above capacity", "client", rate=10, prompt=300, tokens=64, concurrency=96)
    stage.wait_for("requests wait", lambda: _waiting(stage, 8), 60)


def _small_cache(stage: Stage) -> None:
    decode = stage.decode
    stage.undo("KV cache of its own size again", decode, lambda: stage.restart(decode))
    stage.restart(decode, overrides={"num-gpu-blocks-override": str(SMALL_BLOCKS)})


def _long_outputs(stage: Stage) -> None:
    _burst(stage, "burst of long outputs", stage.decode, rate=6, prompt=500, tokens=380, concurrency=14)
    stage.until_moved(stage.decode, PREEMPTED, 60)


def _long_prompts(stage: Stage) -> None:
    chars = stage.deployment.spec.max_model_len - 32
    stage.steady()

    def short_again() -> None:
        stage.steady = stage.load(**_SHORT)

    stage.undo("prompts as before", "client", short_again)
    _burst(stage, f"prompts of {chars} tokens instead of {_SHORT['prompt']}", "client", **{**_SHORT, "prompt": chars})
    stage.wait_for("requests wait", lambda: _waiting(stage, 3), 60)


DRILLS = (
    Drill(
        name="healthy-load",
        family="load_shapes",
        summary="steady load, nothing broken",
        split=Split.DEVELOP,
        expect=Expect(Verdict.HEALTHY),
        needs=(Need.ROUTER,),
        settle_s=0,
        hold_s=110,
    ),
    Drill(
        name="overload",
        family="load_shapes",
        summary="more requests arrive than the deployment can serve",
        split=Split.DEVELOP,
        expect=Expect(
            Verdict.OVERLOAD,
            (Layer.CLIENT, Layer.CAPACITY, Layer.PREFILL, Layer.DECODE),
            ("traffic-burst", "prefill-undersized", "decode-undersized"),
            (("global", "cluster"),),
        ),
        act=_overload,
        needs=(Need.ROUTER,),
        settle_s=15,
        linger_s=20,
    ),
    Drill(
        name="decode-kv-exhaustion",
        family="load_shapes",
        summary="a burst of long outputs into a small KV cache: decode preempts",
        split=Split.DEVELOP,
        expect=Expect(
            Verdict.OVERLOAD,
            (Layer.DECODE, Layer.CLIENT),
            ("decode-kv-exhaustion", "output-inflation"),
            (("worker", "{decode}"),),
        ),
        prepare=_small_cache,
        act=_long_outputs,
        needs=(Need.ROUTER, Need.CPU),
        settle_s=5,
        note=f"restarts decode with {SMALL_BLOCKS} KV blocks before the recording and with its own after it",
    ),
    Drill(
        name="long-prompt-shift",
        family="load_shapes",
        summary="as many requests, with prompts many times as long",
        split=Split.JUDGE,
        expect=Expect(
            Verdict.OVERLOAD,
            (Layer.CLIENT, Layer.PREFILL),
            ("workload-shift", "prefill-undersized"),
            (("pool", "prefill"), ("worker", "{prefill}")),
        ),
        act=_long_prompts,
        needs=(Need.ROUTER,),
        steady={**STEADY, **_SHORT},
        settle_s=15,
        linger_s=20,
    ),
)
