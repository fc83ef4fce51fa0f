"""The matrix of samples: gaps stay gaps, snapshots stay as they were, memory stays bounded."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pdops.catalog.binding import Column
from pdops.history.columns import ColumnStore

A, B, C = (Column("", name) for name in ("queue_depth", "running_requests", "kv_cache_usage"))


def put(store: ColumnStore, t: float, **values: float) -> None:
    named = {"a": A, "b": B, "c": C}
    columns = tuple(named[k] for k in values)
    store.append(t, store.places(columns), np.array(list(values.values())))


def pairs(store: ColumnStore, column: Column) -> list[tuple[float, float]]:
    t, v = store.rows().column(store.find(column))
    return list(zip(t.tolist(), v.tolist(), strict=True))


def test_a_missing_sample_is_absent() -> None:
    store = ColumnStore(10)
    put(store, 1, a=1, b=10)
    put(store, 2, b=20)
    put(store, 3, a=3, b=float("nan"))
    assert pairs(store, A) == [(1, 1), (3, 3)]
    assert pairs(store, B) == [(1, 10), (2, 20)]
    assert pairs(store, C) == []


def test_a_column_that_comes_later_has_no_past() -> None:
    store = ColumnStore(10)
    put(store, 1, a=1)
    put(store, 2, a=2, c=0.5)
    assert pairs(store, C) == [(2, 0.5)]
    assert pairs(store, A) == [(1, 1), (2, 2)]
    assert store.columns == (A, C)


def test_a_matrix_has_the_rows_where_all_are_there() -> None:
    store = ColumnStore(10)
    put(store, 1, a=1, b=10)
    put(store, 2, b=20)
    put(store, 3, a=3, b=30)
    t, v = store.rows().matrix(store.places((B, A)))
    assert (t.tolist(), v.tolist()) == ([1, 3], [[10, 1], [30, 3]])
    assert [x.tolist() for x in store.rows().both(store.find(B), store.find(A))] == [[1, 3], [10, 30], [1, 3]]
    assert [len(x) for x in store.rows().both(store.find(A), store.find(C))] == [0, 0, 0]
    with_none = store.places((A, C))
    assert store.rows().matrix(with_none)[1].shape == (0, 2)


def test_rows_handed_out_stay_what_they_were() -> None:
    store = ColumnStore(4)
    put(store, 1, a=1)
    early = store.rows()
    kept = early.column(store.find(A))
    for t in range(2, 400):
        put(store, t, a=t, b=-t)
    assert [x.tolist() for x in kept] == [[1], [1]]
    assert [x.tolist() for x in early.column(store.find(A))] == [[1], [1]]
    assert early.column(store.find(B))[0].tolist() == []


def test_rows_that_come_seldom_are_not_kept_for_longer_than_those_that_come_often() -> None:
    store = ColumnStore(900, 900.0)
    most = 0
    for n in range(600):
        put(store, 10.0 * n, a=n)
        most = max(most, len(store))
        if n > 100:
            assert pairs(store, A)[0][0] <= 10.0 * n - 890.0
    assert most <= 128
    assert len(store._t) <= 128


@given(st.integers(4, 40), st.integers(1, 400))
def test_it_keeps_at_least_its_capacity_and_little_more(capacity: int, n: int) -> None:
    store = ColumnStore(capacity)
    for t in range(n):
        put(store, t, a=t)
    kept = pairs(store, A)
    assert list(kept[-1]) == [n - 1, n - 1]
    rows = len(kept)
    assert min(n, capacity) <= rows <= max(64, 1.25 * capacity)
    assert [t for t, _ in kept] == list(range(n - rows, n))
    assert len(store) == rows


@given(st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=200), st.integers(2, 30))
def test_what_is_read_is_what_was_written(rows: list[str], capacity: int) -> None:
    store = ColumnStore(capacity)
    for t, names in enumerate(rows):
        put(store, t, **{name: t + ord(name) for name in names})
    first = len(rows) - len(store)
    for name, column in (("a", A), ("b", B)):
        wanted = [(t, t + ord(name)) for t, names in enumerate(rows) if name in names and t >= first]
        assert pairs(store, column) == wanted


def test_the_newest_time() -> None:
    assert ColumnStore(5).last_t is None
    store = ColumnStore(5)
    put(store, 7, a=1)
    assert store.last_t == 7.0


def test_the_smallest_store_makes_room_too() -> None:
    store = ColumnStore(2)
    for t in range(70):
        put(store, t, a=t)
