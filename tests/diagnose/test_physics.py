"""Laws: what adds up holds, what cannot be is told from what only piles up, and a missing part is unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.diagnose.context import Context
from pdops.diagnose.physics import MIN_EVENTS, Law, LawState, broken, laws
from pdops.model.cluster import Cluster
from pdops.model.frame import Event, EventKind
from pdops.model.view import View
from tests.diagnose.build import Given, Points, histogram, restart, view

ENDS = [0.1, 1.0, 10.0]


def took(seconds: float, n: int, before: int | None = None) -> Points:
    """Return a histogram of `n` requests in the judged window; twice that before, unless said."""
    return histogram(ENDS, {seconds: 2 * n if before is None else before}, {seconds: n})


def law(seen: View, name: str, scope: str | None = None) -> Law:
    (one,) = [x for x in laws(Context(seen)) if x.name == name and scope in (None, x.scope)]
    return one


def decode(held: float, seconds: float = 3.0, n: int = 600, before: int | None = None) -> View:
    given: Given = {
        "decode-0": {"running_requests": held, "queue_depth": 0.0, "e2e_seconds": took(seconds, n, before)},
    }
    return view(series=given)


@given(st.floats(0.5, 60.0), st.integers(MIN_EVENTS, 3000))
def test_little_holds_whatever_the_rate_and_the_time(seconds: float, n: int) -> None:
    assert law(decode(n / 300 * seconds, seconds, n), "little", "pool:decode").state is LawState.HOLDS


@pytest.mark.parametrize(
    ("held", "state"),
    [(6.0, LawState.HOLDS), (12.1, LawState.ABOVE), (2.9, LawState.BELOW), (11.9, LawState.HOLDS)],
)
def test_little_at_its_bounds(held: float, state: LawState) -> None:
    assert law(decode(held), "little", "pool:decode").state is state


def test_little_says_nothing_of_few_requests_long_ones_or_a_load_that_went_away() -> None:
    assert law(decode(50.0, n=MIN_EVENTS - 1), "little", "pool:decode").state is LawState.UNKNOWN
    assert law(decode(50.0, seconds=101.0), "little", "pool:decode").state is LawState.UNKNOWN
    assert law(decode(1.0, before=3000), "little", "pool:decode").state is LawState.UNKNOWN
    assert law(decode(1.0, before=3000), "little", "pool:decode").why == "the load changes"


def test_a_missing_part_is_unknown_and_said() -> None:
    for one in laws(Context(view(series={}))):
        assert (one.state, bool(one.why)) == (LawState.UNKNOWN, True)


def ttft(client: float, prefill: float, decode: float, n: int = 300) -> View:
    edges = [0.01, 100.0]
    return view(
        series={
            "client": {"ttft_seconds": histogram(edges, {}, {client: n})},
            "prefill-0": {"ttft_seconds": histogram(edges, {}, {prefill: 300})},
            "decode-0": {"ttft_seconds": histogram(edges, {}, {decode: 300})},
        }
    )


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (ttft(1.0, 0.5, 0.4), LawState.HOLDS),
        (ttft(1.0, 0.2, 0.2), LawState.ABOVE),
        (ttft(1.0, 0.4, 0.3), LawState.UNKNOWN),
        (ttft(1.0, 0.2, 0.2, n=500), LawState.UNKNOWN),
        (ttft(1.0, 0.2, 0.2, n=MIN_EVENTS - 1), LawState.UNKNOWN),
    ],
)
def test_time_outside_the_engines(seen: View, state: LawState) -> None:
    assert law(seen, "ttft-outside").state is state


def test_prefill_cannot_take_longer_than_the_token_it_is_for() -> None:
    assert law(ttft(1.0, 1.3, 0.1), "prefill-within-ttft").state is LawState.BELOW
    assert law(ttft(1.0, 1.1, 0.1), "prefill-within-ttft").state is LawState.HOLDS
    # A router that passes prefill's token on does not wait for decode.
    assert law(ttft(0.3, 0.2, 2.0), "prefill-within-ttft").state is LawState.HOLDS


def moved(sent: float, got: float, tokens: float = 0.0, each: float | None = None, **more: object) -> View:
    given: Given = {
        "prefill-0": {"kv_transfer_bytes": (0, sent)},
        "decode-0": {"kv_transfer_bytes": (0, got), "external_kv_tokens": (0, tokens)},
    }
    made = view(series=given, **more)  # type: ignore[arg-type]
    cluster = Cluster(name="t", workers=made.cluster.workers, kv_bytes_per_token=each)
    return View(**{f: getattr(made, f) for f in made.__slots__} | {"cluster": cluster})


@pytest.mark.parametrize(
    ("sent", "got", "state"),
    [
        (100e9, 100e9, LawState.HOLDS),
        (100e9, 119e9, LawState.HOLDS),
        (100e9, 121e9, LawState.BELOW),
        (121e9, 100e9, LawState.ABOVE),
        (0, 0, LawState.UNKNOWN),
        (0, 100e9, LawState.UNKNOWN),
    ],
)
def test_bytes_sent_are_bytes_received(sent: float, got: float, state: LawState) -> None:
    assert law(moved(sent, got), "sent-received").state is state


def test_what_a_worker_counted_before_it_ended_is_lost() -> None:
    assert law(moved(1e9, 9e9, events=[restart("prefill-0", -100)]), "sent-received").state is LawState.UNKNOWN
    gone = [Event(t_s=-50, kind=EventKind.SCALE_IN, pool="prefill")]
    assert law(moved(1e9, 9e9, events=gone), "sent-received").state is LawState.UNKNOWN


@pytest.mark.parametrize(
    ("got", "state"), [(1e9, LawState.HOLDS), (1.4e9, LawState.HOLDS), (1.6e9, LawState.ABOVE), (0.6e9, LawState.BELOW)]
)
def test_tokens_weigh_what_their_bytes_say(got: float, state: LawState) -> None:
    assert law(moved(got, got, 10_000, 1e5), "tokens-bytes").state is state
    assert law(moved(got, got, 10_000), "tokens-bytes").state is LawState.UNKNOWN


def counted(client: float, engine: float) -> View:
    return view(series={"client": {"request_success": (0, client)}, "decode-0": {"request_success": (0, engine)}})


@pytest.mark.parametrize(
    ("client", "engine", "state"),
    [
        (300, 300, LawState.HOLDS),
        (300, 240, LawState.ABOVE),
        (240, 300, LawState.BELOW),
        (10, 40, LawState.UNKNOWN),
    ],
)
def test_the_router_counts_what_the_engines_count(client: float, engine: float, state: LawState) -> None:
    assert law(counted(client, engine), "counts").state is state


def test_only_the_impossible_is_broken() -> None:
    assert [x.name for x in broken(Context(counted(300, 240)))] == ["counts"]
    assert list(broken(Context(counted(240, 300)))) == []
    assert [x.name for x in broken(Context(decode(2.0)))] == ["little"]
    assert list(broken(Context(decode(50.0)))) == []
