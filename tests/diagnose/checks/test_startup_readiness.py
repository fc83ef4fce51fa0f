"""startup/readiness: a canary through every pair and router, newer than the last restart."""

from __future__ import annotations

import pytest

from pdops.model.frame import Event, EventKind, Probe, ProbeKind
from tests.diagnose.build import canary, golden_preflight, restart, unread, values, verdict
from tests.diagnose.hostfacts import PAIR, D, P, judge, seen

ID = "startup/readiness"


def through_router(ok: bool | None = True, t_s: float = -30.0) -> Probe:
    return Probe(t_s=t_s, kind=ProbeKind.CANARY, ok=ok, worker="router-0")


@pytest.mark.parametrize(("ok", "says"), [(True, "ok"), (False, "fail"), (None, "unknown")])
def test_each_pair(ok: bool | None, says: str) -> None:
    found = judge(ID, probes=[canary(PAIR, ok, detail="no KV moved")])
    assert verdict(found) == says
    if says == "fail":
        assert values(found) == [(PAIR, "canary", "no KV moved")]


def test_the_router_too() -> None:
    probes = [canary(PAIR, ok=True)]
    assert unread(judge(ID, router={}, probes=probes)) == [("router-0", "canary")]
    assert verdict(judge(ID, router={}, probes=[*probes, through_router()])) == "ok"
    assert verdict(judge(ID, router={}, probes=[*probes, through_router(False)])) == "fail"


def test_the_newest_counts() -> None:
    assert verdict(judge(ID, probes=[canary(PAIR, ok=True, t_s=-10), canary(PAIR, ok=False, t_s=-60)])) == "ok"


@pytest.mark.parametrize(("at", "says"), [(-31.0, "ok"), (-29.0, "unknown")])
@pytest.mark.parametrize("name", [P, D])
def test_a_restart_after_it(name: str, at: float, says: str) -> None:
    assert verdict(judge(ID, probes=[canary(PAIR, ok=True, t_s=-30)], events=[restart(name, at)])) == says


def test_other_events_change_nothing() -> None:
    events = [Event(t_s=-5, kind=EventKind.SCALE_OUT, pool="decode"), restart("decode-9", -5)]
    assert verdict(judge(ID, probes=[canary(PAIR, ok=True)], events=events)) == "ok"


def test_a_pair_without_a_canary_is_unknown() -> None:
    found = judge(ID, probes=[canary(PAIR, ok=True)], more={"decode-1": {}})
    assert unread(found) == [(f"{P}>decode-1", "canary")]
    assert verdict(found) == "unknown"


def test_golden() -> None:
    probes = [canary(PAIR, ok=False, detail="all prompt tokens were computed on decode")]
    assert verdict(golden_preflight(ID, seen(router={}, probes=probes))) == "fail"
