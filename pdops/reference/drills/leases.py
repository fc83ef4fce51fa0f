"""KV that waits on prefill: given up by its client, or read after its lease had run out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pdops.errors import DeploymentError
from pdops.model.report import Layer, Verdict
from pdops.reference.drills import direct
from pdops.reference.drills.plan import Drill, Expect, Need, Split
from pdops.reference.drills.stage import Stage

EXPIRED = "vllm:nixl_num_kv_expired_reqs_total"
LATE = "vllm:nixl_num_notifications_after_expiry_total"
_STALE = 8
_CHARS = 600
_BLOCKS = 1000


def _abandon(stage: Stage) -> None:
    stage.undo("no more abandoned requests", stage.router, lambda: stage.switch_router("none"))
    stage.switch_router("abandon", fraction=0.5)
    stage.did("abandon half of the requests after prefill", stage.router)
    stage.until_moved(stage.prefill, EXPIRED, stage.deployment.spec.lease_s + 60)


class _StalePulls:
    """Prompts whose KV prefill has freed and used again, and the addresses decode pulls them from."""

    def __init__(self) -> None:
        self.waiting: Iterator[tuple[str, dict[str, Any]]] = iter(())
        self.wrong = 0

    def act(self, stage: Stage) -> None:
        spec, self.wrong = stage.deployment.spec, 0
        before = stage.baseline(stage.prefill, EXPIRED)
        asked = direct.prompts(_STALE, _CHARS, seed=41)
        kept = [(prompt, direct.prefilled(stage, prompt)) for prompt in asked]
        stage.did(f"compute {_STALE} prompts for decode, which does not pull them", stage.prefill)
        stage.wait_for(
            f"leases run out on {stage.prefill}",
            lambda: stage.total(stage.prefill, EXPIRED) >= before + _STALE,
            spec.lease_s + 60,
        )
        chars = spec.max_model_len - 64
        blocks = spec.engine(stage.prefill).blocks or _BLOCKS
        for prompt in direct.prompts(math.ceil(1.2 * blocks * spec.block_size / chars), chars, seed=42):
            direct.alone(stage, prompt, tokens=1)
        stage.did("use all its KV blocks for other prompts", stage.prefill)
        self.waiting = iter(kept)
        late = stage.baseline(stage.prefill, LATE)
        self._pull(stage)
        # An idle prefill counts late readers when it next runs something, which may be at once.
        stage.wait_for(f"{LATE} of {stage.prefill}", lambda: stage.total(stage.prefill, LATE) > late, 60)

    def keep(self, stage: Stage) -> None:
        """Pull the others, one every few seconds."""
        while self._pull(stage):
            stage.wait(6)
        if not self.wrong:
            raise DeploymentError(
                "the drill did not take effect",
                why="every stale pull gave the right text: the blocks were not reused",
                hint="play it again; prefill with fewer KV blocks (`pdops up --prefill-blocks`) reuses them sooner",
            )

    def _pull(self, stage: Stage) -> bool:
        prompt, address = next(self.waiting, (None, None))
        if prompt is None or address is None:
            return False
        pair = f"{stage.prefill}>{stage.decode}"
        try:
            got = direct.pulled(stage, prompt, address)
        except OSError as error:
            stage.did(f"pull after the lease: refused ({str(error)[:80]})", pair)
            return True
        right = direct.alone(stage, prompt)
        differs = next((i for i, (a, b) in enumerate(zip(got, right, strict=False)) if a != b), None)
        self.wrong += got != right
        told = "the text prefill itself gives" if got == right else f"wrong text from character {differs or 0} on"
        stage.did(f"pull after the lease: status 200, {told}", pair)
        return True


_stale = _StalePulls()

DRILLS = (
    Drill(
        name="prefill-abandoned",
        family="leases",
        summary="half of the clients leave after prefill; their KV waits there until its lease runs out",
        split=Split.DEVELOP,
        expect=Expect(
            Verdict.FAULT, (Layer.TRANSFER,), ("kv-strand-prefill", "kv-lease-expiry"), (("worker", "{prefill}"),)
        ),
        act=_abandon,
        needs=(Need.ROUTER_DRILLS,),
        settle_s=5,
        # The last leases run out thirty seconds after the switch.
        linger_s=35,
    ),
    Drill(
        name="stale-pull",
        family="leases",
        summary="decode pulls after the lease, the blocks are another prompt's: wrong text with status 200",
        split=Split.JUDGE,
        expect=Expect(
            Verdict.FAULT,
            (Layer.ENGINE, Layer.TRANSFER),
            ("silent-corruption", "kv-lease-expiry"),
            (("pair", "{prefill}>{decode}"), ("worker", "{prefill}")),
        ),
        act=_stale.act,
        keep=_stale.keep,
        needs=(Need.ROUTER,),
        settle_s=5,
        note="asks prefill and decode directly, past the router; each text is compared with prefill's own",
    ),
)
