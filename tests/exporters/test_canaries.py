"""Canaries on a timer, with a double that takes the place of the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pdops.clock import VirtualClock
from pdops.model.cluster import Cluster, Pair, Role, Worker
from pdops.model.frame import Probe, ProbeKind
from pdops_exporters.canaries import PAIRS_A_ROUND, Canaries


def cluster(prefill: int, decode: int) -> Cluster:
    roles = [Role.PREFILL] * prefill + [Role.DECODE] * decode + [Role.ROUTER]
    return Cluster(name="c", workers=tuple(Worker(id=f"{r}-{i}", role=r, pool=r) for i, r in enumerate(roles)))


async def rounds(count: int, size: tuple[int, int], *, fails_at: int = -1) -> tuple[list[tuple[Pair, ...]], Canaries]:
    asked: list[tuple[Pair, ...]] = []
    done = asyncio.Event()

    async def send(pairs: Sequence[Pair]) -> tuple[Probe, ...]:
        asked.append(tuple(pairs))
        if len(asked) > count:
            done.set()
            await asyncio.Event().wait()
        if len(asked) == fails_at:
            raise RuntimeError("no")
        return tuple(Probe(t_s=0.0, kind=ProbeKind.CANARY, ok=True, pair=str(pair)) for pair in pairs)

    canaries = Canaries(cluster(*size), VirtualClock(), 60.0, send=send)
    task = asyncio.create_task(canaries.run())
    await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return asked[:count], canaries


def test_a_large_matrix_is_asked_in_turns_and_every_pair_has_one() -> None:
    asked, _ = asyncio.run(rounds(3, (5, 8)))
    assert [len(turn) for turn in asked] == [PAIRS_A_ROUND, PAIRS_A_ROUND, 40 - 2 * PAIRS_A_ROUND]
    assert len({pair for turn in asked for pair in turn}) == 40


def test_a_small_cluster_is_asked_whole_each_round_and_results_are_taken_once() -> None:
    asked, canaries = asyncio.run(rounds(2, (1, 2)))
    assert asked[0] == asked[1]
    assert [probe.pair for probe in canaries.take()] == ["prefill-0>decode-1", "prefill-0>decode-2"] * 2
    assert canaries.take() == ()


def test_a_round_that_breaks_is_logged_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    asked, canaries = asyncio.run(rounds(2, (1, 1), fails_at=1))
    assert len(asked) == 2
    assert [(probe.ok, probe.worker or probe.pair) for probe in canaries.take()] == [
        (None, "router-2"),
        (None, "prefill-0>decode-1"),
        (True, "prefill-0>decode-1"),
    ], "what could not be asked is not known"
    assert "RuntimeError" in caplog.text
