"""Stand-ins for engines and routers, each named for what it does; all on loopback ports of the system's choosing."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar

import aiohttp
from aiohttp import web

from pdops.model.cluster import Cluster, Endpoint, Role, Secret, Worker

MODEL = "double-1b"
BLOCK = 16
KV_BYTES = 100.0
"""Bytes of KV a token."""


def tokens_in(prompt: str) -> int:
    return len(prompt.split())


def continuation(prompt: str, count: int) -> list[str]:
    """The greedy answer of the model: depends on every word of the prompt."""
    words = [hashlib.sha256(f"{prompt}|{i}".encode()).hexdigest()[:4] for i in range(count)]
    return [f" {word}" for word in words]


def blocks_bytes(tokens: float) -> float:
    return -(-tokens // BLOCK) * BLOCK * KV_BYTES


class Served:
    """An HTTP application on loopback."""

    role: ClassVar[Role]
    engine: ClassVar[str | None] = "vllm"
    secret = Secret()

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.now = self.most = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/v1/completions", self._post)
        app.router.add_post("/v1/chat/completions", self._post)
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL}]})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(text="process_start_time_seconds 1\n")

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(request.headers)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self.complete(request, body)
        finally:
            self.now -= 1

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        raise NotImplementedError

    def worker(self, worker: str) -> Worker:
        return Worker(
            id=worker,
            role=self.role,
            pool=self.role.value,
            url=self.url,
            engine=self.engine,
            endpoints=(Endpoint(f"{self.url}/metrics", self.engine),),
            secret=self.secret,
        )


def prompt_in(body: dict[str, Any]) -> str:
    return body["prompt"] if "prompt" in body else body["messages"][0]["content"]


class Engine(Served):
    """Answers as vLLM does, completions and chat, whole and streamed."""

    finish: str | None = "length"
    template = 0
    """Tokens that a chat template adds."""

    def words(self, body: dict[str, Any]) -> list[str]:
        return continuation(prompt_in(body), body["max_tokens"])

    def prompt_tokens(self, body: dict[str, Any]) -> int:
        return tokens_in(prompt_in(body)) + (self.template if "messages" in body else 0)

    def usage(self, body: dict[str, Any]) -> dict[str, int]:
        return {"prompt_tokens": self.prompt_tokens(body), "completion_tokens": body["max_tokens"]}

    async def whole(self, body: dict[str, Any], **more: object) -> web.Response:
        text = "".join(self.words(body))
        part = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
        choice = {**part, "finish_reason": self.finish}
        return web.json_response({"choices": [choice], "usage": self.usage(body), **more})

    def events(self, body: dict[str, Any]) -> list[object]:
        words, found = self.words(body), list[object]()
        for place, word in enumerate(words):
            finish = self.finish if place == len(words) - 1 else None
            part = {"delta": {"content": word}} if "messages" in body else {"text": word}
            found.append({"choices": [{**part, "finish_reason": finish}]})
        return [*found, {"choices": [], "usage": self.usage(body)}, "[DONE]"]

    async def stream(self, request: web.Request, events: Sequence[object]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            text = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"data: {text}\n\n".encode())
        await response.write_eof()
        return response


class HonestPrefill(Engine):
    """Keeps the KV of the prompt it was asked for, and gives its address."""

    role = Role.PREFILL

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if "kv_transfer_params" not in body:
            return await self.whole(body)
        assert body["max_tokens"] == 1
        address = {"do_remote_prefill": True, "remote_engine_id": self.url, "prompt": prompt_in(body)}
        return await self.whole(body, kv_transfer_params=address)


class ChatOnlyPrefill(HonestPrefill):
    """Serves a model that takes chat only."""

    template = 5

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if "messages" not in body:
            return web.json_response({"error": {"message": "The model does not support Completions API"}}, status=400)
        return await super().complete(request, body)


class AddresslessPrefill(HonestPrefill):
    """Has no KV connector, so it keeps nothing."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await self.whole(body)


class FicklePrefill(HonestPrefill):
    """Never says the same twice."""

    said = 0

    def words(self, body: dict[str, Any]) -> list[str]:
        self.said += 1
        return [f" {self.said}"] * body["max_tokens"]


class RefusingPrefill(HonestPrefill):
    """Fails every request."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "engine core died"}}, status=500)


class GuardedPrefill(HonestPrefill):
    """Wants a token."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer s3cret":
            return web.json_response({"error": {"message": "unauthorized"}}, status=401)
        return await super().complete(request, body)


class HonestDecode(Engine):
    """Pulls the KV it is given the address of, answers from it, and counts as vLLM does."""

    role = Role.DECODE

    def __init__(self) -> None:
        super().__init__()
        self.prompt = self.external = self.local = self.bytes = 0.0
        self.start_s = 1000

    def page(self) -> dict[str, float]:
        name = f'model_name="{MODEL}",engine="0"'
        source = "vllm:prompt_tokens_by_source_total"
        cached = self.prompt - self.external - self.local
        return {
            f"vllm:prompt_tokens_total{{{name}}}": self.prompt,
            f'{source}{{{name},source="local_compute"}}': self.local,
            f'{source}{{{name},source="local_cache_hit"}}': cached,
            f'{source}{{{name},source="external_kv_transfer"}}': self.external,
            f"vllm:nixl_bytes_transferred_sum{{{name}}}": self.bytes,
            f"vllm:nixl_bytes_transferred_count{{{name}}}": 1.0,
            f'vllm:cache_config_info{{block_size="{BLOCK}"}}': 1.0,
            f"vllm:num_requests_running{{{name}}}": float(self.now),
            "process_start_time_seconds": self.start_s,
        }

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{series} {value:g}\n" for series, value in self.page().items()))

    def pulled(self, body: dict[str, Any]) -> None:
        tokens = self.prompt_tokens(body)
        self.prompt += tokens
        self.external += tokens
        self.bytes += blocks_bytes(tokens)

    def computed(self, body: dict[str, Any]) -> None:
        tokens = self.prompt_tokens(body)
        self.prompt += tokens
        self.local += tokens

    def count(self, body: dict[str, Any]) -> None:
        self.pulled(body) if body.get("kv_transfer_params") else self.computed(body)

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        self.count(body)
        return await self.stream(request, self.events(body))


class TellingPrefill(HonestPrefill):
    """Tells token ids, which its text does not: every token reads as the same odd character."""

    def words(self, body: dict[str, Any]) -> list[str]:
        return ["\ufffd"] * body["max_tokens"]

    async def whole(self, body: dict[str, Any], **more: object) -> web.Response:
        ids = list(range(body["max_tokens"]))
        choice = {"text": "".join(self.words(body)), "token_ids": ids, "finish_reason": self.finish}
        return web.json_response({"choices": [choice], "usage": self.usage(body), **more})


class TellingDecode(HonestDecode):
    """Tells token ids with every piece; `shift` makes them others than prefill's behind the same text."""

    shift = 0

    def events(self, body: dict[str, Any]) -> list[object]:
        count = body["max_tokens"]
        pieces: list[object] = [
            {"choices": [{"text": "\ufffd", "token_ids": [i + self.shift], "finish_reason": None}]}
            for i in range(count)
        ]
        end = {"choices": [{"text": "", "token_ids": [], "finish_reason": self.finish}], "usage": self.usage(body)}
        return [*pieces, end, "[DONE]"]


class MisreadingDecode(TellingDecode):
    """Goes on from other KV, and its odd tokens look the same."""

    shift = 1


class SlowDecode(HonestDecode):
    """Is right, and takes its time."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        return await super().complete(request, body)


class ChatDecode(HonestDecode):
    """Decode of a chat model: the template's tokens belong to the prompt."""

    template = 5


class CachedTemplateDecode(ChatDecode):
    """Has the first block of every chat in its own cache, the one a long template fills."""

    def pulled(self, body: dict[str, Any]) -> None:
        tokens = self.prompt_tokens(body)
        self.prompt += tokens
        self.external += tokens - BLOCK
        self.bytes += blocks_bytes(tokens - BLOCK)


class OtherTemplateDecode(HonestDecode):
    """Counts other tokens than prefill for the same prompt."""

    def prompt_tokens(self, body: dict[str, Any]) -> int:
        return super().prompt_tokens(body) + 3


class WrongTextDecode(HonestDecode):
    """Answers from blocks that hold another prompt by now: HTTP 200, counters right, text wrong."""

    def words(self, body: dict[str, Any]) -> list[str]:
        return continuation("somebody else's prompt", body["max_tokens"])


class ErrorInStreamDecode(HonestDecode):
    """Fails after it began: HTTP 200, then an error object in the stream."""

    def events(self, body: dict[str, Any]) -> list[object]:
        error = {"error": {"message": "KV load failed", "code": 500}}
        return [super().events(body)[0], error, "[DONE]"]


class CutStreamDecode(HonestDecode):
    """Ends its stream without an end."""

    def events(self, body: dict[str, Any]) -> list[object]:
        return super().events(body)[:3]


class EmptyDecode(HonestDecode):
    """Ends at once, without a token."""

    def events(self, body: dict[str, Any]) -> list[object]:
        usage = {"prompt_tokens": self.prompt_tokens(body), "completion_tokens": 0}
        return [{"choices": [{"text": "", "finish_reason": "stop"}], "usage": usage}, "[DONE]"]


class GarbageDecode(HonestDecode):
    """Answers with something that is not JSON."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(text="<html>\x1b[31mhello</html>", content_type="text/html")


class EndlessDecode(HonestDecode):
    """Never stops answering."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        line = b'data: {"choices": [{"text": "' + b"x" * 8000 + b'"}]}\n\n'
        while True:
            await response.write(line)


class RefusingDecode(HonestDecode):
    """Fails every request, as a decode does that lost its prefill."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "remote agent is not known"}}, status=500)


class SilentDecode(HonestDecode):
    """Takes a request and never answers."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError


class SelfComputingDecode(HonestDecode):
    """Ignores the address and computes the prompt itself: the same text, and nothing moved."""

    def count(self, body: dict[str, Any]) -> None:
        self.computed(body)


class HalfPullingDecode(HonestDecode):
    """Pulls half of the prompt and computes the rest."""

    def count(self, body: dict[str, Any]) -> None:
        tokens = self.prompt_tokens(body)
        self.prompt += tokens
        self.external += BLOCK
        self.local += tokens - BLOCK
        self.bytes += blocks_bytes(BLOCK)


class ShortPullDecode(HonestDecode):
    """Says that all tokens came, although fewer bytes did."""

    def count(self, body: dict[str, Any]) -> None:
        super().count(body)
        self.bytes -= KV_BYTES * BLOCK


class UnfinishedDecode(HonestDecode):
    """Gives no finish_reason."""

    finish = None


class StoppedDecode(HonestDecode):
    """Says it stopped by itself, where prefill ended by length."""

    finish = "stop"


class BusyDecode(HonestDecode):
    """Serves others at the same time, whose KV is pulled too."""

    def count(self, body: dict[str, Any]) -> None:
        super().count(body)
        self.prompt += 500
        self.external += 480
        self.bytes += blocks_bytes(480)


class BusyComputingDecode(HonestDecode):
    """Serves others at the same time, whose prompts it computes itself."""

    def count(self, body: dict[str, Any]) -> None:
        super().count(body)
        self.prompt += 500
        self.local += 500


class BusySelfComputingDecode(SelfComputingDecode):
    """Computes our prompt itself, while it pulls those of others."""

    def count(self, body: dict[str, Any]) -> None:
        super().count(body)
        self.prompt += 30
        self.external += 30
        self.bytes += blocks_bytes(30)


class UncountingDecode(HonestDecode):
    """Tells no counters of where tokens came from, as other engines do."""

    def page(self) -> dict[str, float]:
        return {k: v for k, v in super().page().items() if "by_source" not in k and "nixl" not in k}


class LateDecode(HonestDecode):
    """Publishes its counters some looks after the answer."""

    looks = 0

    async def metrics(self, request: web.Request) -> web.Response:
        self.looks += 1
        page = self.page()
        if 1 < self.looks < 4:
            page = {k: 0.0 if "prompt_tokens" in k or "nixl" in k else v for k, v in page.items()}
        return web.Response(text="".join(f"{series} {value:g}\n" for series, value in page.items()))


class NeverCountingDecode(HonestDecode):
    """Has counters that never move."""

    def count(self, body: dict[str, Any]) -> None:
        return


class RestartingDecode(HonestDecode):
    """Is another process after the answer."""

    def count(self, body: dict[str, Any]) -> None:
        super().count(body)
        self.start_s += 60


class UnreadableDecode(HonestDecode):
    """Serves, but its page of metrics cannot be had."""

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(status=503)


class HonestRouter(Served):
    """Hands a request from one prefill to one decode."""

    role = Role.ROUTER
    engine = "pdops_router"

    def __init__(self, prefill: Served, decode: Served) -> None:
        super().__init__()
        self.prefill, self.decode = prefill, decode

    def handed(self, address: Any) -> dict[str, Any]:
        return {"kv_transfer_params": address}

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        ask = {"do_remote_decode": True, "do_remote_prefill": False}
        async with aiohttp.ClientSession(trust_env=False) as session:
            leg = {**body, "stream": False, "max_tokens": 1, "kv_transfer_params": ask}
            async with session.post(self.prefill.url + request.path, json=leg) as answer:
                if answer.status != 200:
                    return web.json_response(await answer.json(), status=answer.status)
                address = (await answer.json()).get("kv_transfer_params")
            async with session.post(self.decode.url + request.path, json={**body, **self.handed(address)}) as answer:
                raw = await answer.read()
                return web.Response(body=raw, status=answer.status, content_type=answer.content_type)


class ForgetfulRouter(HonestRouter):
    """Drops the address on its way, so that decode computes the prompt itself."""

    def handed(self, address: Any) -> dict[str, Any]:
        return {}


class FullRouter(HonestRouter):
    """Has no room."""

    async def complete(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "queue is full"}}, status=503)


@asynccontextmanager
async def cluster_of(
    prefills: Sequence[Served], decodes: Sequence[Served], routers: Sequence[Served] = (), **more: Any
) -> AsyncIterator[Cluster]:
    """Run doubles and give the cluster they make; ids are ROLE-N."""
    async with AsyncExitStack() as stack:
        workers = []
        for doubles in (prefills, decodes, routers):
            for number, double in enumerate(doubles):
                await stack.enter_async_context(double.running())
                workers.append(double.worker(f"{double.role.value}-{number}"))
        yield Cluster(name="doubles", workers=tuple(workers), **{"kv_bytes_per_token": KV_BYTES, **more})
