"""Whom a fault hits, and when a named place is the right one."""

from __future__ import annotations

from random import Random

import pytest

from pdops.bench.targets import Names, covered, draw, same_place, scopes
from pdops.errors import CatalogError
from pdops.model.report import Scope
from tests.bench_diagnosis.made import cluster

NAMES = Names(
    prefill=tuple(f"prefill-{i}" for i in range(4)),
    decode=tuple(f"decode-{i}" for i in range(24)),
    zones=("zone-0", "zone-1"),
)
LONE = Names(prefill=("prefill-0",), decode=("decode-0",), zones=("zone-0",))


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("prefill", 1),
        ("decode:all", 24),
        ("decode:few", 4),
        ("prefill:0.5", 2),
        ("decode:share", 6),
        ("pair", 1),
        ("zone", 14),
        (None, 0),
    ],
)
def test_a_word_stands_for_that_many_names(word: str | None, count: int) -> None:
    hit = draw(word, {"share": 0.25}, NAMES, Random(1))
    assert len(hit) == count
    assert len(set(hit)) == count


def test_a_share_never_takes_the_whole_pool_but_a_pool_of_one() -> None:
    assert len(draw("prefill:share", {"share": 0.99}, NAMES, Random(1))) == 3
    assert draw("prefill:share", {"share": 0.99}, LONE, Random(1)) == ("prefill-0",)


def test_the_same_seed_hits_the_same_workers() -> None:
    assert draw("decode:0.5", {}, NAMES, Random(9)) == draw("decode:0.5", {}, NAMES, Random(9))


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(CatalogError, match="decoder"):
        draw("decoder", {}, NAMES, Random(1))


def test_where_workers_were_hit_nothing_else_is_right() -> None:
    listed = [{"worker": "chosen"}, {"pool": "decode"}, {"global": "all"}]
    found = scopes(listed, ("decode-1", "decode-2"), None, NAMES)  # type: ignore[arg-type]
    assert [str(s) for s in found] == ["decode-1", "decode-2"]
    found = scopes([{"worker": "hottest"}, {"pool": "prefill"}], (), "prefill-3", NAMES)
    assert [str(s) for s in found] == ["prefill-3"]


def test_a_shared_service_may_be_called_by_the_whole_cluster_and_not_by_a_pool() -> None:
    listed = [{"worker": "chosen"}, {"pool": "decode"}, {"global": "all"}]
    found = scopes(listed, ("router-0",), None, NAMES)  # type: ignore[arg-type]
    assert [s.kind for s in found] == ["worker", "global"]


def test_where_nobody_in_particular_was_hit_every_listed_place_is_right() -> None:
    found = scopes([{"global": "all"}, {"pool": "decode"}], (), None, NAMES)
    assert [s.kind for s in found] == ["global", "pool"]


def test_some_of_the_hit_workers_are_the_place_only_if_they_are_most_of_them() -> None:
    hit = tuple(Scope("worker", f"decode-{i}") for i in range(3))
    assert not same_place(hit[:1], hit[:2], cluster())
    assert same_place(hit[:2], hit, cluster())
    assert not same_place((Scope("pool", "decode"),), hit[:2], cluster())
    assert same_place((Scope("pool", "decode"),), hit, cluster())


def test_a_pair_is_not_called_by_one_of_its_ends() -> None:
    pair = (Scope("pair", "prefill-0>decode-0"),)
    assert same_place(pair, pair, cluster())
    assert not same_place((Scope("worker", "decode-0"),), pair, cluster())


def test_a_pool_of_one_worker_and_that_worker_are_the_same_place() -> None:
    small = cluster(1, 1)
    assert same_place((Scope("pool", "prefill"),), (Scope("worker", "prefill-0"),), small)
    assert not same_place((Scope("pool", "prefill"),), (Scope("worker", "prefill-0"),), cluster(2, 1))


def test_naming_everybody_is_not_an_answer() -> None:
    everybody = tuple(Scope("worker", f"decode-{i}") for i in range(4))
    assert not same_place(everybody, (Scope("worker", "decode-1"),), cluster())
    assert not same_place(everybody[:2], (Scope("worker", "decode-1"),), cluster())
    assert not same_place((), (Scope("worker", "decode-1"),), cluster())


def test_a_zone_and_the_whole_cluster_cover_their_workers() -> None:
    assert covered(Scope("zone", "zone-1"), cluster()) == {"decode-1", "decode-3"}
    assert len(covered(Scope("global", "all"), cluster())) == 6
    assert covered(Scope("pair", "prefill-0>decode-2"), cluster()) == {"prefill-0", "decode-2"}
