"""The real deployment: KV goes from prefill to decode, through the router too, and nothing listens beyond this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.reference import model, pages
from pdops.reference.running import Running
from pdops.reference.sockets import listeners
from tests.real.conftest import DECODE, PREFILL, ROOT, ROUTER, pdops

# The first test builds the engine's environment where there is none, and starts two engines.
pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

CLOCK = WallClock()
BLOCK_SIZE = 32
PROMPT = 300
ASK_FOR_KV = {"do_remote_decode": True, "do_remote_prefill": False}
AT_REST = 0.6
"""Share of a core; a spinning progress thread takes all of one."""
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


def _pulled(running: Running) -> Pulled:
    page = running.metrics(DECODE)

    def tokens(source: str) -> float:
        return pages.total(page, "vllm:prompt_tokens_by_source_total", source=source) or 0.0

    return Pulled(
        bytes=pages.total(page, "vllm:nixl_bytes_transferred_sum") or 0.0,
        pulls=pages.total(page, "vllm:nixl_xfer_time_seconds_count") or 0.0,
        external=tokens("external_kv_transfer"),
        local=tokens("local_compute"),
    )


def _grown(running: Running, before: Pulled, enough: Callable[[Pulled], bool]) -> Pulled:
    """Return what was added, as soon as it is enough or time is up."""
    end = CLOCK.monotonic() + PUBLISHED_S
    while True:
        added = _pulled(running) - before
        if enough(added) or CLOCK.monotonic() > end:
            return added
        time.sleep(0.2)


def test_a_hand_over_moves_exactly_the_blocks_of_the_prompt(running: Running) -> None:
    prompt, before = _prompt("hand-over"), _pulled(running)
    address = _complete(running.url(PREFILL), prompt, 1, kv_transfer_params=ASK_FOR_KV)["kv_transfer_params"]
    assert address["remote_engine_id"] == PREFILL
    answer = _complete(running.url(DECODE), prompt, 8, kv_transfer_params=address)
    assert answer["usage"]["completion_tokens"] == 8
    blocks = -(-PROMPT // BLOCK_SIZE)
    added = _grown(running, before, lambda p: p.pulls >= 1 and p.external >= PROMPT)
    assert added == Pulled(bytes=blocks * BLOCK_SIZE * model.KV_BYTES_PER_TOKEN, pulls=1, external=PROMPT, local=0)


def test_decode_goes_on_from_the_kv_it_pulled(running: Running) -> None:
    own, other = _prompt("right"), _prompt("wrong")
    native = _complete(running.url(PREFILL), own, 16, return_token_ids=True)
    wrong = _complete(running.url(PREFILL), other, 1, kv_transfer_params=ASK_FOR_KV)["kv_transfer_params"]
    misled = _complete(running.url(DECODE), own, 16, kv_transfer_params=wrong, return_token_ids=True)
    assert misled["choices"][0]["token_ids"] != native["choices"][0]["token_ids"]


def test_without_an_address_decode_computes_the_prompt_itself(running: Running) -> None:
    before = _pulled(running)
    _complete(running.url(DECODE), _prompt("local"), 8)
    added = _grown(running, before, lambda p: p.local >= PROMPT)
    assert added == Pulled(bytes=0, pulls=0, external=0, local=PROMPT)


def test_every_request_of_a_load_is_handed_over_by_the_router(running: Running) -> None:
    before, seen = _pulled(running), _handed_over(running.router_url)
    command = [
        sys.executable,
        "-m",
        "pdops.reference.load",
        running.router_url,
        f"--model={model.NAME}",
        "--rate=2",
        "--duration=5",
        "--tokens=8",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    summary = json.loads(done.stdout)
    assert summary["sent"] > 0
    assert summary["outcomes"] == {"ok": summary["sent"]}
    assert summary["tokens"] == 8 * summary["sent"]
    added = _grown(running, before, lambda p: p.pulls >= summary["sent"])
    assert added.pulls == summary["sent"]
    assert _handed_over(running.router_url) - seen == summary["sent"]
    assert pages.total(running.metrics(ROUTER), "pdops_router_worker_up") == 2


def test_nothing_listens_beyond_this_machine(running: Running) -> None:
    for worker in (PREFILL, DECODE, ROUTER):
        ref = running.state.ref(worker)
        assert ref is not None
        found = listeners(processes.members([ref]))
        assert found, f"{worker} listens nowhere"
        assert all(address.is_loopback for address, _ in found), f"{worker}: {found}"


def test_an_idle_deployment_leaves_the_machine_alone(running: Running) -> None:
    """NIXL's own pace would take a whole core an engine for ever; with what the cpu profile sets they come to rest.

    Prefill goes on stepping while it holds KV that nobody fetched, so rest may come only when a lease has run out.
    """
    end = CLOCK.monotonic() + running.spec.lease_s + 30
    for worker in (PREFILL, DECODE):
        while (share := _cpu_share(running, worker, seconds=4)) >= AT_REST:
            assert CLOCK.monotonic() < end, f"{worker} still takes {share:.0%} of a core while idle"
        print(f"{worker} idle: {share:.1%} of a core")


def _cpu_share(running: Running, worker: str, seconds: float) -> float:
    before, begin = _cpu_s(running, worker), CLOCK.monotonic()
    time.sleep(seconds)
    return (_cpu_s(running, worker) - before) / (CLOCK.monotonic() - begin)


def _cpu_s(running: Running, worker: str) -> float:
    ref = running.state.ref(worker)
    assert ref is not None
    total = 0
    for pid in processes.members([ref]):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def test_status_canary_and_preflight_by_the_command_line(running: Running) -> None:
    place = str(running.state_dir)
    assert pdops("status", "--state-dir", place).returncode == 0
    done = pdops("canary", "--state-dir", place, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "pdops/canary/v1"
    done = pdops("preflight", "--state-dir", place, "--json")
    report = json.loads(done.stdout)
    assert report["counts"]["fail"] == 0, done.stdout
    assert (done.returncode, report["ok"]) == (0, True)
    assert len(report["checks"]) >= 35


def test_up_again_changes_nothing(running: Running) -> None:
    before = running.pids()
    done = pdops("up", "--state-dir", str(running.state_dir))
    assert (done.returncode, "it is up already" in done.stderr) == (0, True)
    assert running.pids() == before
