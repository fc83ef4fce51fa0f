"""Sixty fixed episodes, played whenever the tests are: the benchmark runs, repeats itself, and pdops beats guessing."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

import pytest

from pdops.bench import scores
from pdops.bench.episodes import Episode, plan
from pdops.bench.grid import kinds
from pdops.bench.outcome import Outcome
from pdops.bench.play import FIRST_JUDGED_S, play
from pdops.bench.run import run
from pdops.bench.scores import PDOPS

pytestmark = [pytest.mark.timeout(600), pytest.mark.first]
EPISODES = plan("develop", 60, given=kinds(), seed=20, topologies=("1P1D", "2P6D"))
WATCHED = EPISODES[::6]
"""Watching an episode from its start to its end takes ten times as long as the answers that are scored."""
JOBS = min(2, os.cpu_count() or 1)


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return _played(EPISODES, watched=False)


@pytest.fixture(scope="module")
def watched() -> list[Outcome]:
    return _played(WATCHED, watched=True)


def _played(episodes: Sequence[Episode], *, watched: bool) -> list[Outcome]:
    results = run(episodes, JOBS, watched=watched)
    assert results.failed == []
    return results.outcomes


def test_every_episode_is_played_and_judged(outcomes: list[Outcome]) -> None:
    assert [o.name for o in outcomes] == [e.name for e in EPISODES]
    assert all(PDOPS in o.said and o.features for o in outcomes)


def test_most_faults_are_noticed_by_clients_and_most_look_alikes_are_not(outcomes: list[Outcome]) -> None:
    states = [o.state for o in outcomes]
    assert states.count("fault") >= 28
    assert states.count("healthy") >= 14


def test_no_healthy_second_is_counted_twice(watched: list[Outcome]) -> None:
    sound = [(o.healthy_s, e.until_s - FIRST_JUDGED_S) for o, e in zip(watched, WATCHED, strict=True) if e.sound]
    assert sound
    assert all(watched_s <= span_s for watched_s, span_s in sound)


def test_an_episode_played_again_gives_the_same_answers(watched: list[Outcome]) -> None:
    episode = min(WATCHED, key=lambda e: (e.topology, e.number))
    again = dataclasses.replace(play(episode), diagnose_s=None, play_s=0.0)
    first = next(o for o in watched if o.name == episode.name)
    assert repr(again) == repr(dataclasses.replace(first, diagnose_s=None, play_s=0.0))


def test_answers_alone_are_those_of_a_watched_episode(outcomes: list[Outcome], watched: list[Outcome]) -> None:
    alone = {o.name: o for o in outcomes}
    for first in watched:
        assert alone[first.name].said == first.said, first.name
        assert (alone[first.name].healthy_s, alone[first.name].delay_s) == (0.0, None)


def test_every_answer_of_every_method_can_be_scored(outcomes: list[Outcome]) -> None:
    for method in scores.methods(outcomes):
        scored = scores.score(outcomes, method)
        assert scored.top1.value is not None
        assert 0.0 <= scored.top1.value <= 1.0


def test_pdops_does_no_worse_than_the_written_matrix(outcomes: list[Outcome]) -> None:
    ours, theirs = (scores.score(outcomes, m).top1.value for m in (PDOPS, "matrix"))
    assert ours is not None
    assert theirs is not None
    assert ours >= theirs
