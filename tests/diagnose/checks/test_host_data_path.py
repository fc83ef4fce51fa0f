"""host/data-path: half of the link, or nothing is known."""

from __future__ import annotations

import json

import pytest

from pdops.model.frame import Probe, ProbeKind
from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import PAIR, because, cards, engine, judge, rdma, seen

ID = "host/data-path"
LINK = 10e9


def measured(value: float | None, ok: bool | None = None, detail: str | None = None, t_s: float = -30.0) -> list[Probe]:
    return [Probe(t_s=t_s, kind=ProbeKind.BANDWIDTH, ok=ok, pair=PAIR, value=value, detail=detail)]


@pytest.mark.parametrize(("value", "says"), [(5.0e9, "ok"), (4.99e9, "fail")])
def test_half_of_the_link(value: float, says: str) -> None:
    found = judge(ID, probes=measured(value), link=LINK)
    assert verdict(found) == says
    if says == "fail":
        assert values(found) == [(PAIR, "bandwidth", value)]


def test_the_newest_probe_counts() -> None:
    probes = [*measured(9e9, t_s=-10), *measured(1e9, t_s=-60)]
    assert verdict(judge(ID, probes=probes, link=LINK)) == "ok"


def test_the_slower_device_is_the_link() -> None:
    left, right = (
        engine("a" if mbits > 20_000 else "b", host__net_devices=json.dumps({"eth0": {"speed_mbits": mbits}}))
        | {"UCX_NET_DEVICES": "eth0"}
        for mbits in (100_000, 10_000)
    )
    assert verdict(judge(ID, left, right, probes=measured(0.7e9))) == "ok"
    assert verdict(judge(ID, left, right, probes=measured(0.6e9))) == "fail"


def test_without_a_link_a_rate_says_nothing() -> None:
    assert unread(judge(ID, engine("a"), engine("b"), probes=measured(1e9))) == [(PAIR, "link")]


def test_within_the_memory_of_one_host_no_link_sets_the_rate() -> None:
    cpu = engine("a", VLLM_TARGET_DEVICE="cpu")
    assert verdict(judge(ID, cpu, cpu)) == "not-applicable"
    found = judge(ID, cpu, cpu, probes=measured(1e9))
    assert verdict(found) == "not-applicable"
    assert "1000 MB/s" in because(found)
    assert verdict(judge(ID, cpu, cpu, probes=measured(1e6, ok=False))) == "fail"


def test_gpus_of_one_host_have_a_link() -> None:
    facts = engine("a", host__gpus=cards(70.0))
    assert unread(judge(ID, facts, facts, probes=measured(1e9))) == [(PAIR, "link")]
    assert verdict(judge(ID, facts, facts, probes=measured(9e9), link=LINK)) == "ok"


def test_a_transfer_that_failed() -> None:
    assert verdict(judge(ID, probes=measured(None, ok=False, detail="cut"), link=LINK)) == "fail"
    assert verdict(judge(ID, probes=measured(None, detail="no answer"), link=LINK)) == "unknown"


def test_a_probe_that_was_judged_too_slow() -> None:
    assert verdict(judge(ID, engine("a"), engine("a"), probes=measured(1e6, ok=False))) == "fail"


@pytest.mark.parametrize(("detail", "says"), [(None, "unknown"), ("ucx_perftest", "ok")])
def test_a_plain_copy_says_nothing_of_rdma(detail: str | None, says: str) -> None:
    left, right = (engine(h, host__rdma=rdma(), UCX_TLS="rc") for h in "ab")
    assert verdict(judge(ID, left, right, probes=measured(9e9, detail=detail), link=LINK)) == says


def test_without_a_probe_it_is_unknown() -> None:
    assert unread(judge(ID, link=LINK)) == [(PAIR, "bandwidth")]


def test_golden() -> None:
    assert verdict(golden_preflight(ID, seen(probes=measured(0.2e9), link=LINK))) == "fail"
