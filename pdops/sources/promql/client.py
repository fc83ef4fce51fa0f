"""Ask a Prometheus-compatible HTTP API.

Only calls that Prometheus, VictoriaMetrics, Thanos and Mimir all document are used.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from pdops.errors import UsageError
from pdops.model.cluster import Secret
from pdops.sources.promql.api import Answer, QueryError, Trouble, checked, not_api, plain, rows

MAX_BYTES = 32 * 1024 * 1024
"""An answer larger than this is not read to its end."""
MAX_AT_ONCE = 6
GRACE_S = 1.0
"""How much longer than the server an answer is waited for, in seconds."""
_SECRET_BYTES = 64 * 1024


def check_url(url: str) -> str:
    """Return the base URL without a trailing slash.

    Raises:
        UsageError: it is not an HTTP URL, or carries a password.
    """
    hint = "write it as http://prometheus:9090, with the path prefix if there is one"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        parts, good = urlsplit(""), False
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "the Prometheus URL carries credentials",
            where=parts.hostname or "",
            hint="leave them out of the URL and give basic_auth with a password_file",
        )
    if not good or parts.query or parts.fragment:
        raise UsageError("not the address of a Prometheus server", where=plain(url), hint=hint)
    return url.rstrip("/")


class PromqlClient:
    """A connection to one server. `timeout_s` bounds one question on both sides, in seconds."""

    def __init__(
        self,
        url: str,
        *,
        secret: Secret | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self.url = check_url(url)
        self._secret = secret or Secret()
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._gate = asyncio.Semaphore(MAX_AT_ONCE)
        self._by_get = False
        self._closed = False
        self.asked = 0

    async def query(self, expr: str, at_s: float | None = None) -> Answer:
        """Evaluate an expression at one moment (Unix seconds of the server), by default its own now.

        Raises:
            QueryError: no usable answer came.
            UsageError: a secret cannot be read.
        """
        when = {"time": f"{at_s:.3f}"} if at_s is not None else {}
        return await self._ask("query", {"query": expr, **when}, self._timeout_s)

    async def query_range(self, expr: str, start_s: float, end_s: float, step_s: float) -> Answer:
        """Evaluate an expression from `start_s` to `end_s` every `step_s` seconds; three times the usual patience.

        Raises:
            QueryError: no usable answer came.
            UsageError: a secret cannot be read.
        """
        when = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        return await self._ask("query_range", {"query": expr, **when}, 3 * self._timeout_s)

    async def label_values(self, label: str, start_s: float, end_s: float) -> tuple[str, ...]:
        """Return the values a label has between two moments, sorted.

        Raises:
            QueryError: no usable answer came.
            UsageError: a secret cannot be read.
        """
        when = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}"}
        data, _, _ = await self._call(f"label/{label}/values", when, self._timeout_s, post=False)
        return tuple(sorted(str(value) for value in data)) if isinstance(data, list) else ()

    async def aclose(self) -> None:
        """Close the connections; may be called twice."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, call: str, params: dict[str, str], timeout_s: float) -> Answer:
        # VictoriaMetrics moves an instant query 30 s into the past unless it is told not to; the others ignore this.
        params |= {"timeout": f"{timeout_s:g}s", "nocache": "1"}
        data, warnings, size = await self._call(call, params, timeout_s, post=not self._by_get)
        try:
            return Answer(rows(data), warnings, size)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise not_api(f"the answer has an unexpected shape ({plain(repr(error), 80)})") from error

    async def _call(
        self, call: str, params: Mapping[str, str], timeout_s: float, *, post: bool
    ) -> tuple[Any, tuple[str, ...], int]:
        self.asked += 1
        try:
            async with self._gate, asyncio.timeout(timeout_s + GRACE_S):
                status, kind, body, location = await self._fetch(call, params, post=post)
        except TimeoutError as error:
            why = f"no answer within {timeout_s:g} s"
            raise QueryError(Trouble.TIMEOUT, why, "look at the server's load, or ask less often") from error
        except aiohttp.ClientError as error:
            raise QueryError(Trouble.UNREACHABLE, _reason(error), "check the address and that it runs") from error
        if post and status in (405, 501):
            self._by_get = True
            return await self._call(call, params, timeout_s, post=False)
        if 300 <= status < 400:
            target = plain(urlsplit(location)._replace(query="", fragment="").geturl(), 120)
            raise not_api(f"redirects to {target or 'nowhere'}")
        return await checked(status, kind, body)

    async def _fetch(self, call: str, params: Mapping[str, str], *, post: bool) -> tuple[int, str, bytes, str]:
        session = self._session
        if self._closed:
            raise QueryError(Trouble.UNREACHABLE, "the connection was closed", "open the source again")
        if session is None:
            connector = aiohttp.TCPConnector(ssl=_tls(self._secret), limit=MAX_AT_ONCE)
            session = self._session = aiohttp.ClientSession(connector=connector)
        url = f"{self.url}/api/v1/{call}"
        headers = {"Accept": "application/json", **self._headers, **_authorization(self._secret)}
        body = {"data": params} if post else {"params": params}
        method = "POST" if post else "GET"
        async with session.request(method, url, headers=headers, allow_redirects=False, **body) as answer:  # type: ignore[arg-type]
            chunks: list[bytes] = []
            size = 0
            async for chunk in answer.content.iter_chunked(256 * 1024):
                size += len(chunk)
                if size > MAX_BYTES:
                    answer.close()
                    why = f"the answer is larger than {MAX_BYTES // 1024 // 1024} MiB"
                    raise QueryError(Trouble.TOO_LARGE, why, "narrow the selector to one cluster")
                chunks.append(chunk)
            return answer.status, answer.content_type, b"".join(chunks), answer.headers.get("Location", "")


def _reason(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {plain(error.certificate_error, 160)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        # Name resolution has error numbers of its own, below zero.
        text = os.strerror(number) if number is not None and number > 0 else error.os_error.strerror or error.os_error
        return f"{error.host}:{error.port}: {plain(text, 160)}"
    return plain(error, 160) or type(error).__name__


def _tls(secret: Secret) -> ssl.SSLContext | bool:
    if secret.ca is None and secret.cert is None:
        return True
    try:
        context = ssl.create_default_context(cafile=secret.ca)
        if secret.cert is not None:
            context.load_cert_chain(secret.cert, secret.key)
    except (OSError, ValueError) as error:
        names = ", ".join(name for name in (secret.ca, secret.cert, secret.key) if name)
        raise UsageError(
            "TLS files cannot be used", where=names, why=plain(error, 160), hint="give readable PEM files"
        ) from error
    return context


def _authorization(secret: Secret) -> dict[str, str]:
    if secret.bearer_token_file is not None:
        return {"Authorization": f"Bearer {_read(secret.bearer_token_file)}"}
    if secret.username is not None:
        password = _read(secret.password_file) if secret.password_file else ""
        pair = base64.b64encode(f"{secret.username}:{password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_SECRET_BYTES).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not UTF-8 text"
        raise UsageError("a secret cannot be read", where=path, why=why, hint="check path and permissions") from error
    if not text or not text.isprintable():
        raise UsageError(
            "a secret cannot be used",
            where=path,
            why="empty, or more than one line",
            hint="put only the secret into it",
        )
    return text
