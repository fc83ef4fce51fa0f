"""telemetry/corrupt-sum: a sum that falls while its count does not makes the mean unknown."""

from __future__ import annotations

from pdops.diagnose.finding import Status
from pdops.history.readings import Readings
from pdops.model.series import HistogramSeries
from pdops.model.view import View
from tests.diagnose.build import ask, but, golden, histogram, one, sound, view

ID = "telemetry/corrupt-sum"


def queue(sums: list[float] | None) -> HistogramSeries:
    return histogram([0.1, 1.0], {0.05: 100}, {0.05: 50}, sums=sums)


def seen(sums: list[float] | None) -> View:
    given = {"prefill-0": {"queue_seconds.mean": None, "queue_seconds": queue(sums)}}
    return view(series=but(sound(), given))


def test_names_the_histogram_and_its_owner() -> None:
    found = one(ask(ID, seen([0.0, 5.0, -3.0])), Status.UNKNOWN)
    assert found.cause == "observability"
    assert found.missing[0].signal == "queue_seconds"
    assert str(found.scopes[0]) == "prefill-0"


def test_is_silent_on_a_sum_that_grows_or_stays() -> None:
    assert ask(ID, seen(None)) == ()
    assert ask(ID, seen([0.0, 5.0, 5.0])) == ()


def test_the_least_fall_counts_and_rounding_does_not() -> None:
    assert ask(ID, seen([0.0, 5.0, 5.0 - 1e-10])) == ()
    assert len(ask(ID, seen([0.0, 5.0, 5.0 - 1e-8]))) == 1


def test_a_restart_is_no_corruption() -> None:
    made = queue([0.0, 50.0, 4.0])
    restarted = HistogramSeries(made.bounds, made.t, made.counts, made.sum_t, made.sum, made.total * [0, 1, 0.1])
    given = {"prefill-0": {"queue_seconds.mean": None, "queue_seconds": restarted}}
    assert ask(ID, view(series=but(sound(), given))) == ()


def test_nothing_is_said_where_there_is_no_histogram() -> None:
    assert ask(ID, view(series=sound())) == ()


def test_the_mean_is_not_known_and_the_report_says_why() -> None:
    one_view = seen([0.0, 5.0, -3.0])
    assert not Readings(one_view).mean("prefill-0", "queue_seconds").known
    report = golden(ID, one_view)
    assert "queue_seconds" in [m.signal for m in report.missing]
    stage = report.ttft[0]
    assert (stage.stage, stage.seconds) == ("prefill_queue", None)
    assert stage.why is not None
    assert "corrupt" in stage.why
