"""What a start makes of its canaries."""

from __future__ import annotations

import pytest

from pdops.probe.report import CanaryReport, Check, Observed, Result, Status
from pdops.reference import looks

GOOD = Check(name="text", status=Status.OK)


def _report(*checks: Check) -> CanaryReport:
    result = Result(src="prefill-0", dst="decode-0", at_s=0.0, checks=(GOOD, *checks), duration_s=0.5)
    return CanaryReport(cluster="c", at_s=0.0, model="m", pairs=(result,))


def _bytes(status: Status, observed: Observed, expected: Observed = None) -> Check:
    return Check(name="bytes", status=status, observed=observed, expected=expected, unit="bytes", why="bytes: because")


def test_a_model_whose_kv_size_nobody_knows_starts_and_that_is_said() -> None:
    outcome = looks.judged(_report(_bytes(Status.UNKNOWN, 4096.0)))
    assert outcome.ok
    assert "how many bytes had to move is not known" in outcome.detail


def test_nothing_is_said_of_bytes_that_were_judged() -> None:
    assert looks.judged(_report(_bytes(Status.OK, 4096.0, 4096.0))).detail == "1 right, slowest 0.50 s"


@pytest.mark.parametrize(
    "check",
    [
        _bytes(Status.UNKNOWN, None),
        _bytes(Status.UNKNOWN, 4096.0, 8192.0),
        _bytes(Status.WRONG, 0.0),
        Check(name="text", status=Status.UNKNOWN, observed=1.0, why="no"),
        Check(name="external_tokens", status=Status.UNKNOWN, observed=32.0, why="no"),
    ],
)
def test_whatever_else_is_open_keeps_a_start_waiting(check: Check) -> None:
    assert not looks.judged(_report(check)).ok


def test_what_was_not_looked_at_keeps_a_start_waiting() -> None:
    nothing = CanaryReport(cluster="c", at_s=0.0, model="m")
    unseen = Result(src="prefill-0", dst="decode-0", at_s=0.0, checks=(), duration_s=0.5)
    assert not looks.judged(nothing).ok
    assert not looks.judged(CanaryReport(cluster="c", at_s=0.0, model="m", pairs=(unseen,))).ok
