"""host/memory-growth: a straight line of more than 100 MB a minute, with KV flat."""

from __future__ import annotations

import numpy as np
import pytest

from pdops.diagnose.finding import Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, groups, one, restart, sound, view, worker

ID = "host/memory-growth"
LINE = list[tuple[float, float]]


def ramp(mb_per_min: float, since_s: float = -900) -> LINE:
    return [(float(t), 20e9 + mb_per_min * 1e6 / 60 * (t - since_s)) for t in np.arange(since_s, 1, 15)]


def grows(memory: LINE, kv: tuple[float, float] | None = (0.4, 0.4)) -> Given:
    return but(sound(), {"decode-0": {"host_memory_bytes": memory, "kv_cache_usage": kv}})


@pytest.mark.parametrize(("mb_per_min", "fires"), [(99.0, False), (101.0, True)])
def test_a_hundred_megabytes_a_minute(mb_per_min: float, fires: bool) -> None:
    found = ask(ID, view(series=grows(ramp(mb_per_min))))
    assert causes(found) == (["host-mem-leak"] if fires else [])
    assert bool(causes(found, Status.CLEAR)) is not fires


@pytest.mark.parametrize(("now", "flat"), [(0.5, True), (0.51, False)])
def test_kv_that_grows_too_speaks_against_a_leak(now: float, flat: bool) -> None:
    found = one(ask(ID, view(series=grows(ramp(300), (0.4, now)))))
    assert ("kv" in groups(found)) is flat
    assert bool(found.against) is not flat


def test_without_kv_usage_something_is_missing() -> None:
    found = one(ask(ID, view(series=grows(ramp(300), None))))
    assert [m.signal for m in found.missing] == ["kv_cache_usage"]


def test_a_step_is_no_slope() -> None:
    step = [(float(t), 20e9 + (5e9 if t > -450 else 0)) for t in np.arange(-900, 1, 15)]
    assert ask(ID, view(series=grows(step))) == ()


@pytest.mark.parametrize(("since_s", "known"), [(-285, False), (-300, True)])
def test_five_minutes_are_needed(since_s: float, known: bool) -> None:
    found = ask(ID, view(series=grows(ramp(300, since_s))))
    assert bool(causes(found)) is known
    assert bool(causes(found, Status.UNKNOWN)) is not known


def test_a_process_that_has_just_started_still_fills() -> None:
    found = one(ask(ID, view(series=grows(ramp(300)), events=[restart("decode-0", -500)])), Status.UNKNOWN)
    assert "started" in found.missing[0].why


def test_a_store_may_fill_its_memory() -> None:
    workers = (worker("prefill-0"), worker("decode-0"), worker("store-0"))
    given = but(sound(), {"store-0": {"host_memory_bytes": ramp(900)}})
    assert ask(ID, view(workers=workers, series=given)) == ()


def test_without_memory_it_says_nothing() -> None:
    assert ask(ID, view(series=sound())) == ()


def test_report() -> None:
    report = golden(ID, view(series=grows(ramp(240))))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, [str(s) for s in report.top.scopes]) == ("host-mem-leak", ["decode-0"])
