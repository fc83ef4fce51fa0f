"""host/gpu-headroom: room for the pool before a start, something left after it."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, cards, engine, judge, seen

ID = "host/gpu-headroom"
Side = dict[str, str | None]


def ends(gpus: str | None, **more: str | None) -> tuple[Side, Side]:
    return engine("a", **more) | {"host.gpus": gpus}, engine("b", host__gpus=cards(79.0))


@pytest.mark.parametrize(("free", "says"), [(73.61, "ok"), (73.59, "fail")])
def test_room_for_the_pool_before_a_start(free: float, says: str) -> None:
    assert verdict(judge(ID, *ends(cards(free)))) == says


@pytest.mark.parametrize(("share", "free", "says"), [("0.5", 40.0, "ok"), ("0.5", 39.9, "fail")])
def test_the_share_that_was_asked_for(share: str, free: float, says: str) -> None:
    assert verdict(judge(ID, *ends(cards(free), gpu_memory_utilization=share))) == says


@pytest.mark.parametrize(("free", "says"), [(1.0, "ok"), (0.99, "warn")])
def test_left_over_once_it_runs(free: float, says: str) -> None:
    assert verdict(judge(ID, *ends(cards(free), num_gpu_blocks="9000"))) == says


def test_only_visible_gpus_count() -> None:
    assert verdict(judge(ID, *ends(cards(79.0, 0.0), CUDA_VISIBLE_DEVICES="0"))) == "ok"
    assert verdict(judge(ID, *ends(cards(79.0, 0.0), CUDA_VISIBLE_DEVICES="1"))) == "fail"


@pytest.mark.parametrize(("share", "devices", "says"), [("0.5", "0", "ok"), ("0.51", "0", "fail"), ("0.9", "1", "ok")])
def test_engines_on_one_gpu(share: str, devices: str, says: str) -> None:
    both = cards(79.0, 79.0)
    left = engine("a", host__gpus=both, gpu_memory_utilization="0.5", CUDA_VISIBLE_DEVICES="0")
    right = engine("a", host__gpus=both, gpu_memory_utilization=share, CUDA_VISIBLE_DEVICES=devices)
    found = judge(ID, left, right)
    assert verdict(found) == says
    if says == "fail":
        assert values(found) == [(P, "gpu_memory_utilization", 0.5), (D, "gpu_memory_utilization", float(share))]


def test_what_was_not_read_is_unknown() -> None:
    assert unread(judge(ID, *ends(None))) == [(P, "host.gpus")]
    assert unread(judge(ID, *ends(cards(None)))) == [(P, "host.gpus[0].memory_free_bytes")]
    assert unread(judge(ID, {"host.gpus": cards(79.0)}, engine("b", host__gpus="[]"))) == [
        (P, "gpu_memory_utilization")
    ]


def test_not_without_gpus() -> None:
    facts = engine("a", VLLM_TARGET_DEVICE="cpu")
    assert verdict(judge(ID, facts, facts)) == "not-applicable"


def test_golden() -> None:
    assert verdict(golden_preflight(ID, seen(*ends(cards(12.0))))) == "fail"
