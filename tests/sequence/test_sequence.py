"""Orders of stages: read, checked, and gone through on a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from pdops.clock import VirtualClock
from pdops.errors import CatalogError, DeploymentError
from pdops.sequence.run import Effect, Outcome, Progress, Skip, StageFailed, Status, run
from pdops.sequence.stages import Order, Stage, order, parse

NO, YES = Outcome(False, "not yet"), Outcome(True, "there")


class Scripted:
    """An effect that answers as it is told, the last answer for ever."""

    def __init__(self, outcomes: Sequence[Outcome], log: list[str], name: str, error: str = "") -> None:
        self._outcomes, self._log, self._name, self._error = list(outcomes), log, name, error

    def begin(self) -> None:
        self._log.append(self._name)
        if self._error:
            raise DeploymentError(self._error)

    def probe(self) -> Outcome:
        return self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]


def _go(stages: Sequence[Stage], effects: Mapping[str, Effect | Skip]) -> tuple[tuple[Progress, ...], list[str]]:
    clock, seen = VirtualClock(1000.0), list[str]()
    done = run(
        Order("t", tuple(stages)),
        effects,
        clock=clock,
        sleep=clock.advance,
        report=lambda all_: seen.append(" ".join(f"{p.stage.id}={p.status}" for p in all_)),
    )
    return done, seen


def test_the_shipped_cold_start_is_in_the_documented_order() -> None:
    cold = order("cold-start")
    ids = [s.id for s in cold.stages]
    for before, after in zip(
        ("preflight", "coordination", "kv-store", "prefill", "decode", "pair-canary", "router", "canary"),
        ("coordination", "kv-store", "prefill", "decode", "pair-canary", "router", "canary", "ramp"),
        strict=True,
    ):
        assert ids.index(before) < ids.index(after)
    assert "transport" in cold.get("prefill").after
    assert cold.without("prefill", "decode").get("decode").after == ("kv-store", "transport")


def test_the_shipped_drain_keeps_decode_until_prefill_is_gone() -> None:
    drain = order("drain")
    ids = [s.id for s in drain.stages]
    assert ids.index("close") < ids.index("prefill") < ids.index("decode") < ids.index("kv-store")
    assert all(s.if_fails == "degrade" for s in drain.stages), "a stop that gets stuck must still stop"


def test_ready_means_successes_in_a_row() -> None:
    log: list[str] = []
    stage = Stage(id="a", title="A", after=(), budget_s=60, successes=3)
    done, _ = _go([stage], {"a": Scripted([YES, YES, NO, YES, YES, YES], log, "a")})
    assert done[0].status is Status.READY
    assert done[0].since_s == pytest.approx(1005.0, abs=0.5)


def test_a_stage_waits_for_those_before_and_skipped_ones_pass() -> None:
    log: list[str] = []
    stages = [
        Stage(id="a", title="A", after=(), budget_s=60, successes=1),
        Stage(id="b", title="B", after=("a",), budget_s=60, successes=1),
        Stage(id="c", title="C", after=("a", "b"), budget_s=60, successes=1),
    ]
    done, seen = _go(
        stages, {"a": Scripted([NO, YES], log, "a"), "b": Skip("nothing to do"), "c": Scripted([YES], log, "c")}
    )
    assert log == ["a", "c"]
    assert [p.status for p in done] == [Status.READY, Status.SKIPPED, Status.READY]
    assert seen[0].startswith("a=running b=waiting c=waiting")


def test_a_stage_young_in_age_is_not_ready() -> None:
    stage = Stage(id="a", title="A", after=(), budget_s=60, successes=1, min_age_s=5)
    done, _ = _go([stage], {"a": Scripted([YES], [], "a")})
    assert done[0].since_s >= 1005.0


def test_a_wait_is_bounded_and_says_what_was_missing() -> None:
    stage = Stage(id="a", title="A", after=(), budget_s=7)
    with pytest.raises(StageFailed, match="not ready within 7 s: not yet"):
        _go([stage], {"a": Scripted([NO], [], "a")})


def test_a_fatal_answer_ends_the_wait_at_once() -> None:
    stage = Stage(id="a", title="A", after=(), budget_s=1e6)
    with pytest.raises(StageFailed, match="it is broken"):
        _go([stage], {"a": Scripted([NO, Outcome(False, "it is broken", fatal=True)], [], "a")})


def test_a_stage_that_may_degrade_lets_the_rest_go_on() -> None:
    log: list[str] = []
    stages = [
        Stage(id="a", title="A", after=(), budget_s=3, if_fails="degrade"),
        Stage(id="b", title="B", after=("a",), budget_s=3, successes=1),
    ]
    done, _ = _go(stages, {"a": Scripted([NO], log, "a"), "b": Scripted([YES], log, "b")})
    assert [p.status for p in done] == [Status.DEGRADED, Status.READY]


def test_what_cannot_begin_fails_with_its_reason() -> None:
    stage = Stage(id="a", title="A", after=(), budget_s=3)
    with pytest.raises(StageFailed, match="no such program"):
        _go([stage], {"a": Scripted([YES], [], "a", error="no such program")})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("schema: pdops/sequence/v1\nname: x\nstages: [{id: a, title: A, after: [b], budget_s: 1}]", "does not exist"),
        (
            "schema: pdops/sequence/v1\nname: x\nstages:\n- {id: a, title: A, after: [b], budget_s: 1}\n- {id: b, title: B, after: [a], budget_s: 1}",
            "wait for each other",
        ),
        (
            "schema: pdops/sequence/v1\nname: x\nstages: [{id: a, title: A, after: [], budget_s: 1, then: b}]",
            "cannot be used",
        ),
        ("schema: other\nstages: []", "not an order"),
        ("- 1", "cannot be used"),
    ],
)
def test_an_order_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(CatalogError, match=why):
        parse(text, "x.yaml")


def test_an_unknown_order_is_named() -> None:
    with pytest.raises(CatalogError, match=r"sideways\.yaml"):
        order("sideways")
