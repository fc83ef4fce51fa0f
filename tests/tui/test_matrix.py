"""The P×D matrix as data: told values, silence, comparison, order and groups."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pdops.model.cluster import Cluster, Pair
from pdops.model.series import Kind, Series
from pdops.model.view import View
from pdops_tui.draw.line import plain
from pdops_tui.draw.matrix import matrix_pane
from pdops_tui.models.ask import Ask
from pdops_tui.models.matrix import MOST, best, matrix
from pdops_tui.models.pairs import IDLE
from pdops_tui.session import MATRIX_VALUES, MatrixWish
from tests.tui import build as b
from tests.tui.states import STATES


def given(who: Cluster, bandwidths: dict[str, float]) -> View:
    """Return a View in which pairs have a bandwidth and nothing else."""
    sound = b.view(b.cluster(1, 1, router=False), seconds=3)
    at = np.array([sound.at_s - 20, sound.at_s])
    series = {
        (Pair.parse(pair).key, "kv_transfer_bandwidth.mean"): (Series(Kind.GAUGE, at, np.array([value, value])),)
        for pair, value in bandwidths.items()
    }
    return dataclasses.replace(sound, cluster=who, series=series, relative=True)


def test_a_receiver_that_is_slow_from_all_is_named_and_not_its_senders() -> None:
    made = matrix(Ask(STATES["degraded"]().view, None), MatrixWish())
    assert [[c.mark for c in row] for row in made.cells] == [["", "X"], ["", "X"]]
    assert made.says == ("decode-1 is out of line with every sender it heard: the receiver's side",)
    assert (made.told, made.pairs) == (4, 4)


@pytest.mark.parametrize("value", [v for v in MATRIX_VALUES if v != "handoff"])
def test_without_a_source_that_knows_pairs_nothing_is_guessed(value: str) -> None:
    made = matrix(Ask(b.view(seconds=90), None), MatrixWish(value=value))  # type: ignore[arg-type]
    assert {c.text for row in made.cells for c in row} == {"?"}
    assert all("engines name no peer" in c.why for row in made.cells for c in row)
    assert made.received[0].sort is not None
    assert made.source.startswith("?")


def test_what_the_router_tells_by_pair_stands_in_where_nothing_else_is_told() -> None:
    made = best(Ask(b.view(seconds=90), None), MatrixWish())
    assert made.value == "handoff"
    assert made.cells[0][0].text != "?"
    assert made.cells[0][1].text == IDLE


def test_a_pair_that_its_receiver_never_counted_is_idle_not_unknown() -> None:
    made = matrix(Ask(given(b.cluster(2, 2, router=False), {"prefill-0>decode-0": 1e9}), None), MatrixWish())
    assert [[c.text for c in row] for row in made.cells] == [["1GB", "?"], [IDLE, "?"]]


def test_half_of_the_pairs_being_slow_does_not_make_slow_usual() -> None:
    who = b.cluster(2, 2, router=False)
    rates = {"prefill-0>decode-0": 8e9, "prefill-0>decode-1": 1e9, "prefill-1>decode-0": 7e9, "prefill-1>decode-1": 1e9}
    made = matrix(Ask(given(who, rates), None), MatrixWish())
    assert made.median == 7e9
    assert [c.mark for c in made.cells[1]] == ["", "X"]


def test_too_few_pairs_are_compared_with_nothing() -> None:
    rates = {"prefill-0>decode-0": 8e9, "prefill-0>decode-1": 1e9}
    made = matrix(Ask(given(b.cluster(1, 2, router=False), rates), None), MatrixWish(relative=True))
    assert made.median is None
    assert [c.text for c in made.cells[0]] == ["8GB", "1GB"]
    assert not any(c.mark for c in made.cells[0])


def test_worst_first_moves_rows_and_columns_with_their_edges() -> None:
    made = matrix(Ask(STATES["degraded"]().view, None), MatrixWish(worst_first=True))
    assert made.columns == ("decode-1", "decode-0")
    assert made.opens[0][0] == "prefill-0>decode-1"
    assert made.received[0].text == "140MB"


@pytest.mark.parametrize(
    ("nodes", "grouped"), [(4, "node"), (1, "inventory order")], ids=["several nodes", "all on one node"]
)
def test_large_clusters_are_grouped_and_the_worst_pairs_stay_in_sight(nodes: int, grouped: str) -> None:
    who = b.cluster(20, 20, router=False)
    workers = tuple(dataclasses.replace(w, node=f"n{i % nodes}", zone="z") for i, w in enumerate(who.workers))
    rates = {f"prefill-{p}>decode-{d}": 1e9 if d == 7 else 8e9 for p in range(20) for d in range(20)}
    view = given(dataclasses.replace(who, workers=workers), rates)
    made = matrix(Ask(view, None), MatrixWish())
    assert made.grouped == grouped
    assert len(made.rows) <= MOST
    assert len(made.columns) <= MOST
    assert all(name.endswith(">decode-7") for name, _, _ in made.worst)
    bad = [made.opens[i][j] for i, row in enumerate(made.cells) for j, c in enumerate(row) if c.mark]
    assert bad
    assert all(name.endswith(">decode-7") for name in bad)
    assert "decode-7" in plain(matrix_pane(best(Ask(view, None), MatrixWish()), 120, 6))


def test_pairs_without_a_transfer_are_idle_on_the_main_screen_too() -> None:
    view = given(b.cluster(2, 2, router=False), {"prefill-0>decode-0": 1e9})
    old = {
        key: tuple(Series(s.kind, s.t - 600.0, s.v) for s in found if isinstance(s, Series))
        for key, found in view.series.items()
    }
    made = best(Ask(dataclasses.replace(view, series=old), None), MatrixWish())
    assert made.told == 0
    assert IDLE in plain(matrix_pane(made, 80, 5))
    assert "no transfer in the window in any of 4 pairs" in plain(matrix_pane(made, 80, 1))


def test_no_pair_no_matrix() -> None:
    made = matrix(Ask(b.view(b.cluster(0, 2), seconds=3), None), MatrixWish())
    assert made.pairs == 0
    assert made.cells == ()
