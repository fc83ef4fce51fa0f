"""host/memory: what has not started fits into what is available, host by host."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, cards, engine, judge, seen

ID = "host/memory"
Side = dict[str, str | None]
GB = 10**9


def cpu(host: str = "a", free: int | None = 64 * GB, **more: str | None) -> Side:
    known: dict[str, str | None] = {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "model_bytes": "0",
        "host__memory_total_bytes": str(64 * GB),
        "host__memory_available_bytes": None if free is None else str(free),
    }
    return engine(host, **(known | more))


NEED = 2 * (2 * GB + 2**30)


@pytest.mark.parametrize(("free", "says"), [(NEED - 1, "fail"), (NEED, "warn"), (NEED + 4 * GB, "ok")])
def test_two_engines_on_one_host(free: int, says: str) -> None:
    found = judge(ID, cpu(free=free), cpu(free=free))
    assert verdict(found) == says
    if says == "fail":
        assert {option for _, option, _ in values(found)} == {"host.memory_available_bytes", "memory it will take"}


@pytest.mark.parametrize(("free", "says"), [(NEED - 1, "fail"), (64 * GB, "unknown")])
def test_a_model_of_unknown_size_may_be_too_large_and_never_fits(free: int, says: str) -> None:
    found = judge(ID, cpu(free=free, model_bytes=None), cpu(free=free))
    assert verdict(found) == says
    assert (P, "model_bytes") in unread(found)


def test_two_hosts_are_judged_apart() -> None:
    assert verdict(judge(ID, cpu("a", NEED - 1, host__memory_total_bytes=None), cpu("b"))) == "ok"


def test_a_container_s_limit_counts() -> None:
    assert verdict(judge(ID, cpu(host__memory_limit_bytes=str(4 * GB)), cpu())) == "fail"


def test_what_runs_has_its_memory() -> None:
    found = judge(ID, cpu(free=5 * GB, num_gpu_blocks="100"), cpu(free=5 * GB, num_gpu_blocks="100"))
    assert verdict(found) == "ok"


@pytest.mark.parametrize(("reachable", "says"), [("true", "ok"), (None, "fail")])
def test_a_store_takes_its_segment_unless_it_runs(reachable: str | None, says: str) -> None:
    store: Side = {"host.name": "a", "segment_total_bytes": str(60 * GB), "reachable": reachable}
    assert verdict(judge(ID, cpu(), cpu(), store=store)) == says


def test_gpu_engines_take_what_they_offload() -> None:
    gpu: Side = {"VLLM_TARGET_DEVICE": None, "host.gpus": cards(70.0), "cpu_offload_gb": "40"}
    assert verdict(judge(ID, cpu() | gpu, cpu("b"))) == "ok"
    assert verdict(judge(ID, cpu() | gpu | {"tensor_parallel_size": "2"}, cpu("b"))) == "fail"


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({"host.memory_available_bytes": None}, "host.memory_available_bytes"),
        ({"host.name": None}, "host.name"),
        ({"VLLM_CPU_KVCACHE_SPACE": None}, "VLLM_CPU_KVCACHE_SPACE"),
        ({"VLLM_CPU_KVCACHE_SPACE": "0"}, "VLLM_CPU_KVCACHE_SPACE"),
        ({"VLLM_TARGET_DEVICE": None}, "host.gpus"),
    ],
)
def test_what_was_not_read_is_unknown(change: Side, lost: str) -> None:
    found = judge(ID, cpu("a") | change, cpu("b"))
    assert unread(found) == [(P, lost)]
    assert verdict(found) == "unknown"


def test_golden() -> None:
    found = golden_preflight(ID, seen(cpu(free=4 * GB), cpu(free=4 * GB)))
    assert verdict(found) == "fail"
    assert {scope for scope, _, _ in values(found)} == {P, D}
