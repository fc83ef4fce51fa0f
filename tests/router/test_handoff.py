"""The way of a request through both legs, before doubles of engines."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from pdops.router.settings import Settings
from tests.router.doubles import bench, token


@pytest.mark.parametrize("chat", [False, True])
async def test_a_stream_goes_through_both_legs_and_is_timed(chat: bool) -> None:
    async with bench(Settings(block_size=32, kv_bytes_per_token=1024, slo_ttft_s=100, slo_itl_s=100)) as b:
        status, text = await b.ask(chat=chat, stream_options={"include_usage": True})
        assert (status, text.count("data: ")) == (200, 5)
        prefill, decode = b.prefill.bodies[0], b.decode.bodies[0]
        assert (prefill["max_tokens"], prefill["stream"]) == (1, False)
        assert not {"min_tokens", "stream_options"} & set(prefill)
        assert prefill["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
        assert (decode["max_tokens"], decode["min_tokens"]) == (3, 3)
        assert decode["kv_transfer_params"]["remote_request_id"] == "req-1"
        assert b.prefill.headers[0]["x-request-id"] == b.decode.headers[0]["x-request-id"]
        pair = {"src": "prefill-0", "dst": "decode-0"}
        assert await b.value("pair_requests_total", outcome="ok", **pair) == 1
        assert await b.value("pair_kv_bytes_total", **pair) == 3 * 32 * 1024
        assert await b.value("handoff_seconds_count", **pair) == 1
        assert await b.value("itl_seconds_count") == 2
        for phase in ("queue", "prefill", "handoff", "decode_first_token", "stream"):
            assert await b.value("phase_seconds_count", phase=phase) == 1
        for slo in ("ttft", "itl", "request"):
            assert await b.value("slo_total", slo=slo, met="true") == 1
        assert await b.outcomes() == {"ok": 1}
        assert not b.prefill.held


@pytest.mark.parametrize("chat", [False, True])
async def test_an_answer_in_one_piece_has_no_first_token_time(chat: bool) -> None:
    async with bench() as b:
        status, text = await b.ask(stream=False, chat=chat)
        assert (status, json.loads(text)["choices"][0]["text"]) == (200, "abc")
        assert await b.value("ttft_seconds_count") == 0
        assert await b.value("finish_total", reason="length") == 1
        assert await b.outcomes() == {"ok": 1}


async def test_every_series_that_can_be_known_is_there_before_the_first_request() -> None:
    async with bench() as b:
        pair = {"src": "prefill-0", "dst": "decode-0"}
        for name in ("requests_total", "rejected_total", "finish_total", "ttft_seconds_count", "inflight_requests"):
            assert await b.value(name) == 0
        for name in ("pair_requests_total", "handoff_seconds_count"):
            assert await b.value(name, **pair) == 0
        assert await b.value("worker_up") == 2
        assert await b.value("pair_kv_bytes_total", **pair) is None, (
            "bytes a token are not known, so no zero is claimed"
        )


@pytest.mark.parametrize(
    ("script", "status", "outcome"),
    [
        ([token("a"), '{"error": {"message": "pull failed", "code": 500}}', "[DONE]"], 200, "error"),
        (['{"error": {"message": "pull failed", "code": 500}}', "[DONE]"], 502, "error"),
        ([token("a")], 200, "error"),
        ([], 502, "error"),
        (["[DONE]"], 200, "empty"),
        ([token("", finish_reason="stop"), "[DONE]"], 200, "empty"),
        ([token(""), token("", finish_reason="length"), "[DONE]"], 200, "ok"),
        ([token("a"), token("", finish_reason="abort"), "[DONE]"], 200, "error"),
    ],
    ids=["error later", "error first", "cut", "cut first", "nothing", "end only", "no text", "abort under 200"],
)
async def test_what_a_stream_holds_decides_the_outcome(script: list[str], status: int, outcome: str) -> None:
    async with bench() as b:
        b.decode.script = script
        assert (await b.ask())[0] == status
        assert await b.outcomes() == {outcome: 1}


@pytest.mark.parametrize(
    ("whole", "outcome"),
    [
        ({"choices": [{"text": "", "finish_reason": "stop"}], "usage": {"completion_tokens": 0}}, "empty"),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}, "empty"),
        ({"choices": [{"text": "a", "finish_reason": "abort"}]}, "error"),
    ],
)
async def test_what_an_answer_holds_decides_the_outcome(whole: dict[str, Any], outcome: str) -> None:
    async with bench() as b:
        b.decode.whole = whole
        assert (await b.ask(stream=False))[0] == 200
        assert await b.outcomes() == {outcome: 1}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "outcome"), [(400, "error"), (500, "error"), (503, "rejected")])
async def test_an_engines_refusal_is_passed_on_and_not_repeated(status: int, outcome: str, stream: bool) -> None:
    async with bench(decodes=2, prefills=2) as b:
        for decode in b.decodes.values():
            decode.status = status
        got, text = await b.ask(stream=stream)
        assert got == status
        assert "decode-0 answered" in json.loads(text)["error"]["message"]
        assert sum(len(d.bodies) for d in b.decodes.values()) == 1
        assert await b.outcomes() == {outcome: 1}


async def test_decode_alone_is_refused_unless_it_was_allowed() -> None:
    async with bench() as b:
        b.prefill.address = False
        status, text = await b.ask()
        assert status == 502
        assert "decode alone is not served" in text
        assert not b.decode.bodies
        assert await b.value("fallback_total") is None


async def test_decode_alone_is_counted_where_it_is_allowed() -> None:
    async with bench(Settings(fallback="decode-only")) as b:
        b.prefill.address = False
        assert (await b.ask())[0] == 200
        assert await b.value("fallback_total", reason="no_kv_address", worker="decode-0") == 1
        b.prefill.status = 500
        assert (await b.ask())[0] == 200
        assert await b.value("fallback_total", reason="prefill_failed") == 1
        b.prefill.health = 500
        await b.until(lambda: not b.registry.get("prefill-0").up)
        assert (await b.ask())[0] == 200
        assert await b.value("fallback_total", reason="no_prefill") == 1
        assert "kv_transfer_params" not in b.decode.bodies[-1]
        assert b.registry.get("prefill-0").inflight == b.registry.get("decode-0").inflight == 0


async def test_a_slow_prefill_ends_at_its_own_limit_and_is_aborted() -> None:
    async with bench(Settings(prefill_timeout_s=0.1)) as b:
        b.prefill.before_answer = asyncio.Event()
        status, text = await b.ask()
        assert (status, "did not prefill within 0.1 s" in text) == (504, True)
        await b.until(lambda: b.prefill.aborted == 1)
        assert await b.outcomes() == {"timeout": 1}


async def test_a_silent_decode_ends_at_its_own_limit_and_is_aborted() -> None:
    async with bench(Settings(first_token_timeout_s=0.1, answer_timeout_s=0.1)) as b:
        b.decode.before_answer = asyncio.Event()
        assert (await b.ask())[0] == 504
        assert (await b.ask(stream=False))[0] == 504
        await b.until(lambda: b.decode.aborted == 2)
        assert not b.prefill.held


async def test_a_stream_that_stops_is_ended_with_an_error_inside() -> None:
    async with bench(Settings(stream_idle_timeout_s=0.1)) as b:
        b.decode.gate = asyncio.Event()
        status, text = await b.ask()
        assert (status, "no token within 0.1 s" in text) == (200, True)
        assert await b.outcomes() == {"timeout": 1}


async def test_credentials_and_request_id_reach_both_engines() -> None:
    async with bench() as b:
        given = {"Authorization": "Bearer sk-1", "X-Request-Id": "mine"}
        for _ in range(2):
            async with b.client.post("/v1/completions", json={"prompt": "x"}, headers=given) as answer:
                assert answer.status == 200
        legs = [*b.prefill.headers, *b.decode.headers]
        assert {h["authorization"] for h in legs} == {"Bearer sk-1"}
        ids = [h["x-request-id"] for h in legs]
        assert all(i.startswith("mine-") for i in ids)
        assert (len(set(ids)), ids[0], ids[1]) == (2, ids[2], ids[3])


async def test_the_callers_trace_is_passed_on_without_a_tracer() -> None:
    async with bench() as b:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with b.client.post("/v1/completions", json={"prompt": "x"}, headers={"traceparent": trace}) as answer:
            assert answer.status == 200
        assert b.prefill.headers[0]["traceparent"] == b.decode.headers[0]["traceparent"] == trace


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/completions", b"{", 400, "not JSON"),
        ("/v1/completions", b"\xff\xfe", 400, "not JSON"),
        ("/v1/completions", b"[" * 100_000, 400, "not JSON"),
        ("/v1/completions", b"[]", 400, "not a JSON object"),
        ("/v1/completions", b"{}", 400, "prompt is neither"),
        ("/v1/completions", b'{"prompt": ["a", "b"]}', 400, "2 prompts"),
        ("/v1/completions", b'{"prompt": [1, "b"]}', 400, "prompt is neither"),
        ("/v1/completions", b'{"prompt": "a", "stream": "yes"}', 400, "stream is neither"),
        ("/v1/completions", b'{"prompt": "a", "n": 2}', 400, "n is 2"),
        ("/v1/completions", b'{"prompt": "a", "n": "2"}', 400, "n is not a whole number"),
        ("/v1/completions", b'{"prompt": "a", "model": 3}', 400, "model is not a text"),
        ("/v1/completions", b'{"prompt": "a", "use_beam_search": true}', 400, "beam search"),
        ("/v1/chat/completions", b'{"prompt": "a"}', 400, "messages is not a list"),
        ("/v1/chat/completions", b'{"messages": ["a"]}', 400, "each message"),
        ("/v1/completions", b" " * (17 << 20), 413, "larger than 16 MiB"),
        ("/v1/nothing", b"{}", 404, "Not Found"),
    ],
)
async def test_bad_bodies_are_refused_with_the_reason(path: str, body: bytes, status: int, message: str) -> None:
    async with bench() as b:
        async with b.client.post(path, data=io.BytesIO(body)) as answer:
            assert answer.status == status
            assert message in (await answer.json())["error"]["message"]
        assert not b.prefill.bodies


async def test_what_an_engine_says_that_is_no_answer_is_an_error() -> None:
    async with bench() as b:
        b.prefill.whole = {"error": {"message": "engine is dead"}}
        status, text = await b.ask()
        assert (status, "engine is dead" in text) == (502, True)
        b.prefill.status, b.prefill.error = 200, None
        assert b.registry.get("decode-0").inflight == 0


async def test_models_come_from_a_worker_that_is_up() -> None:
    async with bench() as b, b.client.get("/v1/models") as answer:
        assert (await answer.json())["data"][0]["id"] == "tiny"
