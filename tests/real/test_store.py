"""The KV store beside NIXL on a real pair in namespaces: hits on both engines, and hand-offs that still go by NIXL."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdops.reference import model, pages, store, store_check
from pdops.reference.network import Network
from pdops.reference.running import Running
from pdops.reference.sockets import listeners
from pdops.reference.state import Home
from tests.real.conftest import DECODE as D
from tests.real.conftest import PREFILL as P
from tests.real.conftest import STORE as S

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not Network.available()[0], reason=Network.available()[1]),
]
BLOCK = 32
WHOLE = 600 // BLOCK * BLOCK
"""Tokens of a prompt of 600 that whole blocks hold; only those are kept."""
HITS = "vllm:external_prefix_cache_hits_total"
BLOCK_BYTES = BLOCK * model.KV_BYTES_PER_TOKEN


@pytest.fixture(scope="module")
def running(with_store: Home) -> Running:
    return Running.open(with_store)


def ask(
    running: Running, worker: str, prompt: str, kv: dict[str, Any] | None = None, tokens: int = 8
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": running.spec.served_model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    if kv is not None:
        body["kv_transfer_params"] = kv
    answer: dict[str, Any] = pages.post(f"{running.url(worker)}/v1/completions", body)
    return answer


def text(answer: dict[str, Any]) -> str:
    return str(answer["choices"][0]["text"])


def sample(page: str, family: str, **labels: str) -> float | None:
    """The sum of a family's samples on a raw page, None without any: a name nobody catalogued is read all the same."""
    found = None
    for line in page.splitlines():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        if name == family and all(f'{k}="{v}"' in rest for k, v in labels.items()):
            found = (found or 0.0) + float(line.rpartition(" ")[2])
    return found


def count(running: Running, worker: str, family: str, **labels: str) -> float:
    """A sample that has to be there: a series that is missing is no zero."""
    found = sample(running.metrics(worker), family, **labels)
    assert found is not None, f"{worker} has no {family}{labels}"
    return found


def lent(running: Running, worker: str) -> float:
    """Bytes the store keeps in a worker's memory."""
    assert running.network is not None
    page = running.metrics(S)
    for line in page.splitlines():
        if line.startswith(f'segment_allocated_bytes{{segment="{running.network.kv_address(worker)}:'):
            return float(line.rpartition(" ")[2])
    raise AssertionError(f"the master does not know a segment of {worker}")


def until(what: str, done: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(0.1)


def prompt(name: str, tokens: int = 600) -> str:
    """A prompt of its own from the first block on; the tiny model has one token a byte."""
    line = f"<{name}> once more, "
    return (line * (tokens // len(line) + 1))[:tokens]


def saved(running: Running, worker: str) -> float:
    family = "vllm:mooncake_store_operation_bytes_total"
    # The engine makes this series with its first put.
    return sample(running.metrics(worker), family, operation="save_put", status="ok") or 0.0


def test_the_engines_lend_their_memory_and_an_object_goes_through_it(running: Running) -> None:
    spec = running.spec.store
    assert spec is not None
    assert store_check.health(spec) is None
    assert store_check.joined(spec) == 2 * spec.segment_bytes
    result = store_check.put_get_delete(running)
    print(result)
    assert result.ok, str(result)


def test_a_prompt_prefill_computed_once_is_a_hit_on_decode(running: Running) -> None:
    words = prompt("seen by prefill")
    before, hits = saved(running, P), count(running, D, HITS)
    first = ask(running, P, words)
    until("prefill saves it", lambda: saved(running, P) - before >= WHOLE * model.KV_BYTES_PER_TOKEN)
    second = ask(running, D, words)
    until("the hit is counted", lambda: count(running, D, HITS) > hits)
    hit = count(running, D, HITS) - hits
    print(
        "hit on decode:",
        hit,
        "tokens; loaded",
        count(running, D, "vllm:mooncake_store_operation_bytes_total", operation="load_get"),
    )
    assert hit == WHOLE
    assert text(second) == text(first)


def test_a_prompt_driven_out_of_prefills_own_cache_is_a_hit_there(running: Running) -> None:
    words = prompt("driven out")
    before = saved(running, P)
    first = ask(running, P, words)
    until("prefill saves it", lambda: saved(running, P) - before >= WHOLE * model.KV_BYTES_PER_TOKEN)
    for number in range(3):
        ask(running, P, prompt(f"filler {number}", 1000), tokens=1)
    hits = count(running, P, HITS)
    second = ask(running, P, words)
    until("the hit is counted", lambda: count(running, P, HITS) > hits)
    hit = count(running, P, HITS) - hits
    print("hit on prefill:", hit, "tokens; usage", second["usage"])
    assert hit == WHOLE
    assert text(second) == text(first)


def test_a_hand_over_goes_by_nixl_and_not_by_the_store(running: Running) -> None:
    network = running.network
    assert network is not None
    family = "vllm:prompt_tokens_cached_by_source_total"
    before = {s: count(running, D, family, source=s) for s in ("p2p", "external_unspecified")}
    moved, wire = count(running, D, "vllm:nixl_bytes_transferred_sum"), network.counters(D)
    put, kept = saved(running, P), lent(running, D)
    words = prompt("handed over")
    remote = {"do_remote_decode": True, "do_remote_prefill": False}
    leg = ask(running, P, words, remote, tokens=1)
    handed = ask(running, D, words, leg["kv_transfer_params"])
    until("it is counted", lambda: count(running, D, family, source="p2p") > before["p2p"])
    until("bytes are counted", lambda: count(running, D, "vllm:nixl_bytes_transferred_sum") > moved)
    until("prefill saves it", lambda: saved(running, P) - put >= WHOLE * model.KV_BYTES_PER_TOKEN)
    after = {s: count(running, D, family, source=s) for s in before}
    by_nixl = count(running, D, "vllm:nixl_bytes_transferred_sum") - moved
    received, stored = network.counters(D).rx_bytes - wire.rx_bytes, lent(running, D) - kept
    print("tokens", {s: after[s] - before[s] for s in before}, "NIXL bytes", by_nixl)
    print("received on decode's kv link", received, "of which put into its memory by the store", stored)
    assert after["p2p"] - before["p2p"] == 600
    assert after["external_unspecified"] == before["external_unspecified"]
    assert by_nixl == -(-600 // BLOCK) * BLOCK_BYTES
    # What prefill saves may go to decode's memory over the same link; headers are the rest.
    assert 0 < received - by_nixl - stored < 0.1 * (by_nixl + stored)
    assert text(handed) == text(ask(running, P, words))


def test_nothing_listens_outside_the_namespaces_and_loopback(running: Running) -> None:
    host = Path("/proc/self/ns/net").readlink()
    for worker in (P, D, S):
        process = running.state.processes[worker]
        assert Path(f"/proc/{process.pid}/ns/net").readlink() != host
    found = listeners(pid for pid in running.pids() if Path(f"/proc/{pid}/ns/net").readlink() == host)
    print("listeners in the host's namespace:", found)
    assert all(address.is_loopback for address, _ in found)


def test_sockets_of_block_look_ups_are_told_apart(running: Running) -> None:
    names = {store.beside({"kv_role": "x"}, e)["kv_connector_extra_config"]["connectors"][1]["kv_connector_extra_config"]["lookup_rpc_port"] for e in running.spec.engines}  # fmt: skip
    assert len(names) == 2


# The last one here: what comes after it on this deployment starts everything again.
def test_without_its_master_hand_overs_go_on_and_the_probe_says_so(running: Running) -> None:
    spec = running.spec.store
    assert spec is not None
    running.kill(S)
    why = store_check.health(spec)
    print(why)
    assert why is not None
    assert not store_check.put_get_delete(running).ok
    words = prompt("after the master's end")
    begin = time.monotonic()
    leg = ask(running, P, words, {"do_remote_decode": True, "do_remote_prefill": False}, tokens=1)
    handed = ask(running, D, words, leg["kv_transfer_params"])
    print(f"hand-over without a master: {time.monotonic() - begin:.2f} s")
    assert text(handed) == text(ask(running, P, words))
