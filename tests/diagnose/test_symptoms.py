"""What a person on call sees first, and what the ebb and flow of load makes look so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdops.diagnose.context import Context
from pdops.diagnose.symptoms import picture
from pdops.model.frame import Event, EventKind
from pdops.model.report import Symptom
from pdops.model.series import Window
from pdops.model.view import View
from tests.diagnose.build import BASE_S, NOW_S, STEP_S, but, sound, view


def finished(before: tuple[float, float], now: float) -> View:
    """Return a live View of requests that finish per minute: two rates in turns, then another in the last minute."""
    points, total = [], 0.0
    for step in range(int(BASE_S / STEP_S) + 1):
        t = -BASE_S + step * STEP_S
        points.append((t, total))
        total += (now if t >= -60.0 else before[int((t + BASE_S) // 60.0) % 2]) * STEP_S / 60.0
    given = but(sound(), {"client": {"request_success": points}, "prefill-0": {"prompt_tokens": (240_000, 120_000)}})
    live = view(series=given)
    return replace(live, relative=False, now=Window(-60.0, 0.0), base=Window(-BASE_S, -NOW_S))


@pytest.mark.parametrize(
    ("before", "now", "falls"), [((100, 100), 60, True), ((140, 60), 60, False), ((100, 100), 85, False)]
)
def test_goodput_falls_only_below_what_its_own_bursts_make(
    before: tuple[float, float], now: float, falls: bool
) -> None:
    assert (Symptom.GOODPUT in picture(Context(finished(before, now))).symptoms) is falls


@pytest.mark.parametrize(("now", "falls"), [(60.0, True), (90.0, False)])
def test_of_a_young_past_its_thirds_tell(now: float, falls: bool) -> None:
    short = replace(finished((100, 100), now), base=Window(-NOW_S, -NOW_S / 2))
    assert (Symptom.GOODPUT in picture(Context(short)).symptoms) is falls


def test_failures_beside_successes_that_nobody_tells_are_no_share() -> None:
    given = but(sound(), {"client": {"request_failure": (0, 5), "request_success": None}})
    untold = but(given, {"decode-0": {"request_success": None}})
    assert Context(view(series=untold)).error_share().value is None
    decode = but(given, {"decode-0": {"request_success": (0, 95)}})
    assert Context(view(series=decode)).error_share().value == pytest.approx(0.05)


@pytest.mark.parametrize("kind", [EventKind.SCALE_OUT, EventKind.SCALE_IN, EventKind.ROLLOUT])
def test_a_worker_that_joins_leaves_or_was_replaced_skews_nothing(kind: EventKind) -> None:
    uneven = but(sound(1, 2), {"decode-0": {"running_requests": 20.0}, "decode-1": {"running_requests": 1.0}})
    workers = ("prefill-0", "decode-0", "decode-1")
    assert Symptom.SKEW in picture(Context(view(workers=workers, series=uneven))).symptoms
    planned = view(workers=workers, series=uneven, events=[Event(t_s=-30.0, kind=kind, worker="decode-1")])
    assert Symptom.SKEW not in picture(Context(planned)).symptoms
