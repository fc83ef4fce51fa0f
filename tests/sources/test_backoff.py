"""Waits between tries of a target that does not answer."""

from __future__ import annotations

import random

import pytest

from pdops.sources.backoff import CAP_S, Backoff
from pdops.sources.fetch import CONNECT_TIMEOUT_S


def waits(interval_s: float, n: int = 12) -> list[float]:
    backoff = Backoff(interval_s, rng=random.Random(1))
    return [backoff.failed() for _ in range(n)]


def test_waits_grow_to_the_cap_and_are_not_all_alike() -> None:
    first, second, *rest = waits(0.25)
    assert first == 0.0
    assert 0.25 < second < 1.0
    assert max(rest) <= CAP_S * 1.15
    assert min(rest[-5:]) >= CAP_S * 0.85
    assert len(set(rest)) == len(rest)


def test_a_worker_that_returns_is_seen_within_5_s() -> None:
    assert max(waits(1.0, 200)) + CONNECT_TIMEOUT_S <= 5.0


def test_an_interval_longer_than_the_cap_is_the_wait() -> None:
    assert max(waits(15.0)) <= 15.0 * 1.15


def test_an_answer_forgets_the_failures() -> None:
    backoff = Backoff(1.0)
    for _ in range(2_000):
        backoff.failed()
    backoff.answered()
    assert backoff.failed() == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_two_targets_do_not_keep_step(seed: int) -> None:
    one, other = Backoff(1.0, rng=random.Random(seed)), Backoff(1.0, rng=random.Random(seed + 100))
    assert [one.failed() for _ in range(5)][1:] != [other.failed() for _ in range(5)][1:]
