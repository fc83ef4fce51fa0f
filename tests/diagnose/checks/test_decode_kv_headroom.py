"""decode/kv-headroom: less than 30 % of decode's KV is free."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, golden, one, sound, view

ID = "decode/kv-headroom"


def used(share: Points, more: Given | None = None) -> Given:
    return but(but(sound(), {"decode-0": {"kv_cache_usage": share}}), more or {})


@pytest.mark.parametrize(("share", "fires"), [(0.70, False), (0.71, True), (0.90, True), (0.91, False), (None, False)])
def test_from_thirty_percent_free_to_where_exhaustion_is_judged(share: Points, fires: bool) -> None:
    assert bool(ask(ID, view(series=used(share)))) is fires


def test_the_fullest_hundredth_of_the_window_counts() -> None:
    samples = [(-900.0, 0.4), *((float(t), 0.4) for t in range(-300, -30, 15)), (-15.0, 0.85), (0.0, 0.85)]
    assert one(ask(ID, view(series=used(samples)))).cause == "decode-kv-exhaustion"


def test_it_warns_and_never_decides() -> None:
    found = one(ask(ID, view(series=used((0.5, 0.85)))))
    assert (found.verdict, found.cap < 0.5) == (Verdict.OVERLOAD, True)


@pytest.mark.parametrize(("before", "told"), [(0.76, False), (0.74, True)])
def test_a_share_that_grows_is_told(before: float, told: bool) -> None:
    found = one(ask(ID, view(series=used((before, 0.85)))))
    assert ("history" in {w.evidence.basis for w in found.for_}) is told


def test_report() -> None:
    report = golden(ID, view(series=used((0.5, 0.85), {"client": {"request_success": (1200, 300)}})))
    assert report.verdict is Verdict.UNKNOWN
    assert report.top is not None
    assert report.top.check == ID
