"""Bodies and streams nobody foresaw."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.router import body
from pdops.router.estimate import Estimator
from pdops.router.legs import Prefilled
from pdops.router.stream import StreamReader

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("prompt", "messages", "model", "stream", "n", "best_of", "max_tokens", "kv_transfer_params", "use_beam_search")
CHOICE = st.fixed_dictionaries({}, optional=dict.fromkeys(("text", "delta", "message", "finish_reason"), JSON))
EVENT = st.fixed_dictionaries(
    {}, optional={"choices": JSON | st.lists(CHOICE, max_size=2), "usage": JSON, "error": JSON, "object": JSON}
)


@given(content=JSON | st.dictionaries(st.sampled_from(KEYS), JSON), chat=st.booleans())
def test_a_body_is_served_or_refused_with_a_reason(content: Any, chat: bool) -> None:
    try:
        prompted = body.read(content, chat=chat)
    except body.BadRequestError:
        return
    assert prompted.size >= 1
    assert len(prompted.key) <= body.KEY_CHARS * 6
    assert prompted.prefill()["kv_transfer_params"] == body.ASK_FOR_KV
    assert "kv_transfer_params" not in prompted.decode(None), "clients hand no KV addresses in"


@given(st.lists(st.binary(max_size=40) | EVENT.map(lambda e: b"data: " + json.dumps(e).encode()), max_size=6))
def test_whatever_an_engine_sends_is_read(lines: list[bytes]) -> None:
    reader = StreamReader()
    outputs = sum(reader.feed(line) for line in lines)
    assert reader.pieces == outputs


@given(EVENT)
def test_whatever_an_engine_answers_is_read(content: dict[str, Any]) -> None:
    reader = StreamReader()
    reader.whole(content)
    assert reader.done


@given(JSON)
def test_blocks_are_counted_or_unknown(found: Any) -> None:
    blocks = Prefilled({"remote_block_ids": found}, None).blocks
    assert blocks is None or blocks >= 0


def test_a_hybrid_model_has_blocks_of_several_groups() -> None:
    assert Prefilled({"remote_block_ids": [[1, 2, 3], [4]]}, 70).blocks == 2
    assert Prefilled({"remote_block_ids": [1, 2, 3]}, 70).blocks == 3


def test_an_estimate_grows_with_the_size_only_as_it_was_seen_to() -> None:
    estimator = Estimator()
    assert (estimator.seconds("p", 100), estimator.mean("p")) == (0.0, None)
    for _ in range(10):
        estimator.learn("p", 0.15, 3)
    assert estimator.seconds("p", 4000) == pytest.approx(0.15), "nobody is turned away on a guess"
    for size in (100, 1000, 3000) * 5:
        estimator.learn("p", 0.1 + size / 1000, size)
    assert estimator.seconds("p", 2000) == pytest.approx(2.1, rel=0.2)
    assert estimator.seconds("p", 1) >= 0.0
    for size in (100, 3000) * 10:
        estimator.learn("p", 1.0, size)
    assert estimator.seconds("p", 100_000) < 10.0
