"""host/pid-namespace: one for engines with GPUs on one node."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, cards, engine, judge, seen

ID = "host/pid-namespace"
FACT = "host.pid_namespace"
Side = dict[str, str | None]


def ends(
    left: str | None, right: str | None, nodes: tuple[str, str] = ("n", "n"), gpus: str | None = cards(70.0)
) -> tuple[Side, Side]:
    return (
        engine("pod-1", host__node=nodes[0], host__gpus=gpus) | {FACT: left},
        engine("pod-2", host__node=nodes[1], host__gpus=gpus) | {FACT: right},
    )


@pytest.mark.parametrize(("right", "says"), [("pid:[1]", "ok"), ("pid:[2]", "fail")])
def test_one_namespace(right: str, says: str) -> None:
    found = judge(ID, *ends("pid:[1]", right))
    assert verdict(found) == says
    if says == "fail":
        assert values(found) == [(P, FACT, "pid:[1]"), (D, FACT, "pid:[2]")]


def test_different_nodes_or_no_gpus_do_not_need_one() -> None:
    assert verdict(judge(ID, *ends("pid:[1]", "pid:[2]", ("n", "m")))) == "not-applicable"
    assert verdict(judge(ID, *ends("pid:[1]", "pid:[2]", gpus="[]"))) == "not-applicable"


def test_gpus_of_a_pod_spec_count() -> None:
    left, right = ends("pod a", "pod b", gpus=None)
    assert verdict(judge(ID, left | {"host.gpu_count": "1"}, right | {"host.gpu_count": "1"})) == "fail"


@pytest.mark.parametrize(("change", "lost"), [({FACT: None}, (P, FACT)), ({"host.gpus": None}, (P, "host.gpus"))])
def test_what_was_not_read_is_unknown(change: Side, lost: tuple[str, str]) -> None:
    left, right = ends("pid:[1]", "pid:[1]")
    assert unread(judge(ID, left | change, right)) == [lost]


def test_an_unknown_node_is_unknown() -> None:
    left, right = ends("pid:[1]", "pid:[2]")
    nowhere: Side = {"host.node": None, "host.name": None}
    assert unread(judge(ID, left | nowhere, right | nowhere)) == [(f"{P}>{D}", "host.name")]


def test_golden() -> None:
    assert verdict(golden_preflight(ID, seen(*ends("pid:[4026531836]", "pid:[4026532204]")))) == "fail"
