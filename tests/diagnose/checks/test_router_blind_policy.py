"""router/blind-policy: what is uneven, and whether the policy looks at it."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, groups, one, sound, view, worker

ID = "router/blind-policy"
WORKERS = ("prefill-0", "decode-0", "decode-1", "decode-2", "router-0")
ZONES = (
    worker("prefill-0", zone="a"),
    worker("decode-0", zone="a"),
    worker("decode-1", zone="b"),
    worker("router-0"),
)


def policy(name: str) -> dict[str, dict[str, str]]:
    return {"router-0": {"policy": name}}


def uneven() -> Given:
    hot = {
        f"decode-{i}": {"worker_selection": (600, n), "running_requests": r}
        for i, (n, r) in enumerate(((900, 20.0), (60, 1.0), (60, 1.0)))
    }
    return but(sound(1, 3), hot)


def unfound() -> Given:
    return but(
        sound(), {"prefill-0": {"prefix_cache_hits": (60_000, 3_000), "prefix_cache_queries": (100_000, 50_000)}}
    )


def crossing(across: float, ttft: float = 3.0) -> Given:
    given = {
        "pair:prefill-0>decode-0": {"kv_transfer_bytes": (20e9, 100e9 - across)},
        "pair:prefill-0>decode-1": {"kv_transfer_bytes": (20e9, across)},
        "client": {"ttft_seconds.p95": (0.4, ttft)},
    }
    return but(sound(1, 2), given)


@pytest.mark.parametrize(
    ("name", "fires"), [("round-robin", True), ("random", True), ("least-loaded", False), ("house-special", False)]
)
def test_uneven_load_under_a_policy_that_looks_at_no_load(name: str, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=uneven(), facts=policy(name)))
    assert causes(found) == (["router-imbalance"] if fires else [])
    if fires:
        assert "policy" in groups(one(found))


@pytest.mark.parametrize(("name", "fires"), [("least-loaded", True), ("prefix-affinity", False), ("kv", False)])
def test_prefixes_that_are_no_longer_found(name: str, fires: bool) -> None:
    found = ask(ID, view(workers=WORKERS, series=unfound(), facts=policy(name)))
    assert causes(found) == (["router-index-loss"] if fires else [])


@pytest.mark.parametrize(
    ("across", "name", "fires"),
    [(30e9, "least-loaded", True), (29e9, "least-loaded", False), (30e9, "zone-aware", False)],
)
def test_kv_that_crosses_zones(across: float, name: str, fires: bool) -> None:
    found = ask(ID, view(workers=ZONES, series=crossing(across), facts=policy(name)))
    assert causes(found) == (["cross-zone"] if fires else [])


def test_kv_that_crosses_zones_unnoticed_is_no_fault() -> None:
    assert ask(ID, view(workers=ZONES, series=crossing(80e9, ttft=0.4), facts=policy("round-robin"))) == ()


def test_an_even_load_needs_no_policy_and_an_uneven_one_asks_for_it() -> None:
    assert ask(ID, view(workers=WORKERS, series=sound(1, 3))) == ()
    assert one(ask(ID, view(workers=WORKERS, series=uneven())), Status.UNKNOWN).missing[0].signal == "policy"
    assert ask(ID, view(workers=WORKERS[:-1], series=uneven())) == ()


def test_report() -> None:
    report = golden(ID, view(workers=ZONES, series=crossing(60e9), facts=policy("round-robin")))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "cross-zone"
