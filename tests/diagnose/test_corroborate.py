"""Votes that no check casts alone: the load, the laws and the shapes, each in the group of what says the same."""

from __future__ import annotations

import numpy as np
import pytest

from pdops.catalog.load import catalog
from pdops.diagnose import corroborate as room
from pdops.diagnose.context import Context
from pdops.diagnose.corroborate import corroborate
from pdops.diagnose.finding import CheckMeta, Finding, Status, Tier, clear
from pdops.model.series import HistogramSeries
from pdops.model.view import View
from tests.diagnose.build import Given, histogram, view
from tests.diagnose.test_conditioned import SINCE, T, decode, prefill, wave
from tests.diagnose.test_physics import counted, moved, ttft

META = CheckMeta(id="pair/x", title="x", causes=(), needs=(), tier=Tier.STAGE)


def votes(seen: View, cause: str) -> tuple[list[str], list[str]]:
    """Return the groups that vote for and against a cause that fired without evidence of its own."""
    ((_, one),) = corroborate(Context(seen), [(META, Finding(status=Status.FIRED, cause=cause))])
    return [w.group for w in one.for_], [w.group for w in one.against]


def test_the_same_work_taking_longer_speaks_for_a_slow_worker_and_against_the_load() -> None:
    work = wave(3, 1000.0)
    seen = prefill(work, work * 2e-4 * np.where(T > SINCE, 1.6, 1.0))
    assert votes(seen, "prefill-slow-worker") == (["slow"], [])
    assert votes(seen, "workload-shift") == ([], ["slow"])


def test_more_work_speaks_for_the_load_and_against_a_slow_worker() -> None:
    batch = wave(5, 20.0) * np.where(T > SINCE, 1.3, 1.0)
    seen = decode(batch, 0.001 * batch)
    assert votes(seen, "decode-undersized") == (["batch"], [])
    assert votes(seen, "decode-slow-worker") == ([], ["batch"])


def test_far_more_work_than_before_takes_nothing_from_the_load() -> None:
    batch = wave(5, 20.0) * np.where(T > SINCE, 3.0, 1.0)
    seen = decode(batch, 0.001 * batch * np.where(T > SINCE, 2.0, 1.0))
    assert votes(seen, "decode-undersized") == ([], [])


@pytest.mark.parametrize(
    ("seen", "cause", "expected"),
    [
        (ttft(1.0, 0.2, 0.2), "router-fault", (["legs"], [])),
        (ttft(1.0, 0.5, 0.4), "router-fault", ([], ["legs"])),
        (counted(240, 300), "router-fault", (["counts"], [])),
        (moved(1.6e9, 1.6e9, 10_000, 1e5), "transport-error", (["tokens-bytes"], [])),
    ],
)
def test_laws_vote(seen: View, cause: str, expected: tuple[list[str], list[str]]) -> None:
    assert votes(seen, cause) == expected


def gaps(now: dict[float, float]) -> View:
    made: HistogramSeries = histogram([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64], {0.015: 2000}, now)
    given: Given = {"decode-0": {"itl_seconds": made}}
    return view(series=given)


def test_a_part_that_stands_apart_speaks_for_one_slow_worker() -> None:
    assert votes(gaps({0.015: 800, 0.3: 200}), "decode-slow-worker") == (["shape"], [])
    assert votes(gaps({0.03: 1000}), "decode-slow-worker") == ([], [])
    assert votes(gaps({0.015: 1000}), "decode-slow-worker") == ([], [])


def test_only_what_fired_gets_votes() -> None:
    seen = counted(240, 300)
    quiet = (META, clear("router-fault", "it is well"))
    assert corroborate(Context(seen), [quiet]) == [quiet]
    other = (META, Finding(status=Status.FIRED, cause="engine-crash"))
    assert corroborate(Context(seen), [quiet, other]) == [quiet, other]


def test_votes_name_causes_that_exist() -> None:
    named = room._HANGS.union(*(b.slow | b.loaded for b in room._BY_SIGNAL.values()))
    assert named <= set(catalog().causes)
