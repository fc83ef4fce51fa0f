"""The place of a fault: one link, a slow receiver or sender, a node, a zone, a pool, or everything."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.diagnose.context import Context
from pdops.diagnose.place import place
from pdops.model.report import Scope
from tests.diagnose.build import view, worker

P, D = ("prefill-0", "prefill-1"), ("decode-0", "decode-1", "decode-2")
GRID = {f"pair:{p}>{d}": {"kv_transfer_bandwidth.mean": 1e9} for p in P for d in D}
PLACED = tuple(
    worker(name, node=f"n{i % 2}", zone=f"z{i // 4}")
    for i, name in enumerate(("prefill-0", "prefill-1", "prefill-2", "prefill-3", "decode-0", "decode-1", "decode-2"))
)


def pairs(*names: str) -> list[Scope]:
    return [Scope("pair", n) for n in names]


def workers(*names: str) -> list[Scope]:
    return [Scope("worker", n) for n in names]


def of_grid(scopes: list[Scope]) -> list[str]:
    return [str(s) for s in place(Context(view(workers=(*P, *D), series=GRID)), scopes)]


def placed(scopes: list[Scope]) -> list[str]:
    return [str(s) for s in place(Context(view(workers=PLACED)), scopes)]


def test_one_link_is_a_link() -> None:
    assert of_grid(pairs("prefill-0>decode-1")) == ["prefill-0>decode-1"]


def test_two_links_without_a_common_end_are_two_links() -> None:
    assert of_grid(pairs("prefill-0>decode-1", "prefill-1>decode-2")) == ["prefill-0>decode-1", "prefill-1>decode-2"]


def test_all_links_of_a_receiver_are_the_receiver() -> None:
    assert of_grid(pairs("prefill-1>decode-1", "prefill-0>decode-1")) == ["decode-1"]


def test_all_links_of_a_sender_are_the_sender() -> None:
    assert of_grid(pairs(*(f"prefill-0>{d}" for d in D))) == ["prefill-0"]


def test_a_receiver_and_a_link_beside_it() -> None:
    accused = pairs("prefill-0>decode-1", "prefill-1>decode-1", "prefill-0>decode-0")
    assert of_grid(accused) == ["decode-1", "prefill-0>decode-0"]


def test_all_links_are_everywhere() -> None:
    assert of_grid(pairs(*(f"{p}>{d}" for p in P for d in D))) == ["global test"]


def test_with_a_single_sender_all_its_links_are_the_sender() -> None:
    series = {f"pair:prefill-0>{d}": {"kv_transfer_bandwidth.mean": 1e9} for d in D}
    ctx = Context(view(workers=("prefill-0", *D), series=series))
    assert [str(s) for s in place(ctx, pairs(*(f"prefill-0>{d}" for d in D)))] == ["prefill-0"]


@pytest.mark.parametrize(
    ("accused", "named"),
    [
        (["prefill-1"], ["prefill-1"]),
        (["prefill-1", "decode-0"], ["prefill-1", "decode-0"]),
        (["decode-0", "decode-1", "decode-2"], ["pool decode", "zone z1"]),
        (["prefill-0", "prefill-1", "prefill-2", "prefill-3"], ["pool prefill", "zone z0"]),
        (["prefill-0", "prefill-2", "decode-0", "decode-2"], ["node n0"]),
        (["prefill-1", "prefill-3", "decode-1", "decode-0"], ["prefill-1", "prefill-3", "decode-1", "decode-0"]),
    ],
)
def test_workers_that_are_all_of_something_are_it(accused: list[str], named: list[str]) -> None:
    assert placed(workers(*accused)) == named


def test_nodes_say_nothing_where_there_is_one() -> None:
    ctx = Context(view(workers=[worker(n, node="n0", zone="z0") for n in ("prefill-0", "decode-0", "decode-1")]))
    assert [str(s) for s in place(ctx, workers("prefill-0", "decode-0", "decode-1"))] == ["pool decode", "prefill-0"]
    assert [str(s) for s in place(ctx, workers("decode-0", "decode-1"))] == ["pool decode"]


def test_nothing_accused_is_the_cluster() -> None:
    assert placed([]) == ["global test"]


@given(st.sets(st.sampled_from([f"{p}>{d}" for p in P for d in D]), min_size=1), st.randoms(use_true_random=False))
def test_every_accused_link_is_covered_and_the_order_does_not_matter(bad: set[str], rng: random.Random) -> None:
    named = of_grid(pairs(*sorted(bad)))
    mixed = sorted(bad)
    rng.shuffle(mixed)
    assert of_grid(pairs(*mixed)) == named
    if named != ["global test"]:
        assert all(any(n == pair or n in pair.split(">") for n in named) for pair in bad)
