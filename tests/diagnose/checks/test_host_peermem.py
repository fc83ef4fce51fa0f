"""host/peermem: a module or DMA-BUF, and no expandable segments, where GPU memory goes over RDMA."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, cards, engine, judge, rdma, seen

ID = "host/peermem"
Side = dict[str, str | None]


def ends(**more: str | None) -> tuple[Side, Side]:
    known: dict[str, str | None] = {
        "host__modules": "ib_core,nvidia_peermem",
        "host__kernel": "6.8.0-45-generic",
        "UCX_TLS": "rc",
    }
    left, right = (engine(h, host__rdma=rdma(), host__gpus=cards(70.0), **known) for h in "ab")
    return left | {k.replace("__", "."): v for k, v in more.items()}, right


@pytest.mark.parametrize(
    ("modules", "kernel", "says"),
    [
        ("nvidia_peermem", None, "ok"),
        ("nv_peer_mem", "4.18.0", "ok"),
        ("ib_core", "5.11.0", "fail"),
        ("ib_core", "5.12.0", "warn"),
        ("", "6.8.0-45-generic", "warn"),
        ("ib_core", None, "unknown"),
        (None, "6.8.0", "unknown"),
    ],
)
def test_module_or_kernel(modules: str | None, kernel: str | None, says: str) -> None:
    assert verdict(judge(ID, *ends(host__modules=modules, host__kernel=kernel))) == says


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("expandable_segments:True", "fail"),
        ("max_split_size_mb:128, expandable_segments: True", "fail"),
        ("expandable_segments:False", "ok"),
        (None, "ok"),
    ],
)
@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_expandable_segments(name: str, value: str | None, says: str) -> None:
    found = judge(ID, *ends(**{name: value}))
    assert verdict(found) == says
    if says == "fail":
        assert values(found) == [(P, name, value)]


def test_not_without_gpus_or_over_tcp() -> None:
    left, right = ends()
    cpu: Side = {"VLLM_TARGET_DEVICE": "cpu"}
    assert verdict(judge(ID, left | cpu, right | cpu)) == "not-applicable"
    tcp: Side = {"UCX_TLS": "tcp,cuda_copy"}
    assert verdict(judge(ID, left | tcp, right | tcp)) == "not-applicable"


def test_what_was_not_read_is_unknown() -> None:
    assert unread(judge(ID)) == [(P, "UCX_TLS"), (D, "UCX_TLS")]
    assert unread(judge(ID, *ends(host__gpus=None))) == [(P, "host.gpus")]
    bare = {"kv_connector": "MooncakeConnector", "host.gpus": cards(1.0), "host.modules": "nvidia_peermem"}
    assert unread(judge(ID, bare, bare)) == [(n, "PYTORCH_CUDA_ALLOC_CONF") for n in (P, D)]


def test_golden() -> None:
    left, right = ends(host__modules="ib_core", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert verdict(golden_preflight(ID, seen(left, right))) == "fail"
