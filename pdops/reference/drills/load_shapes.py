"""What clients do: steady, too many, longer prompts, long outputs into a small KV cache."""

from __future__ import annotations

from functools import partial

from pdops.errors import DeploymentError
from pdops.model.report import Layer, Verdict
from pdops.reference import model
from pdops.reference.drills.plan import STEADY, Drill, Expect, Need, Split
from pdops.reference.drills.stage import Stage

PREEMPTED = "vllm:num_preemptions_total"
WAITING = "vllm:num_requests_waiting"
QUEUED = "pdops_router_queue_depth"
SMALL_BLOCKS = 130
"""KV blocks of decode for the burst: four requests of the longest length."""
_SHORT = {"rate": 8, "prompt": 64, "tokens": 16, "concurrency": 64}
LONG = model.MAX_LENGTH - 32
"""Length of the long prompts in tokens, so that they and the answers fit into the longest context of the tiny model."""
_LONG_BLOCKS = 4096
"""KV blocks of each worker: all that the router lets in at once, of that length, twice over."""
SURPLUS = 1.5
"""Prompt tokens that arrive over those that prefill was measured to compute; what is above 1 makes requests wait."""
PROMPT_TOKENS = "vllm:prompt_tokens_total"
_FULL_S = 4.0
_MEASURE_S = 12.0


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


def _long_context(stage: Stage) -> None:
    options = {"max-model-len": str(model.MAX_LENGTH), "num-gpu-blocks-override": str(_LONG_BLOCKS)}
    for worker in (stage.prefill, stage.decode):
        stage.undo("context and KV cache of its own size again", worker, partial(stage.restart, worker))
        stage.restart(worker, overrides=options)
    per_s = _prompt_tokens_per_s(stage)
    stage.measured["prompt_tokens_per_s"] = per_s
    stage.settings["rate"] = SURPLUS * per_s / LONG


def _prompt_tokens_per_s(stage: Stage) -> float:
    """Measure what prefill computes when long prompts always wait, in prompt tokens/s, shared beginnings included.

    Raises:
        DeploymentError: it computed nothing.
    """
    end = stage.load(**{**_SHORT, "prompt": LONG, "rate": 50, "concurrency": 16, "seed": 5})
    undo = stage.undo("end of the measurement", "client", end)
    stage.wait(_FULL_S)
    before, begin_s = stage.baseline(stage.prefill, PROMPT_TOKENS), stage.clock.monotonic()
    stage.wait(_MEASURE_S)
    grown = stage.baseline(stage.prefill, PROMPT_TOKENS) - before
    per_s = grown / (stage.clock.monotonic() - begin_s)
    stage.end(undo)
    if grown <= 0:
        raise DeploymentError(
            "prefill computed no prompt within the measurement",
            where=stage.prefill,
            why=f"{PROMPT_TOKENS} did not grow in {_MEASURE_S:.0f} s",
            hint="`pdops canary` shows whether it answers",
        )
    stage.say(f"           prefill computes {per_s:,.0f} prompt tokens/s of long prompts")
    return per_s


def _long_prompts(stage: Stage) -> None:
    stage.steady()

    def short_again() -> None:
        stage.steady = stage.load(**stage.settings)

    stage.undo("prompts as before", "client", short_again)
    end = stage.load(**{**stage.settings, "prompt": LONG, "seed": 11})
    stage.undo("end of the long prompts", "client", end)
    stage.did(
        f"prompts of {LONG} tokens instead of {_SHORT['prompt']}, still {stage.settings['rate']:.3g} requests/s: {SURPLUS:g} "
        f"times the {stage.measured['prompt_tokens_per_s']:,.0f} prompt tokens/s that prefill was measured to compute",
        "client",
    )
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
        prepare=_long_context,
        act=_long_prompts,
        needs=(Need.ROUTER, Need.CPU),
        steady={**STEADY, **_SHORT},
        settle_s=15,
        linger_s=20,
        note=f"restarts both workers with a context of {model.MAX_LENGTH} tokens and measures prefill before the recording",
    ),
)
