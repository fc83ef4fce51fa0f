"""Calls of engines: one for prefill, one for decode, one that gives KV free. None is ever repeated."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp

from pdops.router import body
from pdops.router.metrics import Outcome
from pdops.router.stream import error_of
from pdops.router.workers import Registry, Worker

RELEASE_TIMEOUT_S = 5.0
LINGER_S = 0.5
"""A client that leaves while decode has not begun to answer: the connection stays open this long at most. vLLM forgets a
request whose connection ends before it has read the body, and prefill's KV would stay until its lease ends."""
_READ_BYTES = 1 << 20
"""Half of the longest line of a stream; log-probabilities of a long prompt come as one."""
_MESSAGE_CHARS = 500
_MOST_TOKENS = 1 << 40
log = logging.getLogger(__name__)


class Ended(Exception):  # noqa: N818  it ends a request, not always badly
    """A request ends here, before anything was sent to its client."""

    def __init__(
        self, outcome: Outcome, status: int, message: str, *, reason: str = "", retry_after_s: int | str | None = None
    ) -> None:
        super().__init__(message)
        self.outcome, self.status, self.message = outcome, status, message
        self.reason, self.retry_after_s = reason or outcome.value, retry_after_s


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What prefill answered: where its KV lies (None when it said nothing), and the prompt's tokens."""

    address: dict[str, Any] | None
    prompt_tokens: int | None

    @property
    def blocks(self) -> int | None:
        """Blocks of KV to hand over; the mean over the groups of a hybrid model, None when they are not told."""
        found = (self.address or {}).get("remote_block_ids")
        if not isinstance(found, list):
            return None
        if found and all(isinstance(group, list) for group in found):
            return round(sum(map(len, found)) / len(found))
        return len(found)


@dataclass(slots=True)
class Delivery:
    """Whether a request left for the engine; told by the session while it sends."""

    sent: bool = False


class Engines:
    """The session to all engines.

    Args:
        registry: told at once of a worker that refuses connections.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the session."""
        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(_note_sent)
        # Engines close idle connections after seconds; a new one each time cannot meet that race.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        # One client's cookie is no other's, and workers set none that a router would need.
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            trace_configs=[trace],
            read_bufsize=_READ_BYTES,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session; only between `open` and `close`."""
        assert self._session is not None
        return self._session

    async def prefill(self, worker: Worker, path: str, leg: dict[str, Any], headers: dict[str, str]) -> Prefilled:
        """Have a prompt prefilled.

        Raises:
            Ended: prefill did not.
        """
        answer = await self.call(worker, path, leg, headers, Delivery())
        async with answer:
            content = await whole(answer, worker)
        address = content.get("kv_transfer_params")
        usage = content.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        # A number no prompt can have is none; what learns from it computes with floats.
        known = isinstance(tokens, int) and 0 <= tokens < _MOST_TOKENS
        return Prefilled(address if isinstance(address, dict) and address else None, tokens if known else None)

    async def call(
        self, worker: Worker, path: str, leg: dict[str, Any], headers: dict[str, str], delivery: Delivery
    ) -> aiohttp.ClientResponse:
        """Post to a worker and return its answer once its headers are there, whatever its status.

        Raises:
            Ended: it cannot be reached, or broke off.
        """
        try:
            return await self.session.post(
                f"{worker.spec.url}{path}",
                json=leg,
                headers=headers,
                allow_redirects=False,
                trace_request_ctx=delivery,
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if isinstance(error, aiohttp.ClientConnectorError) and worker.id in self._registry.workers:
                self._registry.mark(worker, up=False, why=str(error))
            raise unreachable(worker, error) from error

    async def release(self, address: dict[str, Any], first: Worker, headers: dict[str, str]) -> str:
        """Have a decode worker tell prefill that its KV is not wanted; return `sent`, `no_decode` or `failed`.

        Any decode worker can: the one chosen if it is up, else another.
        """
        others = self._registry.of(first.spec.role)
        able = sorted((w for w in others if w.up), key=lambda w: w is not first)
        if not able:
            return "no_decode"
        try:
            async with (
                asyncio.timeout(RELEASE_TIMEOUT_S),
                self.session.post(
                    f"{able[0].spec.url}/v1/completions",
                    json=body.release(address),
                    headers=headers,
                    allow_redirects=False,
                ) as answer,
            ):
                # Only "no such model" comes from behind the point where vLLM takes care of the KV.
                return "sent" if answer.status == 404 else "failed"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("cannot give KV free through %s: %r", able[0].id, error)
            return "failed"


async def whole(answer: aiohttp.ClientResponse, worker: Worker) -> dict[str, Any]:
    """Read an answer that is one JSON object.

    Raises:
        Ended: the status is an error, it holds an error object, is no JSON object, or broke off.
    """
    try:
        text = await answer.text()
    except (aiohttp.ClientError, OSError, ValueError, LookupError) as error:
        raise unreachable(worker, error) from error
    if answer.status != 200:
        raise refused(answer, text, worker)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Ended(Outcome.ERROR, 502, f"{worker.id} answered what is not JSON: {text[:120]!r}") from error
    if not isinstance(content, dict):
        raise Ended(Outcome.ERROR, 502, f"{worker.id} answered what is not a JSON object")
    if (message := error_of(content)) is not None:
        raise Ended(Outcome.ERROR, 502, f"{worker.id}: {message[:_MESSAGE_CHARS]}")
    return content


def refused(answer: aiohttp.ClientResponse, text: str, worker: Worker) -> Ended:
    """Return the end of a request an engine answered with an error status; its status is passed on."""
    try:
        content = json.loads(text)
        message = (error_of(content) if isinstance(content, dict) else None) or text
    except (ValueError, RecursionError):
        message = text
    outcome = Outcome.REJECTED if answer.status in (429, 503) else Outcome.ERROR
    status = answer.status if 400 <= answer.status < 600 else 502
    return Ended(
        outcome,
        status,
        f"{worker.id} answered {answer.status}: {message[:_MESSAGE_CHARS]}",
        reason="engine",
        retry_after_s=answer.headers.get("Retry-After") or (1 if outcome is Outcome.REJECTED else None),
    )


def unreachable(worker: Worker, error: Exception) -> Ended:
    """Return the end of a request whose engine cannot be reached or broke off."""
    return Ended(Outcome.ERROR, 502, f"{worker.id}: {str(error) or type(error).__name__}", reason="unreachable")


async def _note_sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    delivery = getattr(context, "trace_request_ctx", None)
    if isinstance(delivery, Delivery):
        delivery.sent = True
