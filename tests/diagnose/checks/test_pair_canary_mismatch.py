"""pair/canary-mismatch: the newest probe through each pair decides."""

from __future__ import annotations

import pytest

from pdops.diagnose.engine import diagnose
from pdops.diagnose.finding import Status
from pdops.model.frame import Probe, ProbeKind
from pdops.model.report import Symptom, Verdict
from tests.diagnose.build import ask, but, canary, causes, golden, one, sound, view

ID = "pair/canary-mismatch"
PAIR = "prefill-0>decode-0"


def speed(value: float | None, ok: bool | None = None) -> Probe:
    return Probe(t_s=-20.0, kind=ProbeKind.BANDWIDTH, ok=ok, pair=PAIR, value=value)


def test_a_wrong_answer_is_corruption() -> None:
    found = one(ask(ID, view(series=sound(), probes=[canary(PAIR, ok=False, detail="first token differs")])))
    assert (found.cause, found.symptoms) == ("silent-corruption", (Symptom.WRONG_ANSWERS,))
    assert [str(s) for s in found.scopes] == [PAIR]
    assert (found.for_[0].evidence.observed, found.for_[0].evidence.basis) == ("first token differs", "probe")


def test_right_answers_are_clear() -> None:
    found = ask(ID, view(series=sound(), probes=[canary(PAIR, ok=True)]))
    assert causes(found, Status.CLEAR) == ["silent-corruption"]


def test_a_canary_that_could_not_be_judged_is_unknown() -> None:
    found = ask(ID, view(series=sound(), probes=[canary(PAIR, ok=None, detail="HTTP 503")]))
    assert one(found, Status.UNKNOWN).missing[0].why == "HTTP 503"
    assert causes(found, Status.CLEAR) == []


def test_the_newest_canary_of_a_pair_counts() -> None:
    healed = [canary(PAIR, ok=False, t_s=-200), canary(PAIR, ok=True, t_s=-20)]
    assert causes(ask(ID, view(series=sound(), probes=healed))) == []
    assert causes(ask(ID, view(series=sound(), probes=healed[::-1]))) == []


@pytest.mark.parametrize(("t_s", "fires"), [(-600.0, True), (-601.0, False)])
def test_an_old_canary_says_nothing_about_now(t_s: float, fires: bool) -> None:
    assert bool(ask(ID, view(series=sound(), probes=[canary(PAIR, ok=False, t_s=t_s)]))) is fires


def test_only_the_wrong_pairs_are_named() -> None:
    probes = [canary(PAIR, ok=False), canary("prefill-0>decode-1", ok=True)]
    found = ask(ID, view(workers=("prefill-0", "decode-0", "decode-1"), series=sound(1, 2), probes=probes))
    assert [str(s) for s in one(found).scopes] == [PAIR]
    assert causes(found, Status.CLEAR) == []


@pytest.mark.parametrize(("value", "fires"), [(5.0e9, False), (4.9e9, True)])
def test_a_measured_transfer_below_half_of_the_link(value: float, fires: bool) -> None:
    found = ask(ID, view(series=sound(), probes=[speed(value)], link_bytes_per_s=10e9))
    assert causes(found) == (["transport-fallback-slow"] if fires else [])


@pytest.mark.parametrize(("ok", "fires"), [(True, False), (False, True)])
def test_the_prober_s_own_judgement_stands(ok: bool, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=sound(), probes=[speed(1e9, ok)], link_bytes_per_s=10e9)))) is fires


def test_a_speed_without_anything_beside_it_is_not_judged() -> None:
    assert ask(ID, view(series=sound(), probes=[speed(1e3)])) == ()
    assert ask(ID, view(series=sound(), probes=[speed(None)], link_bytes_per_s=1e9)) == ()


def test_without_probes_it_says_nothing() -> None:
    assert ask(ID, view(series=sound())) == ()


def test_report() -> None:
    report = golden(ID, view(series=sound(), probes=[canary(PAIR, ok=False, detail="first token differs")]))
    assert report.verdict is Verdict.FAULT
    assert report.symptoms == (Symptom.WRONG_ANSWERS,)
    assert report.top is not None
    assert (report.top.cause, report.top.runbooks) == ("silent-corruption", ("wrong-answer-quarantine",))


@pytest.mark.parametrize(("failed", "shown"), [(0, False), (9, True)])
def test_transfers_that_fail_at_the_wrong_pair_are_shown_and_named_after_it(failed: float, shown: bool) -> None:
    given = but(sound(), {"decode-0": {"kv_transfer_failures": (0, failed)}})
    seen = view(series=given, probes=[canary("prefill-0>decode-0", False)])
    found = one(ask(ID, seen))
    assert ("kv_transfer_failures" in {w.evidence.signal for w in found.for_}) is shown
    report = diagnose(seen)
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "silent-corruption"
