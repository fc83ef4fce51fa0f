"""transfer/lease-expiry: who should have pulled, and did it go away or come late."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Layer, Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, restart, sound, view

ID = "transfer/lease-expiry"


def expired(more: Given | None = None, n: float = 1) -> Given:
    return but(but(sound(), {"prefill-0": {"kv_transfer_expired": (0, n)}}), more or {})


def test_one_expiry_gives_both_readings() -> None:
    found = ask(ID, view(series=expired()))
    assert causes(found) == ["kv-strand-prefill", "kv-lease-expiry"]
    assert {f.layer for f in found} == {Layer.TRANSFER}


def test_is_clear_without_and_silent_when_nobody_counts() -> None:
    assert causes(ask(ID, view(series=expired(n=0))), Status.CLEAR) == ["kv-lease-expiry"]
    assert ask(ID, view(series=but(sound(), {"prefill-0": {"kv_transfer_expired": None}}))) == ()


def test_a_decode_restart_means_that_the_reader_went_away() -> None:
    found = ask(ID, view(series=expired(), events=[restart("decode-0", -120)]))
    gone = one(found, cause="kv-strand-prefill")
    late = one(found, cause="kv-lease-expiry")
    assert "reader" in groups(gone)
    assert [w.group for w in late.against] == ["reader"]


@pytest.mark.parametrize(("t_s", "counts"), [(-600.0, True), (-601.0, False)])
def test_a_restart_counts_for_ten_minutes(t_s: float, counts: bool) -> None:
    found = one(ask(ID, view(series=expired(), events=[restart("decode-0", t_s)])), cause="kv-strand-prefill")
    assert ("reader" in groups(found)) is counts


@pytest.mark.parametrize("signal", ["client_aborts", "request_timeouts"])
def test_clients_that_give_up_are_readers_that_went_away(signal: str) -> None:
    found = one(ask(ID, view(series=expired({"client": {signal: (0, 5)}}))), cause="kv-strand-prefill")
    assert "reader" in groups(found)


@pytest.mark.parametrize(("deferred", "late"), [(1.0, False), (1.1, True)])
def test_a_deferred_queue_means_that_the_reader_is_late(deferred: float, late: bool) -> None:
    found = ask(ID, view(series=expired({"decode-0": {"queue_depth_deferred": (0, deferred)}})))
    assert ("late" in groups(one(found, cause="kv-lease-expiry"))) is late


@pytest.mark.parametrize(("usage", "full"), [(0.9, False), (0.91, True)])
def test_a_full_decode_pool_is_a_weak_sign_of_lateness(usage: float, full: bool) -> None:
    found = ask(ID, view(series=expired({"decode-0": {"kv_cache_usage": (0.4, usage)}})))
    assert ("full" in groups(one(found, cause="kv-lease-expiry"))) is full


FAILING: Given = {"client": {"request_failure": (0, 60), "request_success": (1200, 540)}}
NO_TRANSFER: Given = {"decode-0": {"kv_transfer_failures": (0, 0)}}


def test_requests_that_fail_without_a_failed_transfer_were_refused_before_the_pull() -> None:
    found = one(ask(ID, view(series=expired(but(FAILING, NO_TRANSFER)))), cause="kv-strand-prefill")
    assert "reader" in groups(found)
    assert any("before prefill" in step for step in found.next)


@pytest.mark.parametrize(
    "more", [{"kv_transfer_failures": (0, 1)}, {"kv_transfer_failures": None}, {"queue_depth_deferred": (0, 9)}]
)
def test_failed_requests_have_other_reasons_where_transfers_fail_or_nobody_counts_them_or_decode_is_late(
    more: dict[str, Points],
) -> None:
    found = one(
        ask(ID, view(series=expired(but(but(FAILING, NO_TRANSFER), {"decode-0": more})))), cause="kv-strand-prefill"
    )
    assert "reader" not in groups(found)


def test_report() -> None:
    more = {"prefill-0": {"kv_cache_usage": (0.3, 0.9)}, "client": {"ttft_seconds.p95": (0.4, 3.0)}}
    report = golden(ID, view(series=expired(more, 11), events=[restart("decode-0", -240)]))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "kv-strand-prefill"
    assert {d.action for d in report.top.do_not} == {"scale-out-prefill", "raise-retries"}


@pytest.mark.parametrize(
    ("counts", "named"),
    [
        ((9.0, 0.0), ["decode-0"]),
        ((9.0, 9.0), ["pool decode"]),
        ((0.0, 0.0), ["prefill-0"]),
        ((None, None), ["prefill-0"]),
    ],
)
def test_who_refuses_is_named_where_decode_counts_it(counts: tuple[float | None, ...], named: list[str]) -> None:
    more: Given = {
        f"decode-{i}": {"kv_transfer_failures": (0, 0), "request_failure": None if n is None else (0.0, n)}
        for i, n in enumerate(counts)
    }
    seen = view(workers=("prefill-0", "decode-0", "decode-1"), series=but(expired(FAILING), more))
    assert [str(s) for s in one(ask(ID, seen), cause="kv-strand-prefill").scopes] == named
