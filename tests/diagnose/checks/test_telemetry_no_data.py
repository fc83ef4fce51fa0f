"""telemetry/no-data: a worker that says nothing, or nothing fresh, is never healthy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdops.diagnose.engine import diagnose
from pdops.diagnose.finding import Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Symptom, Verdict
from pdops.model.view import Health, Presence, View
from tests.diagnose.build import ask, golden, one, sound, view

ID = "telemetry/no-data"


def seen(presence: Presence, age_s: float | None = 90.0, why: str | None = "nothing heard for 90 s") -> View:
    health = {"decode-1": Health(presence, age_s, why)}
    return view(workers=("prefill-0", "decode-0", "decode-1"), series=sound(1, 2), health=health)


def test_fires_on_stale_and_on_never_seen() -> None:
    for presence in (Presence.STALE, Presence.NEVER):
        found = one(ask(ID, seen(presence)))
        assert (found.cause, found.verdict) == ("telemetry-gap", Verdict.UNKNOWN)
        assert [str(s) for s in found.scopes] == ["decode-1"]
        assert found.missing[0].why == "nothing heard for 90 s"
        assert found.missing[0].fix


def test_is_silent_when_all_are_heard() -> None:
    assert ask(ID, view(series=sound())) == ()


def test_a_worker_that_is_down_is_another_matter() -> None:
    assert ask(ID, seen(Presence.DOWN)) == ()


def test_an_age_that_is_not_known_is_told_as_such() -> None:
    found = one(ask(ID, seen(Presence.NEVER, None, None)))
    assert found.for_[0].evidence.observed is None
    assert found.missing[0].why == "no data"


@pytest.mark.parametrize("decode", [Presence.DOWN, Presence.NEVER, Presence.STALE])
def test_where_nothing_answers_nobody_is_accused_and_this_side_is_looked_at_first(decode: Presence) -> None:
    names = {"prefill-0": Presence.NEVER, "decode-0": decode, "router-0": Presence.DOWN, "store-0": Presence.DOWN}
    health = {
        name: Health(presence, 40.0, "no connection; next try in 2.3 s", -40.0) for name, presence in names.items()
    }
    downs = [
        Event(t_s=-40.0 + n, kind=EventKind.DOWN, worker=name, detail="no connection") for n, name in enumerate(names)
    ]
    seen = view(workers=names, series=sound(), health=health, events=downs)
    report = diagnose(seen)
    assert report.verdict is Verdict.UNKNOWN
    assert [h.cause for h in report.hypotheses] == ["telemetry-gap"]
    assert report.hypotheses[0].next[0].startswith("nothing answers: look from here first")
    assert {m.scope.id for m in report.missing if m.signal == "all signals" and m.scope} == set(names)
    assert {m.why for m in report.missing if m.signal == "all signals"} == {"no connection"}
    assert all("next try" not in step for step in report.hypotheses[0].next)
    one_answers = diagnose(
        replace(seen, health={**health, "prefill-0": Health(Presence.UP, 1.0)}, events=tuple(downs[1:]))
    )
    assert "decode-down" in {h.cause for h in one_answers.hypotheses}


def test_a_gap_never_ends_as_healthy() -> None:
    report = golden(ID, seen(Presence.STALE))
    assert report.verdict is Verdict.UNKNOWN
    assert Symptom.NO_DATA in report.symptoms
    assert report.top is not None
    assert report.top.check == ID
    assert not [f for f in ask(ID, seen(Presence.STALE)) if f.status is Status.CLEAR]
