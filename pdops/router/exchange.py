"""One request on its way: prefill, hand-off, decode."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from pdops.model.cluster import Role
from pdops.router.body import Prompted
from pdops.router.decode import DecodeLeg
from pdops.router.legs import Ended, Prefilled
from pdops.router.metrics import Outcome
from pdops.router.queue import Ask, Grant
from pdops.router.stream import StreamReader
from pdops.router.tools import Tools
from pdops.router.workers import Worker
from pdops.telemetry.tracing import Attribute, Span

SETTLE_S = 1.0
"""A prefill whose client left is aborted after this long. One that ends at the moment of its abort leaves KV nobody knows
of, so those that are nearly done are waited for; longer ones cost more than the rare lease they would save."""
GONE = 499
"""Status of a request whose client is said to have gone; nobody reads it."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request: who serves it, what came so far. Times are monotonic seconds.

    `owed` is the KV address nobody has been told of yet: whoever ends the exchange before decode was called has it freed.
    """

    tools: Tools
    request: web.Request
    prompted: Prompted
    ask: Ask
    headers: dict[str, str]
    span: Span
    grant: Grant
    prefilled: Prefilled | None = None
    owed: dict[str, Any] | None = None
    answered_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None
    reader: StreamReader = field(default_factory=StreamReader)
    response: web.StreamResponse | None = None

    async def run(self) -> tuple[Outcome, web.StreamResponse]:
        """Serve it, and leave nothing held: no place on a worker, no KV on prefill.

        Raises:
            Ended: nothing was sent to the client yet.
        """
        try:
            if self.grant.prefill is None:
                self._fell_back("no_prefill")
            else:
                await self._prefill(self.grant.prefill)
            if self.tools.drill.abandons():
                self.owed = None
                raise Ended(Outcome.ABORTED, GONE, "abandoned after prefill, as the drill wants", reason="drill")
            return await DecodeLeg(self, self.tools, self.grant.decode).serve()
        finally:
            self.tools.queue.give_back(self.grant)
            if self.owed is not None:
                self.tools.background.spawn(self.release(self.owed))

    async def _prefill(self, worker: Worker) -> None:
        tools, begin = self.tools, self.tools.clock.monotonic()
        try:
            with self.phase("prefill", worker) as span:
                self.prefilled = await self._prefill_leg(worker, {**self.headers, **span.headers()})
                span.note("gen_ai.usage.input_tokens", self.prefilled.prompt_tokens)
        except Ended as end:
            if tools.settings.fallback != "decode-only" or 400 <= end.status < 500:
                raise
            self._fell_back("prefill_failed")
            return
        finally:
            tools.queue.give_back(self.grant, Role.PREFILL)
        self.answered_s = tools.clock.monotonic()
        tools.metrics.prefill.labels(worker.id).observe(self.answered_s - begin)
        tools.estimator.learn(worker.id, self.answered_s - begin, self.ask.size)
        self.owed = self.prefilled.address
        if self.owed is None:
            if tools.settings.fallback != "decode-only":
                message = f"{worker.id} gave no KV address; decode alone is not served (--fallback none)"
                raise Ended(Outcome.ERROR, 502, message, reason="no_kv_address")
            self._fell_back("no_kv_address")
        await tools.drill.hold()
        self._check_deadline(worker)

    async def _prefill_leg(self, worker: Worker, headers: dict[str, str]) -> Prefilled:
        leg = self.tools.engines.prefill(worker, self.request.path, self.prompted.prefill(), headers)
        task = asyncio.create_task(leg)
        limit_s = self.tools.settings.prefill_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.shield(task)
        except (TimeoutError, asyncio.CancelledError) as end:
            worker.inflight += 1
            self.tools.background.spawn(self._settle(task, worker))
            if isinstance(end, TimeoutError):
                message = f"{worker.id} did not prefill within {limit_s:g} s"
                raise Ended(Outcome.TIMEOUT, 504, message) from None
            raise

    async def _settle(self, task: asyncio.Task[Prefilled], worker: Worker) -> None:
        """End a prefill nobody waits for, and have its KV given free if it came about all the same.

        It takes over one place on the worker.
        """
        try:
            await asyncio.wait([task], timeout=SETTLE_S)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        finally:
            worker.inflight -= 1
            self.tools.queue.pump()
        if not task.cancelled() and task.exception() is None and (address := task.result().address) is not None:
            await self.release(address)

    def _check_deadline(self, prefill: Worker) -> None:
        if self.ask.deadline_s is None:
            return
        tokens = (self.prefilled and self.prefilled.prompt_tokens) or 0
        need = self.tools.estimator.seconds((prefill.id, self.grant.decode.id), tokens)
        late = self.tools.clock.monotonic() + need - self.ask.deadline_s
        if late > 0:
            self.tools.metrics.rejected.labels("deadline_transfer").inc()
            message = f"the KV hand-off is expected to end {late:.1f} s after the deadline"
            wait_s = self.tools.queue.retry_after_s()
            raise Ended(Outcome.REJECTED, 503, message, reason="deadline_transfer", retry_after_s=wait_s)

    def _fell_back(self, reason: str) -> None:
        self.tools.metrics.fallback.labels(reason, self.grant.decode.id).inc()
        self.span.note("pdops.fallback", reason)
        self.tools.queue.give_back(self.grant, Role.PREFILL)
        self.grant.prefill = None

    async def release(self, address: dict[str, Any]) -> None:
        """Have the KV at an address given free, and count how that went."""
        self.tools.metrics.kv_release.labels(
            await self.tools.engines.release(address, self.grant.decode, self.headers)
        ).inc()

    @contextmanager
    def phase(self, name: str, worker: Worker) -> Iterator[Span]:
        """Measure a phase that a worker does; a phase that fails is not measured."""
        begin = self.tools.clock.monotonic()
        at = urlsplit(worker.spec.url)
        facts: dict[str, Attribute] = {"pdops.worker.id": worker.id, "server.address": at.hostname or ""}
        if at.port is not None:
            facts["server.port"] = at.port
        with self.span.child(f"pdops.{name}", facts, client=True) as span:
            try:
                yield span
            except Ended as end:
                span.fail(end.reason, end.message)
                raise
        self.tools.metrics.phase.labels(name).observe(self.tools.clock.monotonic() - begin)
