"""What is typed at prompts."""

from __future__ import annotations

import pytest

from pdops.model.cluster import Slo
from pdops_tui.asked import duration, parse_moment, parse_promise, promise_text
from pdops_tui.snapshot import Command, Position

NOW = Slo(ttft_s=1.0, itl_s=0.05)
START_S = 1_795_000_000.0  # 2026-11-18T11:06:40Z
HERE = Position(index=1, start_s=START_S, at_s=START_S, end_s=START_S + 600)


@pytest.mark.parametrize("slo", [NOW, Slo(), Slo(ttft_s=0.25, itl_s=1.5, percentile=0.99, attainment=0.999)])
def test_a_promise_is_offered_as_it_can_be_typed(slo: Slo) -> None:
    assert parse_promise(promise_text(slo), Slo()) == slo


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ttft=250ms", Slo(ttft_s=0.25, itl_s=0.05)),
        ("TTFT=2s, itl=-", Slo(ttft_s=2.0)),
        ("p=0.99", Slo(ttft_s=1.0, itl_s=0.05, percentile=0.99)),
        ("p=p99 attainment=90", Slo(ttft_s=1.0, itl_s=0.05, percentile=0.99, attainment=0.9)),
        ("  ", None),
    ],
)
def test_what_is_not_typed_stays(text: str, wanted: Slo | None) -> None:
    assert parse_promise(text, NOW) == wanted


@pytest.mark.parametrize(
    "text", ["1s", "ttft", "ttft=", "ttft=0", "ttft=-1s", "ttft=1x", "p=0", "p=100", "p=high", "latency=1s", "p=nan"]
)
def test_what_cannot_be_read_says_which_word(text: str) -> None:
    with pytest.raises(ValueError, match=text.split("=")[0]):
        parse_promise(text, NOW)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("90", Command("offset", 90.0)),
        ("+1.5m", Command("offset", 90.0)),
        ("-30", Command("offset", -30.0)),
        ("-0", Command("offset", -0.0)),
        ("50%", Command("fraction", 0.5)),
        ("11:07", Command("seek", START_S + 20)),
        ("11:06", Command("seek", START_S)),
        ("11:08:10Z", Command("seek", START_S + 90)),
        ("2026-11-18T11:07:00Z", Command("seek", START_S + 20)),
    ],
)
def test_moments(text: str, wanted: Command) -> None:
    assert parse_moment(text, HERE) == wanted


@pytest.mark.parametrize(
    "text", ["", "soon", "700", "12:44", "25:00", "120%", "--5", "2025-01-01T00:00:00Z", "1:2:3:4"]
)
def test_what_is_no_moment_of_the_recording_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text, HERE)


def test_a_time_of_day_after_midnight_is_of_the_next_day() -> None:
    late = Position(index=1, start_s=START_S + 46_000, at_s=START_S + 46_000, end_s=START_S + 47_000)  # 23:53:20
    assert parse_moment("00:05", late) == Command("seek", START_S + 46_700)


def test_durations() -> None:
    found = [duration(text) for text in ("1", "1us", "1ms", "1s", "1m", "1h", "", "1d", "-1")]
    assert found == [1.0, 1e-6, 1e-3, 1.0, 60.0, 3600.0, None, None, None]
