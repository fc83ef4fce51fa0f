"""An episode becomes a simulation: same seed the same, severities by effect, targets as drawn."""

from __future__ import annotations

import dataclasses

import pytest

from pdops.bench import scenario
from pdops.bench.episodes import Episode
from pdops.bench.grid import SEVERITIES, Severity, kinds
from pdops.bench.play import Played, asked, state_of
from pdops.bench.scenario import WARMUP_S, Scenario, build
from pdops.errors import SimError
from pdops.model.cluster import Cluster
from pdops.sim.spec import checked

KINDS = {k.id: k for k in kinds().kinds}
SOUNDS = {s.id: s for s in kinds().healthy}


def episode(
    kind: str | None, severity: Severity = "clear", *, topology: str = "1P1D", sound: str | None = None
) -> Episode:
    return Episode(
        number=1,
        split="develop",
        faults=(KINDS[kind],) if kind else (),
        sound=SOUNDS[sound] if sound else None,
        severity=severity,
        workload="chat",
        topology=topology,
        seed=11,
        at_s=300.0,
        until_s=480.0,
    )


def made(kind: str, severity: Severity = "clear", topology: str = "1P1D") -> Scenario:
    return build(episode(kind, severity, topology=topology))


def test_the_same_episode_is_the_same_simulation() -> None:
    assert made("link-slow-worker") == made("link-slow-worker")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_gives_a_spec_that_the_simulator_accepts(kind: str) -> None:
    found = made(kind, topology="2P6D")
    checked(found.spec)
    assert [f.at_s for f in found.spec.faults] == [WARMUP_S + 300.0] * len(KINDS[kind].faults)


@pytest.mark.parametrize("sound", sorted(SOUNDS))
def test_every_look_alike_gives_a_spec_that_the_simulator_accepts(sound: str) -> None:
    checked(build(episode(None, sound=sound, topology="2P6D")).spec)


def test_a_worse_severity_leaves_less_bandwidth() -> None:
    factors = [float(made("link-slow-worker", s).spec.faults[0].params["factor"]) for s in SEVERITIES]
    assert factors == sorted(factors, reverse=True)
    assert all(0.0 < f < 1.0 for f in factors)


def test_background_traffic_leaves_what_a_slow_link_would_have() -> None:
    slow = float(made("link-slow-worker").spec.faults[0].params["factor"])
    busy = float(made("nic-bulk-copy").spec.faults[0].params["share"])
    assert busy == pytest.approx(1.0 - slow, rel=0.2)


def test_the_share_of_a_pool_is_used_up_by_the_draw() -> None:
    found = made("healthy-ejected", topology="2P6D").spec.faults[0]
    assert "share" not in found.params
    assert len(found.target) == 4


def test_the_promise_is_looser_than_what_is_normal() -> None:
    slo = made("prefill-pool-slow").spec.slo
    assert slo.ttft_s is not None
    assert slo.itl_s is not None
    assert 0.1 < slo.ttft_s < 20.0
    assert 0.03 < slo.itl_s < 0.5


def test_no_promise_is_made_up_where_the_trial_served_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "normal", lambda _requests, _percentile: None)
    with pytest.raises(SimError, match="no request"):
        made("prefill-pool-slow")


def test_severities_do_not_change_who_is_hit_by_an_episode_of_the_same_draw() -> None:
    pair = episode("link-slow-pair", topology="2P6D")
    assert build(pair).chosen == build(dataclasses.replace(pair, number=9)).chosen


def left(impact_s: float | None) -> Played:
    cluster = Cluster(name="made", workers=())
    return Played(cluster=cluster, frames=(), start_s=0.0, impact_s=impact_s, hottest=None)


@pytest.mark.parametrize(
    ("severity", "impact_s", "asked_s"),
    [("edge", 310.0, 330.0), ("edge", 325.0, 340.0), ("clear", 320.0, 380.0), ("extreme", 320.0, 380.0)],
)
def test_a_fault_that_ends_is_asked_about_when_it_ends(severity: Severity, impact_s: float, asked_s: float) -> None:
    """A cut link of 30 s, 120 s and 600 s from 300 s on."""
    assert asked(episode("link-cut", severity), left(impact_s), "fault") == asked_s


def test_a_worker_that_is_back_is_no_longer_asked_about() -> None:
    """It is away for 40 s from 300 s on."""
    assert asked(episode("decode-crash", "edge"), left(310.0), "fault") == 340.0
    assert asked(episode("decode-crash", "extreme"), left(310.0), "fault") == 370.0


@pytest.mark.parametrize(("impact_s", "state"), [(355.0, "fault"), (365.0, "sub-threshold"), (None, "sub-threshold")])
def test_what_begins_long_after_a_fault_ended_is_not_its_doing(impact_s: float | None, state: str) -> None:
    assert state_of(episode("link-cut", "edge"), left(impact_s)) == state
