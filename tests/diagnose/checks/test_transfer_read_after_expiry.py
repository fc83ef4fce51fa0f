"""transfer/read-after-expiry: one late read is enough, by counter or by log line."""

from __future__ import annotations

import pytest

from pdops.diagnose.engine import diagnose
from pdops.diagnose.finding import DECISIVE, MODERATE, Status
from pdops.model.report import Symptom, Verdict
from tests.diagnose.build import Points, ask, but, canary, causes, golden, groups, line, one, sound, view

ID = "transfer/read-after-expiry"
LINE = "Potentially invalid KV blocks for unrecognized request cmpl-1 were retrieved"


def with_late(late: Points, expired: Points = (0, 3)) -> dict[str, dict[str, Points]]:
    return but(sound(), {"prefill-0": {"kv_notifications_after_expiry": late, "kv_transfer_expired": expired}})


def test_one_read_after_expiry_fires() -> None:
    found = one(ask(ID, view(series=with_late((0, 1)))))
    assert found.cause == "kv-lease-expiry"
    assert found.symptoms == (Symptom.WRONG_ANSWERS,)
    assert {w.evidence.signal for w in found.for_} == {"kv_notifications_after_expiry", "kv_transfer_expired"}


@pytest.mark.parametrize("expired", [(0, 1), (1, 0)])
def test_the_log_line_is_enough_where_the_counter_lags(expired: tuple[float, float]) -> None:
    found = one(ask(ID, view(series=with_late((0, 0), expired), logs=[line("prefill-0", LINE)])))
    assert {w.ratio for w in found.for_ if w.evidence.basis == "log"} == {DECISIVE}


def test_an_expiry_line_pairs_with_it_as_well() -> None:
    logs = [line("prefill-0", LINE), line("prefill-0", "Releasing expired KV blocks for request cmpl-1", -60)]
    found = one(ask(ID, view(series=with_late((0, 0), (0, 0)), logs=logs)))
    assert (found.for_[0].ratio, found.against) == (DECISIVE, ())


def test_the_line_without_any_expiry_may_be_a_race_in_the_log() -> None:
    seen = view(series=with_late((0, 0), (0, 0)), logs=[line("prefill-0", LINE)])
    found = one(ask(ID, seen))
    assert [w.evidence.signal for w in found.against] == ["kv_transfer_expired"]
    report = diagnose(seen)
    assert max(h.confidence for h in report.hypotheses) < 0.5 if report.hypotheses else True


def test_where_nobody_counts_expiries_the_line_alone_decides_nothing() -> None:
    found = one(ask(ID, view(series=with_late(None, None), logs=[line("prefill-0", LINE)])))
    assert (found.for_[0].ratio, found.against) == (MODERATE, ())


def test_a_line_from_before_the_window_is_over() -> None:
    assert causes(ask(ID, view(series=with_late((0, 0)), logs=[line("prefill-0", LINE, -301.0)]))) == []


def test_no_late_read_is_clear_and_says_nothing_about_other_corruption() -> None:
    found = ask(ID, view(series=with_late((4, 0))))
    assert causes(found, Status.CLEAR) == ["kv-lease-expiry"]


def test_without_the_counter_nothing_is_cleared() -> None:
    assert ask(ID, view(series=with_late(None, None))) == ()


def test_wrong_answers_come_first_even_when_latency_is_fine() -> None:
    seen = view(series=with_late((0, 2)), probes=[canary("prefill-0>decode-0", ok=False)])
    report = golden(ID, seen)
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("kv-lease-expiry", ID)
    assert Symptom.WRONG_ANSWERS in report.symptoms
    assert "wrong-answer-quarantine" in report.top.runbooks


@pytest.mark.parametrize(("ok", "fires"), [(False, True), (True, False)])
def test_wrong_answers_where_late_reads_are_declined(ok: bool, fires: bool) -> None:
    logs = [line("prefill-0", "Declining expired remote read for cmpl-7")]
    found = ask(ID, view(series=with_late((0, 0), (0, 0)), logs=logs, probes=[canary("prefill-0>decode-0", ok)]))
    assert bool(causes(found)) is fires
    if fires:
        assert groups(one(found)) == {"expired", "canary"}
