"""Baselines find what is plainly there, and stay silent where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from pdops.bench.baselines import detect, learnt
from pdops.bench.baselines.ranking import alone, baro, n_sigma, with_onset
from pdops.bench.baselines.scoring import meanings
from pdops.bench.table import METRICS, Table
from tests.bench_diagnosis.made import cluster, outcome, said, table

BEGAN, LENGTH = 60, 80
rng = np.random.default_rng(1)


def _noise(level: float) -> np.ndarray:
    return level * (1 + 0.03 * rng.standard_normal(LENGTH))


def _stepped(level: float, factor: float) -> np.ndarray:
    line = _noise(level)
    line[BEGAN:] *= factor
    return line


def _cluster_table(*, slow: tuple[int, ...]) -> Table:
    lines = {("client", "client", "ttft_seconds"): _stepped(0.5, 6.0 if slow else 1.0)}
    for i in range(4):
        lines[f"decode-{i}", "decode", "kv_transfer_seconds"] = _stepped(0.05, 30.0 if i in slow else 1.0)
        lines[f"decode-{i}", "decode", "kv_cache_usage"] = _noise(0.4)
    lines["prefill-0", "prefill", "queue_depth"] = _noise(2.0)
    return table(lines)


@pytest.mark.parametrize("score", [baro, n_sigma])
def test_the_metric_that_moved_names_cause_and_worker(score) -> None:
    answer = with_onset(_cluster_table(slow=(2,)), cluster(), score, BEGAN * 5.0 - 1)
    assert answer.causes[0] == "transport-slow"
    assert [str(s) for s in answer.scopes[0]] == ["decode-2"]


def test_many_workers_that_moved_alike_are_their_pool() -> None:
    answer = with_onset(_cluster_table(slow=(0, 1, 2, 3)), cluster(), baro, BEGAN * 5.0 - 1)
    assert [str(s) for s in answer.scopes[0]] == ["pool decode"]


def test_the_onset_is_found_where_clients_began_to_feel_it() -> None:
    began = detect.onset(_cluster_table(slow=(1,)))
    assert began is not None
    assert abs(began - BEGAN * 5.0) <= 10.0


def test_without_an_onset_a_ranking_is_silent() -> None:
    quiet = _cluster_table(slow=())
    assert detect.onset(quiet) is None
    assert not alone(quiet, cluster(), baro).alarm


def test_a_table_of_nothing_is_no_answer() -> None:
    empty = Table((), np.empty(0), np.empty((0, 0)))
    assert detect.onset(empty) is None
    assert not alone(empty, cluster(), n_sigma).alarm


def test_every_mapped_metric_is_one_that_is_read() -> None:
    assert {metric for _, metric in meanings()} <= set(METRICS)


def _examples(count: int) -> list:
    found = []
    for i in range(count):
        healthy = i % 2 == 0
        features = (0.0 if healthy else 9.0, float(i % 3))
        state = "healthy" if healthy else "fault"
        found.append(outcome(i, said("x"), state=state, features=features))
    return found


def test_learners_tell_apart_what_their_features_tell_apart() -> None:
    train, test = _examples(60), list(_examples(8))
    answers = learnt.answers(train, test)
    assert [s.alarm for s in answers["forest"]] == [o.state == "fault" for o in test]
    assert answers["tree"][1].causes[0] == "prefill-down"


def test_learners_never_judge_what_they_have_learnt_from() -> None:
    # Each episode has a feature of its own, so only one that was learnt from could be told.
    given = [
        outcome(
            i,
            said("x"),
            state="fault",
            truth=((("prefill-down", "decode-down")[i % 2],),),
            features=(float(i * 97 % 61),),
        )
        for i in range(60)
    ]
    answers = learnt.answers(given, given)["forest"]
    right = sum(a.alarm and a.causes[0] == o.expected[0].causes[0] for a, o in zip(answers, given, strict=True))
    # A forest that has seen them gets 59 of the 60.
    assert right < 45
