"""The decode leg: hand the KV address over, wait for the first token, pass the stream on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pdops.router.legs import LINGER_S, Delivery, Ended, refused, unreachable, whole
from pdops.router.metrics import Outcome
from pdops.router.tools import Tools
from pdops.router.workers import Worker

if TYPE_CHECKING:
    from pdops.router.exchange import Exchange


@dataclass(slots=True)
class DecodeLeg:
    """Decode of one exchange.

    Args:
        exchange: whose decode it is; what comes is noted there.
        tools: what it works with.
        worker: the decode worker.
    """

    exchange: Exchange
    tools: Tools
    worker: Worker

    async def serve(self) -> tuple[Outcome, web.StreamResponse]:
        """Have it decoded and pass it on.

        Raises:
            Ended: nothing was sent to the client yet.
        """
        worker, settings = self.worker, self.tools.settings
        stream = self.exchange.prompted.stream
        limit_s = settings.first_token_timeout_s if stream else settings.answer_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                with self.exchange.phase("handoff", worker) as span:
                    answer = await self._open({**self.exchange.headers, **span.headers()})
                if not stream:
                    return await self._whole(answer)
                with self.exchange.phase("decode_first_token", worker):
                    held = await self._until_output(answer)
        except TimeoutError:
            what = "begin to answer" if stream else "answer"
            raise Ended(Outcome.TIMEOUT, 504, f"{worker.id} did not {what} within {limit_s:g} s") from None
        with self.exchange.phase("stream", worker):
            return await self._pass_on(answer, held)

    async def _open(self, headers: dict[str, str]) -> aiohttp.ClientResponse:
        if self.tools.drill.mode == "drop-params":
            # The drill plays a router that forgets: nobody may know of the KV.
            self.exchange.owed = None
        delivery, address = Delivery(), self.exchange.owed
        leg = self.exchange.prompted.decode(address)
        opening = asyncio.create_task(
            self.tools.engines.call(self.worker, self.exchange.request.path, leg, headers, delivery)
        )
        try:
            answer = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self.exchange.owed = None
            self.tools.background.spawn(self._linger(opening, delivery, address))
            raise
        except Ended:
            if delivery.sent:
                self.exchange.owed = None
            raise
        self.exchange.owed = None
        return answer

    async def _linger(
        self, opening: asyncio.Task[aiohttp.ClientResponse], delivery: Delivery, address: dict[str, Any] | None
    ) -> None:
        done, _ = await asyncio.wait([opening], timeout=LINGER_S)
        if not done:
            opening.cancel()
            await asyncio.wait([opening])
        elif opening.exception() is None:
            opening.result().close()
        if not delivery.sent and address is not None:
            await self.exchange.release(address)

    async def _whole(self, answer: aiohttp.ClientResponse) -> tuple[Outcome, web.StreamResponse]:
        async with answer:
            content = await whole(answer, self.worker)
        self.exchange.reader.whole(content)
        self._count_kv()
        return self._outcome(), web.json_response(content)

    async def _until_output(self, answer: aiohttp.ClientResponse) -> list[bytes]:
        """Read up to the first output or the end; errors until then still get a status of their own."""
        held: list[bytes] = []
        try:
            if answer.status != 200:
                raise refused(answer, await answer.text(), self.worker)
            while line := await answer.content.readline():
                output = self.exchange.reader.feed(line)
                held.append(line)
                if self.exchange.reader.error is not None:
                    raise Ended(
                        Outcome.ERROR, 502, f"{self.worker.id}: {self.exchange.reader.error[:500]}", reason="engine"
                    )
                if output:
                    self._first_token()
                    return held
        except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError, LookupError) as error:
            answer.close()
            raise unreachable(self.worker, error) from error
        except BaseException:
            answer.close()
            raise
        if not self.exchange.reader.done:
            raise Ended(Outcome.ERROR, 502, f"{self.worker.id} broke off before its first token", reason="unreachable")
        return held

    def _first_token(self) -> None:
        tools, now = self.tools, self.tools.clock.monotonic()
        self.exchange.first_s = self.exchange.last_s = now
        tools.metrics.ttft.observe(now - self.exchange.ask.arrival_s)
        src, dst = self.exchange.grant.prefill, self.exchange.grant.decode
        if src is not None and self.exchange.answered_s is not None:
            tools.metrics.handoff.labels(src.id, dst.id).observe(now - self.exchange.answered_s)
            if self.exchange.prefilled is not None and self.exchange.prefilled.prompt_tokens:
                tools.estimator.learn(
                    (src.id, dst.id), now - self.exchange.answered_s, self.exchange.prefilled.prompt_tokens
                )
        self._count_kv()

    async def _pass_on(self, answer: aiohttp.ClientResponse, held: list[bytes]) -> tuple[Outcome, web.StreamResponse]:
        response = self.exchange.response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        idle_s, lines = self.tools.settings.stream_idle_timeout_s, list(held)
        reading = False
        try:
            await response.prepare(self.exchange.request)
            while True:
                for line in lines:
                    reading = False
                    async with asyncio.timeout(idle_s):
                        await response.write(line)
                reading = True
                async with asyncio.timeout(idle_s):
                    line = await answer.content.readline()
                if not line:
                    break
                self._later_token(line)
                lines = [line]
            await response.write_eof()
        except (TimeoutError, aiohttp.ClientError, HttpProcessingError, OSError, ValueError, LookupError) as error:
            if not reading:
                return Outcome.ABORTED, response
            late = isinstance(error, TimeoutError)
            message = f"no token within {idle_s:g} s" if late else str(error) or type(error).__name__
            await end_with_error(response, f"{self.worker.id}: {message}")
            return (Outcome.TIMEOUT if late else Outcome.ERROR), response
        finally:
            answer.close()
        return self._outcome(), response

    def _later_token(self, line: bytes) -> None:
        if not self.exchange.reader.feed(line):
            return
        now = self.tools.clock.monotonic()
        if self.exchange.last_s is not None:
            self.tools.metrics.itl.observe(now - self.exchange.last_s)
        self.exchange.last_s = now

    def _outcome(self) -> Outcome:
        reader = self.exchange.reader
        # Engines answer status 200 and end with "abort" or "error" when they gave up.
        if reader.error is not None or not reader.done or reader.finish in ("abort", "error"):
            return Outcome.ERROR
        return Outcome.OK if reader.pieces else Outcome.EMPTY

    def _count_kv(self) -> None:
        settings, src = self.tools.settings, self.exchange.grant.prefill
        if src is None or self.exchange.prefilled is None or self.tools.drill.mode == "drop-params":
            return
        blocks = self.exchange.prefilled.blocks
        if blocks and settings.block_size and settings.kv_bytes_per_token:
            size = blocks * settings.block_size * settings.kv_bytes_per_token
            self.tools.metrics.kv_bytes.labels(src.id, self.exchange.grant.decode.id).inc(size)
            self.exchange.span.note("pdops.kv.bytes", size)


async def end_with_error(response: web.StreamResponse, message: str) -> None:
    """Say inside a stream that it ends badly."""
    try:
        # The engine may have broken off inside a line.
        await response.write(b"\n\ndata: " + json.dumps({"error": {"message": message}}).encode() + b"\n\n")
        await response.write_eof()
    except (aiohttp.ClientConnectionResetError, ConnectionResetError):
        return  # the client has gone too; what happened is counted already
