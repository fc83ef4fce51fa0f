"""The helpers of preflight: what a finding means, how an option is compared, and the run over all checks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdops.diagnose.checks import ALL, CHECKS, PREFLIGHT
from pdops.diagnose.context import Context
from pdops.diagnose.finding import Check, CheckMeta, Finding, Status, Tier
from pdops.diagnose.options import named
from pdops.diagnose.preflight import (
    Outcome,
    Seen,
    agrees,
    amount,
    flag,
    must,
    not_applicable,
    outcome,
    overall,
    same,
    unread,
    warn,
)
from pdops.diagnose.preflight_run import run_preflight
from tests.diagnose.build import values, verdict, view
from tests.diagnose.pairs import ENGINE, pair_view

CAUSE = "config-asymmetry"
SEEN = [Seen("prefill-0", "a", 1.0), Seen("prefill-0>decode-0", "a", "x"), Seen(None, "a", None)]


def test_what_each_helper_means() -> None:
    made = [
        must(CAUSE, SEEN, "one", "fix it"),
        warn(CAUSE, SEEN, "one", "fix it"),
        agrees(CAUSE, "it is 1"),
        not_applicable(CAUSE, "no router"),
        unread(CAUSE, ("prefill-0", "decode-0"), "a", "not read"),
    ]
    assert [outcome(f).value for f in made] == ["fail", "warn", "ok", "not-applicable", "unknown"]
    assert values(made[:1]) == [("prefill-0", "a", 1.0), ("prefill-0>decode-0", "a", "x"), ("None", "a", None)]
    assert [str(s) for s in made[0].scopes] == ["prefill-0", "prefill-0>decode-0"]
    assert made[3].because == "not applicable: no router"
    assert [str(m.scope) for m in made[4].missing] == ["prefill-0", "decode-0"]
    assert all(f.status in Status for f in made)


@pytest.mark.parametrize("cut", range(5))
def test_the_gravest_outcome_counts(cut: int) -> None:
    made: list[Finding] = [
        must(CAUSE, SEEN, "one", "fix it"),
        unread(CAUSE, None, "a", "not read"),
        warn(CAUSE, SEEN, "one", "fix it"),
        agrees(CAUSE, "it is 1"),
        not_applicable(CAUSE, "no router"),
    ]
    assert overall(reversed(made[cut:])) == list(Outcome)[cut]


def test_nothing_said_is_unknown() -> None:
    assert overall(()) is Outcome.UNKNOWN
    meta = CheckMeta(id="pair/x", title="x", causes=(CAUSE,), needs=(), tier=Tier.PAIR, preflight=True)
    ((_, found),) = run_preflight(view(), [Check(meta, lambda ctx: iter(()))])
    assert verdict(found) == "unknown"


def test_a_sound_pair_fails_nothing() -> None:
    results = run_preflight(pair_view())
    assert [meta.id for meta, _ in results] == [c.meta.id for c in PREFLIGHT]
    pairs = {meta.id: verdict(found) for meta, found in results if meta.id.startswith("pair/")}
    assert set(pairs.values()) == {"ok", "not-applicable"}
    assert run_preflight(pair_view()) == results


def test_the_registry_keeps_them_apart() -> None:
    assert CHECKS + PREFLIGHT == ALL


def test_many_workers_are_cut_with_both_values_left() -> None:
    names = [f"{role}-{n}" for role in ("prefill", "decode") for n in range(30)]
    seen = pair_view({}, {"block_size": "64"}, workers=names)
    (found,) = same(Context(seen), named("block_size"), "fix it")
    assert len(found.for_) == 16
    assert [v for _, _, v in values([found])][:2] == ["32", "64"]
    assert [str(s) for s in found.scopes] == ["pool prefill", "pool decode"]


def test_known_and_unread_workers_are_told_apart() -> None:
    seen = pair_view({}, {"block_size": "64"}, workers=("prefill-0", "decode-0", "decode-1"))
    seen = replace(seen, facts={k: v for k, v in seen.facts.items() if k != "decode-1"})
    found = tuple(same(Context(seen), named("block_size"), "fix it"))
    assert [outcome(f).value for f in found] == ["fail", "unknown"]
    assert str(found[1].missing[0].scope) == "decode-1"


@pytest.mark.parametrize(
    ("text", "number"), [("5", 5.0), ("2.5", 2.5), ("unlimited", float("inf")), ("many", None), (None, None)]
)
def test_amounts(text: str | None, number: float | None) -> None:
    facts = {} if text is None else {"x": text}
    assert amount(Context(view(facts={"prefill-0": facts})), "prefill-0", "x") == number


@pytest.mark.parametrize(
    ("text", "value"), [("True", True), ("0", False), (" off ", False), ("maybe", None), (None, None)]
)
def test_flags(text: str | None, value: bool | None) -> None:
    assert flag(text) is value


@pytest.mark.parametrize("name", sorted(ENGINE))
def test_any_fact_that_vanishes_leaves_no_false_alarm(name: str) -> None:
    """Taking one fact from one side is never a failure by itself: it is unknown, a default, or not needed."""
    gone = {name: None}
    for seen in (pair_view(gone), pair_view({}, gone)):
        failed = {meta.id for meta, found in run_preflight(seen) if verdict(found) == "fail"}
        # A default that is really too short, and a seed that is really not set.
        assert failed <= {"pair/keep-alive"}
