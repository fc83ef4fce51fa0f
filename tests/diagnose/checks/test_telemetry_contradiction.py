"""telemetry/contradiction: what cannot be is named, what is only unusual is not."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from pdops.model.view import View
from tests.diagnose.build import Given, ask, but, causes, golden, histogram, one, sound, view

ID = "telemetry/contradiction"


def counted(client: float, engines: float) -> View:
    changes: Given = {
        "client": {"request_success": (2 * client, client)},
        "decode-0": {"request_success": (2 * engines, engines)},
    }
    return view(series=but(sound(), changes))


def test_the_router_answers_more_than_the_engines_finished() -> None:
    found = one(ask(ID, counted(600, 400)))
    assert (found.cause, found.verdict) == ("telemetry-gap", Verdict.UNKNOWN)
    assert "inventory" in found.next[0]


@pytest.mark.parametrize(("client", "engines"), [(600, 600), (600, 500), (400, 600), (40, 10)])
def test_is_silent_where_nothing_is_impossible(client: float, engines: float) -> None:
    assert ask(ID, counted(client, engines)) == ()


def test_names_the_pool_that_holds_less_than_its_times_say() -> None:
    took = histogram([1.0, 30.0], {20.0: 1200}, {20.0: 600})
    found = one(ask(ID, view(series=but(sound(), {"decode-0": {"e2e_seconds": took}}))))
    assert [str(s) for s in found.scopes] == ["pool decode"]


def test_says_nothing_without_data() -> None:
    assert causes(ask(ID, view(series={}))) == []
    assert causes(ask(ID, view(series=sound()))) == []


def test_the_report_is_unknown_and_says_what_to_look_at() -> None:
    report = golden(ID, counted(600, 400))
    assert report.verdict is Verdict.UNKNOWN
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("telemetry-gap", ID)
