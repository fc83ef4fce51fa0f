"""Peers: one of many that lies apart is named, most that lie apart are not, and four are too few to say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.diagnose.context import Context
from pdops.diagnose.deviance import spread
from pdops.model.cluster import Role
from pdops.model.series import Reading, Window
from pdops.stats.robust import outliers
from tests.diagnose.build import view


def ask(values: list[float]) -> tuple[int, list[str]]:
    names = [f"decode-{i:02}" for i in range(len(values))]
    ctx = Context(view(workers=names, series={n: {"queue_depth": v} for n, v in zip(names, values, strict=True)}))

    def level(scope: str, window: Window | None) -> Reading:
        return ctx.ask.level(scope, "queue_depth", window)

    made = spread(ctx, level, Role.DECODE, floor=0.1)
    return made.n, [d.unit for d in made.deviants]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([1, 1, 1, 1, 9], ["decode-04"]),
        ([1, 1, 1, 9], []),
        ([1, 1, 1, 1, 1, 1, 9, 9], ["decode-06", "decode-07"]),
        ([1, 1, 1, 9, 9, 9], []),
        ([1, 1.1, 0.9, 1, 1.05, 1.2], []),
        ([5, 5, 5, 5, 0], ["decode-04"]),
    ],
)
def test_who_lies_apart(values: list[float], named: list[str]) -> None:
    assert ask(values) == (len(values), named)


@given(st.lists(st.floats(0.9, 1.1), min_size=5, max_size=40), st.floats(10.0, 1e6))
def test_one_far_value_is_found_among_any_number(values: list[float], far: float) -> None:
    keyed = {str(i): v for i, v in enumerate([*values, far])}
    assert list(outliers(keyed, 0.1)) == [str(len(values))]


@given(st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=30), st.floats(-1e3, 1e3))
def test_where_zero_lies_does_not_matter(values: list[float], offset: float) -> None:
    one = outliers({str(i): float(round(v)) for i, v in enumerate(values)}, 1.0)
    other = outliers({str(i): float(round(v)) + round(offset) for i, v in enumerate(values)}, 1.0)
    assert set(one) == set(other)
    assert 3 * len(one) <= max(1, len(values))
