"""Which pair a policy chooses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.router.policies import policy
from pdops.router.settings import POLICIES


@dataclass
class Candidate:
    """A double of a worker."""

    id: str
    zone: str | None = None
    inflight: int = 0


def _pool(letter: str, count: int) -> list[Candidate]:
    return [Candidate(f"{letter}{n}") for n in range(count)]


@pytest.mark.parametrize(("prefills", "decodes"), [(1, 1), (2, 2), (2, 3), (3, 2), (4, 2)])
def test_round_robin_uses_every_pair_equally(prefills: int, decodes: int) -> None:
    chooser, ps, ds = policy("round-robin"), _pool("p", prefills), _pool("d", decodes)
    seen: Counter[tuple[str, str]] = Counter()
    for _ in range(6 * prefills * decodes):
        p, d = chooser.pick(ps, ds, "")
        assert p is not None
        seen[p.id, d.id] += 1
    assert set(seen.values()) == {6}
    assert len(seen) == prefills * decodes


def test_least_loaded_takes_the_fewest_legs() -> None:
    ps, ds = _pool("p", 3), _pool("d", 3)
    ps[0].inflight = ps[2].inflight = 2
    ds[0].inflight = ds[1].inflight = 1
    p, d = policy("least-loaded").pick(ps, ds, "")
    assert (p and p.id, d.id) == ("p1", "d2")


def test_equal_prompts_go_to_the_same_prefill_until_it_has_too_much() -> None:
    chooser, ps, ds = policy("prefix-affinity"), _pool("p", 4), _pool("d", 2)
    chosen = {p.id for p, _ in (chooser.pick(ps, ds, "same start") for _ in range(20)) if p}
    assert len(chosen) == 1
    home = next(p for p in ps if p.id in chosen)
    home.inflight = 10
    p, _ = chooser.pick(ps, ds, "same start")
    assert p is not None
    assert p is not home


def test_a_prefill_that_leaves_moves_only_its_own_prompts() -> None:
    chooser, ps, ds = policy("prefix-affinity"), _pool("p", 4), _pool("d", 1)
    keys = [f"prompt {n}" for n in range(200)]
    before = {k: chooser.pick(ps, ds, k)[0] for k in keys}
    assert len({p.id for p in before.values() if p}) == 4
    after = {k: chooser.pick(ps[:3], ds, k)[0] for k in keys}
    assert all(after[k] is before[k] for k in keys if before[k] is not ps[3])


def test_zone_aware_stays_in_the_zone_while_there_is_somebody() -> None:
    ps = [Candidate("p0", "a"), Candidate("p1", "b", inflight=5)]
    ds = [Candidate("d0", "a"), Candidate("d1", "b", inflight=5)]
    chooser = policy("zone-aware", "b")
    assert tuple(c and c.id for c in chooser.pick(ps, ds, "")) == ("p1", "d1")
    assert tuple(c and c.id for c in chooser.pick(ps[:1], ds, "")) == ("p0", "d0"), "decode follows prefill"
    assert tuple(c and c.id for c in chooser.pick(ps, ds[:1], "")) == ("p1", "d0")


@given(
    name=st.sampled_from(POLICIES),
    loads=st.tuples(st.lists(st.integers(0, 9), max_size=5), st.lists(st.integers(0, 9), min_size=1, max_size=5)),
    key=st.text(),
    turns=st.integers(1, 20),
)
def test_every_policy_chooses_among_those_it_was_given(
    name: str, loads: tuple[list[int], list[int]], key: str, turns: int
) -> None:
    ps = [Candidate(f"p{n}", "a" if n % 2 else None, load) for n, load in enumerate(loads[0])]
    ds = [Candidate(f"d{n}", "a" if n % 2 else None, load) for n, load in enumerate(loads[1])]
    chooser = policy(name, "a")
    for _ in range(turns):
        p, d = chooser.pick(ps, ds, key)
        assert d in ds
        assert (p in ps) if ps else p is None
