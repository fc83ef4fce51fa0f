"""A completion request from its arrival to what is counted of it."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid

from aiohttp import web

from pdops.router import body
from pdops.router.exchange import Exchange
from pdops.router.legs import Ended
from pdops.router.live import let_in, salted
from pdops.router.metrics import Outcome
from pdops.router.queue import SERVICE, Ask, Grant, Rejected
from pdops.router.settings import MAX_BODY_BYTES
from pdops.router.tools import Tools
from pdops.telemetry.tracing import Attribute, Span, Tracer

PATHS = {"/v1/completions": "text_completion", "/v1/chat/completions": "chat"}
"""Paths served, with their operation names in OpenTelemetry's conventions for generative AI."""
_ID_CHARS = 128
log = logging.getLogger(__name__)


class Handler:
    """Answers completion requests.

    Args:
        tools: what it works with.
        tracer: for spans.
    """

    def __init__(self, tools: Tools, tracer: Tracer) -> None:
        self._tools, self._tracer = tools, tracer
        self.inflight = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request; a cancelled one is that of a client that left."""
        begin = self._tools.clock.monotonic()
        operation = PATHS[request.path]
        facts: dict[str, Attribute] = {"gen_ai.operation.name": operation, "gen_ai.provider.name": "pdops"}
        self._count(+1)
        record = _Record()
        try:
            with self._tracer.request(operation, request.headers, facts) as span:
                try:
                    response = await self._serve(request, begin, span, record)
                except Ended as end:
                    record.outcome = end.outcome
                    span.fail(end.reason, end.message)
                    if end.status >= 500:
                        log.warning("%s: %s", end.reason, end.message)
                    return error_response(end.status, end.message, retry_after_s=end.retry_after_s)
                except (
                    Exception
                ):  # a defect of ours is no client that left: it counts as an error, then goes on its way
                    record.outcome = Outcome.ERROR
                    raise
                finally:
                    _note_end(span, record)
                return response
        finally:
            self._count(-1)
            self._account(record, begin)

    async def _serve(self, request: web.Request, begin: float, span: Span, record: _Record) -> web.StreamResponse:
        prompted = salted(await _read(request, self._tools.settings.body_timeout_s), self._tools.settings)
        if not let_in(self._tools.settings):
            self._tools.metrics.rejected.labels("not_admitted").inc()
            why = "the router lets only a share of new requests in now"
            raise Ended(
                Outcome.REJECTED, 503, why, reason="not_admitted", retry_after_s=self._tools.queue.retry_after_s()
            )
        _note_request(span, PATHS[request.path], prompted)
        limit_s = self._tools.settings.deadline_s
        ask = Ask(prompted.key, prompted.size, begin, None if limit_s is None else begin + limit_s)
        grant = await self._acquire(ask, span)
        record.exchange = Exchange(
            tools=self._tools,
            request=request,
            prompted=prompted,
            ask=ask,
            headers=leg_headers(request),
            span=span,
            grant=grant,
        )
        record.outcome, response = await record.exchange.run()
        return response

    async def _acquire(self, ask: Ask, span: Span) -> Grant:
        metrics = self._tools.metrics
        try:
            with span.child("pdops.queue", {"pdops.queue.depth": self._tools.queue.depth}):
                grant = await self._tools.queue.acquire(ask)
        except Rejected as no:
            metrics.rejected.labels(no.reason).inc()
            end = Ended(Outcome.REJECTED, 503, no.why, reason=no.reason, retry_after_s=no.retry_after_s)
            raise end from None
        waited = self._tools.clock.monotonic() - ask.arrival_s
        metrics.queue.observe(waited)
        metrics.phase.labels("queue").observe(waited)
        return grant

    def _count(self, change: int) -> None:
        self.inflight += change
        self._tools.metrics.inflight.set(self.inflight)

    def _account(self, record: _Record, begin: float) -> None:
        metrics, outcome, exchange = self._tools.metrics, record.outcome, record.exchange
        metrics.requests.labels(outcome).inc()
        took = self._tools.clock.monotonic() - begin
        if outcome is Outcome.OK:
            metrics.request.observe(took)
        if exchange is not None:
            if exchange.grant.prefill is not None:
                metrics.pairs.labels(exchange.grant.prefill.id, exchange.grant.decode.id, outcome).inc()
            if exchange.reader.pieces or exchange.reader.done:
                metrics.ended_with(exchange.reader.finish)
            if outcome is Outcome.OK:
                self._tools.estimator.learn(SERVICE, took, 1.0)
        self._promises(outcome, exchange, begin)

    def _promises(self, outcome: Outcome, exchange: Exchange | None, begin: float) -> None:
        settings, metrics = self._tools.settings, self._tools.metrics
        if outcome is Outcome.ABORTED or (settings.slo_ttft_s is None and settings.slo_itl_s is None):
            return
        kept: list[bool] = []
        if exchange is not None and exchange.first_s is not None and exchange.last_s is not None:
            if settings.slo_ttft_s is not None:
                kept.append(exchange.first_s - begin <= settings.slo_ttft_s)
                metrics.promised("ttft", met=kept[-1])
            gaps = exchange.reader.pieces - 1
            if settings.slo_itl_s is not None and gaps > 0:
                kept.append((exchange.last_s - exchange.first_s) / gaps <= settings.slo_itl_s)
                metrics.promised("itl", met=kept[-1])
        if outcome is not Outcome.OK:
            metrics.promised("request", met=False)
        elif kept:
            # What was not streamed shows no first token, so nobody can say whether it kept its promise.
            metrics.promised("request", met=all(kept))


class _Record:
    """What is known of a request at its end; one whose client leaves is cancelled before it can say anything else."""

    outcome = Outcome.ABORTED
    exchange: Exchange | None = None


async def _read(request: web.Request, limit_s: float) -> body.Prompted:
    try:
        async with asyncio.timeout(limit_s):
            content = json.loads(await request.read())
    except TimeoutError:
        # No engine was asked: it is the client that was late, so no promise of ours counts as broken.
        message = f"the body did not come within {limit_s:g} s"
        raise Ended(Outcome.ABORTED, 408, message, reason="slow_body") from None
    except web.HTTPRequestEntityTooLarge:
        message = f"the body is larger than {MAX_BODY_BYTES >> 20} MiB"
        raise Ended(Outcome.ERROR, 413, message, reason="bad_request") from None
    except (ValueError, RecursionError) as error:
        raise Ended(Outcome.ERROR, 400, f"the body is not JSON: {error}", reason="bad_request") from None
    try:
        return body.read(content, chat=PATHS[request.path] == "chat")
    except body.BadRequestError as error:
        raise Ended(Outcome.ERROR, 400, str(error), reason="bad_request") from None


def leg_headers(request: web.Request) -> dict[str, str]:
    """Return what both legs carry on: the caller's credentials, and a request id both engines write into their logs.

    A caller may use an id twice at once and engines may not, so each request adds something of its own.
    """
    given, mine = request.headers.get("X-Request-Id", "")[:_ID_CHARS], uuid.uuid4().hex
    headers = {"X-Request-Id": f"{given}-{mine[:8]}" if given else mine}
    if credentials := request.headers.get("Authorization"):
        headers["Authorization"] = credentials
    return headers


def _note_request(span: Span, operation: str, prompted: body.Prompted) -> None:
    if prompted.model:
        span.rename(f"{operation} {prompted.model}")
    span.note("gen_ai.request.model", prompted.model)
    limit = prompted.body.get("max_completion_tokens", prompted.body.get("max_tokens"))
    span.note("gen_ai.request.max_tokens", limit if isinstance(limit, int) else None)


def _note_end(span: Span, record: _Record) -> None:
    span.note("pdops.outcome", record.outcome.value)
    if record.outcome not in (Outcome.OK, Outcome.EMPTY):
        span.note("error.type", record.outcome.value)
    exchange = record.exchange
    if exchange is None:
        return
    reader, grant = exchange.reader, exchange.grant
    span.note("pdops.pair.src", grant.prefill.id if grant.prefill else None)
    span.note("pdops.pair.dst", grant.decode.id)
    span.note("gen_ai.response.finish_reasons", [reader.finish] if reader.finish else None)
    prompt_tokens = reader.prompt_tokens or (exchange.prefilled.prompt_tokens if exchange.prefilled else None)
    span.note("gen_ai.usage.input_tokens", prompt_tokens)
    span.note("gen_ai.usage.output_tokens", reader.tokens)


def error_response(status: int, message: str, *, retry_after_s: int | str | None = None) -> web.Response:
    """Return an error in the form OpenAI's clients read."""
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    return web.json_response({"error": {"message": message, "code": status}}, status=status, headers=headers)
