"""Send one completion request and read its answer, whole or streamed: bounded in bytes and seconds, never trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from pdops.clock import Clock
from pdops.model.cluster import Worker
from pdops.probe.report import Api
from pdops.sources.fetch import CONNECT_TIMEOUT_S, Fetcher, auth_headers, failure_reason
from pdops.sources.redact import clean, redact

MAX_ANSWER_BYTES = 1024 * 1024
"""An answer of a handful of tokens is a few kilobytes; KV addresses of many blocks make the longest."""
_MAX_WHY = 200
_LEAST_S = 0.05
"""aiohttp takes a limit of zero for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one worker answered.

    Args:
        answered: whether it answered at all, an error included.
        status: HTTP status, None without an answer.
        error: why this is not a whole, sound answer, one sentence; empty when it is.
        text: the output; of a reasoning model the reasoning first.
        tokens: ids of the output tokens, where the engine tells them.
        finish_reason: as given.
        kv: `kv_transfer_params` for the other leg.
    """

    answered: bool = True
    status: int | None = None
    error: str = ""
    text: str = ""
    tokens: tuple[int, ...] = ()
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    kv: dict[str, Any] | None = None
    first_token_s: float | None = None
    duration_s: float = 0.0

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """The ids when they are all there, else None."""
        return self.tokens if self.tokens and len(self.tokens) == self.completion_tokens else None


@dataclass(slots=True)
class _Reading:
    """What has been read of an answer so far."""

    text: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    error: str = ""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    kv: dict[str, Any] | None = None
    done: bool = False
    choices: bool = False

    def event(self, raw: bytes) -> bool:
        """Take one JSON object of an answer or stream; return whether it carried output."""
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            self._failed(f"the answer is not a JSON object: {_short(raw)}")
            return False
        found = _error(body)
        if found is not None:
            self._failed(found)
        usage = body.get("usage")
        if isinstance(usage, dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens"), self.prompt_tokens)
            self.completion_tokens = _count(usage.get("completion_tokens"), self.completion_tokens)
        if isinstance(body.get("kv_transfer_params"), dict):
            self.kv = body["kv_transfer_params"]
        choices = body.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return False
        return self._choice(choices[0])

    def _choice(self, choice: dict[str, Any]) -> bool:
        self.choices = True
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]
        ids = choice.get("token_ids")
        ids = [i for i in ids if isinstance(i, int)] if isinstance(ids, list) else []
        part = next((choice[k] for k in ("delta", "message") if isinstance(choice.get(k), dict)), choice)
        # Some engines call a reasoning model's first part `reasoning`, others `reasoning_content`, some give both.
        thought = part.get("reasoning_content") or part.get("reasoning")
        words = [t for t in (thought, part.get("content"), part.get("text")) if isinstance(t, str) and t]
        self.tokens += ids
        self.text += words
        return bool(ids or words)

    def _failed(self, why: str) -> None:
        self.error = self.error or why

    def answer(self, status: int, first_token_s: float | None, duration_s: float) -> Answer:
        if not self.error and not self.choices:
            self.error = "the answer holds no output"
        return Answer(
            status=status,
            error=self.error,
            text="".join(self.text),
            tokens=tuple(self.tokens),
            finish_reason=self.finish_reason,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            kv=self.kv,
            first_token_s=first_token_s,
            duration_s=duration_s,
        )


def body_of(api: Api, model: str, prompt: str, tokens: int, *, stream: bool, kv: object = None) -> dict[str, Any]:
    """Return a greedy request for exactly `tokens` tokens."""
    body: dict[str, Any] = {"model": model, "temperature": 0, "max_tokens": tokens, "stream": stream}
    # Both are known to vLLM and ignored elsewhere: no early end, and ids, which tell more than text does.
    body |= {"ignore_eos": True, "return_token_ids": True}
    if api is Api.CHAT:
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    if stream:
        body["stream_options"] = {"include_usage": True}
    if kv is not None:
        body["kv_transfer_params"] = kv
    return body


class Asker:
    """Sends completion requests to workers; a context manager that closes its connections.

    Environment variables for proxies are not looked at: a worker's address is meant as it stands.

    Args:
        fetcher: knows whom to trust; its TLS settings are used.
    """

    def __init__(self, clock: Clock, fetcher: Fetcher) -> None:
        self._clock, self._fetcher = clock, fetcher
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Asker:
        # Engines close idle connections after seconds; a new one each time cannot meet that race.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, worker: Worker, api: Api, body: dict[str, Any], request_id: str, *, timeout_s: float) -> Answer:
        """Return what the worker answers within so many seconds; every failure is an Answer with an `error`."""
        assert self._session is not None
        assert worker.url is not None
        url, total = URL(worker.url.rstrip("/") + api.path, encoded=True), max(timeout_s, _LEAST_S)
        begin = self._clock.monotonic()
        status: int | None = None
        try:
            async with self._session.post(
                url,
                json=body,
                headers={"X-Request-Id": request_id, **auth_headers(worker.secret)},
                allow_redirects=False,
                ssl=self._fetcher.tls(worker.secret) if url.scheme == "https" else True,
                timeout=aiohttp.ClientTimeout(total=total, connect=None, sock_connect=min(total, CONNECT_TIMEOUT_S)),
            ) as response:
                status = response.status
                if status != 200:
                    return self._refused(status, await response.content.read(4096), begin)
                return await self._read(response, begin)
        except Exception as error:  # noqa: BLE001  whatever a broken peer provokes in the client is how it answered
            return Answer(
                answered=status is not None,
                status=status,
                error=failure_reason(error, total),
                duration_s=self._clock.monotonic() - begin,
            )

    def _refused(self, status: int, raw: bytes, begin: float) -> Answer:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        found = _error(body) if isinstance(body, dict) else None
        why = f"HTTP {status}: {found or _short(raw)}".rstrip(": ")
        return Answer(status=status, error=why, duration_s=self._clock.monotonic() - begin)

    async def _read(self, response: aiohttp.ClientResponse, begin: float) -> Answer:
        reading, first_s, size, plain = _Reading(), None, 0, bytearray()
        streamed = response.content_type == "text/event-stream"
        async for line in response.content:
            size += len(line)
            if size > MAX_ANSWER_BYTES:
                response.close()
                reading.error = reading.error or f"answer is longer than {MAX_ANSWER_BYTES} bytes; reading stopped"
                break
            if not streamed:
                plain += line
                continue
            payload = line.strip()
            if payload.startswith(b"data:"):
                payload = payload[len(b"data:") :].strip()
            elif not payload.startswith(b"{"):
                continue  # comments, event names, and blank lines; a bare object is an error outside the framing
            if payload == b"[DONE]":
                reading.done = True
            elif reading.event(payload) and first_s is None:
                first_s = self._clock.monotonic() - begin
        if not streamed and not reading.error:
            reading.event(bytes(plain))
        elif streamed and not reading.done and not reading.error:
            reading.error = "the stream broke off before its end"
        return reading.answer(response.status, first_s, self._clock.monotonic() - begin)


def _error(body: dict[str, Any]) -> str | None:
    found = body.get("error")
    if not found and body.get("object") == "error":
        found = body
    if not found and isinstance(body.get("detail"), str):
        found = body["detail"]
    if not found:
        return None
    return _short(str(found.get("message", found)) if isinstance(found, dict) else str(found))


def _count(value: object, before: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else before


def _short(raw: bytes | str) -> str:
    text = raw if isinstance(raw, str) else raw.decode(errors="replace")
    text = redact(clean(" ".join(text.split())))
    return text if len(text) <= _MAX_WHY else text[: _MAX_WHY - 1] + "…"
