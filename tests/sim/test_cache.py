"""Blocks of KV: held, shared, cached, evicted."""

from __future__ import annotations

import random

from pdops.sim.cache import BlockPool
from pdops.sim.records import RequestRecord


def request(number: int, group: int = 0, prompt: int = 160, shared: int = 80) -> RequestRecord:
    return RequestRecord(
        id=number,
        arrival_s=0.0,
        zone="a",
        group=group,
        prompt_tokens=prompt,
        shared_tokens=shared,
        output_tokens=1,
    )


def hold(pool: BlockPool, record: RequestRecord) -> bool:
    held = pool.take(record, record.on_prefill, record.prompt_tokens)
    if held:
        pool.computed(record, record.on_prefill)
    return held


def test_a_prefix_that_two_requests_share_is_held_once() -> None:
    pool = BlockPool(100, 16)
    first, second = request(1), request(2)
    assert hold(pool, first)
    assert pool.used == 10
    assert pool.cached_tokens(second) == 80
    assert hold(pool, second)
    assert pool.used == 15
    pool.release(first, first.on_prefill)
    pool.release(second, second.on_prefill)
    assert pool.used == 0
    assert pool.cached_tokens(request(3)) == 80


def test_what_is_cached_gives_way_to_what_is_held_oldest_first() -> None:
    pool = BlockPool(20, 16)
    for number in (1, 2):
        record = request(number, group=number)
        assert hold(pool, record)
        pool.release(record, record.on_prefill)
    big = request(3, group=3, prompt=240, shared=0)
    assert hold(pool, big)
    assert pool.used == 15
    assert pool.cached_tokens(request(4, group=1)) == 0


def test_there_is_no_room_beyond_the_total() -> None:
    pool = BlockPool(15, 16)
    first = request(1, group=1)
    assert hold(pool, first)
    assert not hold(pool, request(2, group=2))
    pool.release(first, first.on_prefill)
    assert hold(pool, request(2, group=2))


def test_a_wiped_cache_and_one_that_is_off_find_nothing() -> None:
    pool = BlockPool(100, 16)
    record = request(1)
    hold(pool, record)
    pool.release(record, record.on_prefill)
    pool.wipe()
    assert pool.cached_tokens(request(2)) == 0
    pool.enabled = False
    second = request(2)
    hold(pool, second)
    pool.release(second, second.on_prefill)
    assert pool.cached_tokens(request(3)) == 0
    assert pool.used == 0


def test_no_sequence_of_calls_loses_or_invents_a_block() -> None:
    chance = random.Random(4)
    pool = BlockPool(200, 16)
    held: list[RequestRecord] = []
    for number in range(1, 3000):
        if held and chance.random() < 0.5:
            record = held.pop(chance.randrange(len(held)))
            pool.release(record, record.on_prefill)
        else:
            prompt = chance.randrange(1, 900)
            record = request(number, chance.randrange(6), prompt, chance.randrange(prompt + 1))
            if hold(pool, record):
                held.append(record)
        assert 0 <= pool.used <= pool.total
        assert pool.free >= 0
    for record in held:
        pool.release(record, record.on_prefill)
    assert pool.used == 0
