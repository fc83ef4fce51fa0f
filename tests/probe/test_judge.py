"""Whatever else moved the counters, a right request is never called wrong and a wrong one never right."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdops.probe.counters import Moved
from pdops.probe.judge import counter_checks
from pdops.probe.report import Status
from tests.probe.doubles import BLOCK, KV_BYTES, blocks_bytes

others = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300)), max_size=3)
ours = st.integers(1, 300)


def _moved(parts: list[tuple[int, int, int]]) -> Moved:
    external, local = sum(p[0] for p in parts), sum(p[1] for p in parts)
    return Moved(
        worker="decode-0",
        prompt=float(sum(map(sum, parts))),
        external=float(external),
        local=float(local),
        bytes=float(sum(blocks_bytes(p[0]) for p in parts)),
        why={},
        block_size=BLOCK,
    )


@given(ours, others)
def test_a_pulled_prompt_is_never_wrong(n: int, rest: list[tuple[int, int, int]]) -> None:
    checks = counter_checks(_moved([(n, 0, 0), *rest]), n, KV_BYTES, unique=True)
    assert Status.WRONG not in {check.status for check in checks}
    if not any(map(sum, rest)):
        assert {check.status for check in checks} == {Status.OK}


@given(ours, others)
def test_a_computed_prompt_is_never_right(n: int, rest: list[tuple[int, int, int]]) -> None:
    external, local, _ = counter_checks(_moved([(0, n, 0), *rest]), n, KV_BYTES, unique=True)
    assert Status.OK not in {external.status, local.status}


@given(st.integers(1, 300), st.integers(1, 300), others)
def test_a_prompt_computed_in_part_is_never_right(pulled: int, computed: int, rest: list[tuple[int, int, int]]) -> None:
    moved = _moved([(pulled, computed, 0), *rest])
    _, local, _ = counter_checks(moved, pulled + computed, KV_BYTES, unique=True)
    assert local.status is not Status.OK


@given(st.integers(1, 20), st.integers(1, 300), others)
def test_a_template_in_the_cache_is_never_wrong(blocks: int, pulled: int, rest: list[tuple[int, int, int]]) -> None:
    cached = blocks * BLOCK
    checks = counter_checks(_moved([(pulled, 0, cached), *rest]), pulled + cached, KV_BYTES, unique=False)
    assert Status.WRONG not in {check.status for check in checks}
