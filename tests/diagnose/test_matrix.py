"""What the matrix of pairs adds: which pair of a worker is slow, and which has fallen silent."""

from __future__ import annotations

from pdops.diagnose.context import Context
from pdops.diagnose.matrix import narrowed, silent
from tests.diagnose.build import Given, Points, but, histogram, sound, view

WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")
PAIRS = ("prefill-0>decode-0", "prefill-0>decode-1", "prefill-1>decode-0", "prefill-1>decode-1")


def handed(took: dict[str, Points] | None = None) -> Context:
    usual: dict[str, Points] = dict.fromkeys(PAIRS, 0.1)
    given: Given = {f"pair:{p}": {"handoff_seconds.mean": v} for p, v in {**usual, **(took or {})}.items()}
    return Context(view(workers=WORKERS, series=but(sound(2, 2), given)))


def counted(**now: int) -> Context:
    """Return hand-offs of each pair now, 40 each before; pairs as p0d1."""
    given: Given = {}
    for pair in PAIRS:
        key = "p" + pair[8] + "d" + pair[-1]
        ended = histogram([1.0, 10.0], {0.5: 40}, {0.5: now.get(key, 20)} if now.get(key, 20) else {})
        given = but(given, {f"pair:{pair}": {"handoff_seconds": ended}})
    return Context(view(workers=WORKERS, series=but(sound(2, 2), given)))


def test_a_worker_with_one_slow_pair_is_named_by_it() -> None:
    assert [str(s) for s in narrowed(handed({PAIRS[2]: 0.21}), ["decode-0"])] == [PAIRS[2]]


def test_a_worker_whose_pairs_are_all_slow_or_all_fine_stays_a_worker() -> None:
    slow = handed({PAIRS[0]: 0.5, PAIRS[2]: 0.5})
    assert [str(s) for s in narrowed(slow, ["decode-0"])] == ["decode-0"]
    assert [str(s) for s in narrowed(handed(), ["decode-0"])] == ["decode-0"]


def test_a_pair_without_hand_offs_is_silent_while_its_ends_serve_others() -> None:
    assert [str(p) for p in silent(counted(p1d0=0))] == ["prefill-1>decode-0"]
    assert silent(counted()) == ()
    assert silent(counted(p1d0=1)) == ()


def test_a_silent_receiver_makes_no_silent_pairs() -> None:
    assert silent(counted(p0d0=0, p1d0=0)) == ()
