"""telemetry/errors-unsplit: requests fail and nothing tells where."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, golden, line, one, sound, view

ID = "telemetry/errors-unsplit"


def failing(failed: Points = (0, 60), transfers: Points = (0, 0)) -> Given:
    given = {"client": {"request_failure": failed}, "decode-0": {"kv_transfer_failures": transfers}}
    return but(sound(), given)


@pytest.mark.parametrize(("failed", "fires"), [(6, False), (7, True)])
def test_one_in_a_hundred(failed: float, fires: bool) -> None:
    assert bool(ask(ID, view(series=failing((0, failed))))) is fires


def test_it_names_what_to_read_and_decides_nothing() -> None:
    found = one(ask(ID, view(series=failing())))
    assert found.verdict is Verdict.UNKNOWN
    assert "log of decode" in found.next[0]
    assert not any("put and get" in step for step in found.next)
    stored = one(ask(ID, view(workers=("prefill-0", "decode-0", "store-0"), series=failing())))
    assert any("put and get" in step for step in stored.next)


def test_a_line_or_a_counted_failure_is_somewhere_to_start() -> None:
    assert ask(ID, view(series=failing(), logs=[line("decode-0", "anything")])) == ()
    assert ask(ID, view(series=failing(transfers=(0, 2)))) == ()


def test_without_the_counter_it_says_what_is_missing() -> None:
    assert one(ask(ID, view(series=failing()))).missing == ()
    found = one(ask(ID, view(series=failing(transfers=None))))
    assert [m.signal for m in found.missing] == ["kv_transfer_failures"]


def test_report() -> None:
    report = golden(ID, view(series=failing()))
    assert report.verdict is Verdict.UNKNOWN
    assert report.top is not None
    assert report.top.check == ID
