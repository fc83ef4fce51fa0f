"""The real pair: KV goes from prefill to decode, through the proxy too, and nothing listens beyond this machine."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real.conftest import ROOT
from tests.real.rig import model, pages
from tests.real.rig.pair import BLOCK_SIZE, DECODE, PREFILL, Pair
from tests.real.rig.procs import CLOCK, Process
from tests.real.rig.sockets import listeners

# The first test builds the engine's environment where there is none, and starts two engines.
pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

PROMPT = 300
ASK_FOR_KV = {"do_remote_decode": True, "do_remote_prefill": False}
PUBLISHED_S = 60.0
"""Engines publish counters at a step, so the last ones of a request may come after its answer."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """What decode says it got: bytes and pulls of KV, prompt tokens from prefill and computed here."""

    bytes: float
    pulls: float
    external: float
    local: float

    def __sub__(self, before: Pulled) -> Pulled:
        return Pulled(
            self.bytes - before.bytes,
            self.pulls - before.pulls,
            self.external - before.external,
            self.local - before.local,
        )


def _handed_over(proxy: str) -> float:
    page = pages.get(f"{proxy}/metrics")
    return pages.total(page, "pdops_router_handoff_seconds_count", src=PREFILL, dst=DECODE) or 0.0


def _prompt(seed: str) -> str:
    return (f"{seed} of a prompt nobody sent before " * 20)[:PROMPT]


def _complete(url: str, prompt: str, tokens: int, **more: object) -> Any:
    body = {"model": model.NAME, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return pages.post(f"{url}/v1/completions", {**body, **more})


def _pulled(pair: Pair) -> Pulled:
    page = pair.decode.metrics()

    def tokens(source: str) -> float:
        return pages.total(page, "vllm:prompt_tokens_by_source_total", source=source) or 0.0

    return Pulled(
        bytes=pages.total(page, "vllm:nixl_bytes_transferred_sum") or 0.0,
        pulls=pages.total(page, "vllm:nixl_xfer_time_seconds_count") or 0.0,
        external=tokens("external_kv_transfer"),
        local=tokens("local_compute"),
    )


def _grown(pair: Pair, before: Pulled, enough: Callable[[Pulled], bool]) -> Pulled:
    """Return what was added, as soon as it is enough or time is up."""
    end = CLOCK.monotonic() + PUBLISHED_S
    while True:
        added = _pulled(pair) - before
        if enough(added) or CLOCK.monotonic() > end:
            return added
        time.sleep(0.2)


def test_a_hand_over_moves_exactly_the_blocks_of_the_prompt(pair: Pair) -> None:
    prompt, before = _prompt("hand-over"), _pulled(pair)
    address = _complete(pair.prefill.url, prompt, 1, kv_transfer_params=ASK_FOR_KV)["kv_transfer_params"]
    assert address["remote_engine_id"] == PREFILL
    answer = _complete(pair.decode.url, prompt, 8, kv_transfer_params=address)
    assert answer["usage"]["completion_tokens"] == 8
    blocks = -(-PROMPT // BLOCK_SIZE)
    added = _grown(pair, before, lambda p: p.pulls >= 1 and p.external >= PROMPT)
    assert added == Pulled(bytes=blocks * BLOCK_SIZE * model.KV_BYTES_PER_TOKEN, pulls=1, external=PROMPT, local=0)


def test_decode_goes_on_from_the_kv_it_pulled(pair: Pair) -> None:
    own, other = _prompt("right"), _prompt("wrong")
    native = _complete(pair.prefill.url, own, 16, return_token_ids=True)
    wrong = _complete(pair.prefill.url, other, 1, kv_transfer_params=ASK_FOR_KV)["kv_transfer_params"]
    misled = _complete(pair.decode.url, own, 16, kv_transfer_params=wrong, return_token_ids=True)
    assert misled["choices"][0]["token_ids"] != native["choices"][0]["token_ids"]


def test_without_an_address_decode_computes_the_prompt_itself(pair: Pair) -> None:
    before = _pulled(pair)
    _complete(pair.decode.url, _prompt("local"), 8)
    added = _grown(pair, before, lambda p: p.local >= PROMPT)
    assert added == Pulled(bytes=0, pulls=0, external=0, local=PROMPT)


def test_every_request_of_a_load_is_handed_over_by_the_proxy(
    pair: Pair, proxy: tuple[Process, str], tmp_path: Path
) -> None:
    before, seen = _pulled(pair), _handed_over(proxy[1])
    command = [sys.executable, "-m", "tests.real.rig.load", proxy[1], "--rate=2", "--duration=5", "--tokens=8"]
    load = Process("load", command, log=tmp_path / "load.log", cwd=ROOT, capture=True)
    summary = json.loads(load.finish(300))
    assert summary["sent"] > 0
    assert summary["outcomes"] == {"ok": summary["sent"]}
    assert summary["tokens"] == 8 * summary["sent"]
    added = _grown(pair, before, lambda p: p.pulls >= summary["sent"])
    assert added.pulls == summary["sent"]
    assert _handed_over(proxy[1]) - seen == summary["sent"]
    assert pages.total(pages.get(f"{proxy[1]}/metrics"), "pdops_router_worker_up") == 2


def test_nothing_listens_beyond_this_machine(pair: Pair, proxy: tuple[Process, str]) -> None:
    processes = [engine.process for engine in pair.engines] + [proxy[0]]
    for process in processes:
        assert process is not None
        found = listeners(process.members())
        assert found, f"{process.name} listens nowhere"
        assert all(address.is_loopback for address, _ in found), f"{process.name}: {found}"
