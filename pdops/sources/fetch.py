"""Get one page over HTTP: bounded in bytes and seconds, redirects not followed, every failure one sentence."""

from __future__ import annotations

import asyncio
import base64
import errno
import ipaddress
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from yarl import URL

from pdops.clock import Clock
from pdops.errors import UnreachableError
from pdops.model.cluster import Secret

if TYPE_CHECKING:
    import aiohttp

MAX_BODY_BYTES = 16 * 1024 * 1024
CONNECT_TIMEOUT_S = 1.5
_ACCEPT = "text/plain;version=0.0.4"


class FetchError(UnreachableError):
    """The page could not be had; `reason` is one sentence, `status` the HTTP status if there was one."""

    def __init__(self, reason: str, *, where: str, status: int | None = None, size_bytes: int = 0) -> None:
        super().__init__("page cannot be read", where=where, why=reason, hint="check that the worker runs and answers")
        self.reason = reason
        self.status = status
        self.size_bytes = size_bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A body and the Unix time at which its first byte came; `duration_s` is the whole exchange.

    `date` is the Date header as sent, empty without one.
    """

    body: bytes
    at_s: float
    duration_s: float
    date: str = ""


class Fetcher:
    """One HTTP session for all targets.

    Args:
        clock: for durations.
        now: gives Unix seconds for answers.
        timeout_s: for a whole exchange, in seconds.
        max_body_bytes: a longer body, after decompression, is an error and the connection is closed.
    """

    def __init__(
        self, clock: Clock, now: Callable[[], float], *, timeout_s: float, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._clock = clock
        self._now = now
        self._timeout_s = timeout_s
        self._max = max_body_bytes
        self._session: aiohttp.ClientSession | None = None
        self._tls: dict[Secret, tuple[tuple[float, ...], ssl.SSLContext]] = {}
        self.bytes_read = 0

    async def get(
        self,
        url: URL,
        secret: Secret,
        *,
        accept: str = _ACCEPT,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the body of a page that answered 200.

        Raises:
            FetchError: anything else happened.
        """
        # A tenth of a second to load, which a screen's first frame does not wait for.
        import aiohttp

        limit = self._max if max_bytes is None else min(self._max, max_bytes)
        total = self._timeout_s if timeout_s is None else timeout_s
        where = str(url)
        start = self._clock.monotonic()
        try:
            sent = {**(headers or {}), "Accept": accept, **auth_headers(secret)}
            if is_loopback(url):
                sent["Accept-Encoding"] = "identity"
            async with self._open().get(
                url,
                headers=sent,
                allow_redirects=False,
                ssl=self.tls(secret) if url.scheme == "https" else True,
                timeout=aiohttp.ClientTimeout(total=total, connect=None, sock_connect=min(total, CONNECT_TIMEOUT_S)),
            ) as response:
                at_s = self._now()
                if response.status != 200:
                    note = " (redirects are not followed)" if 300 <= response.status < 400 else ""
                    response.close()
                    raise FetchError(f"HTTP {response.status}{note}", where=where, status=response.status)
                body = await self._read(response, limit, where)
            return Answer(body, at_s, self._clock.monotonic() - start, response.headers.get("Date", "")[:64])
        except FetchError:
            raise
        except Exception as error:
            # Whatever a hostile or broken peer provokes in the client is how that peer answered, not a failure of ours.
            raise FetchError(failure_reason(error, total), where=where) from error

    async def aclose(self) -> None:
        """Close all connections; may be called twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _read(self, response: aiohttp.ClientResponse, limit: int, where: str) -> bytes:
        length = response.content_length
        too_long = f"answer is longer than {limit} bytes; reading stopped"
        if length is not None and length > limit:
            response.close()
            raise FetchError(too_long, where=where, size_bytes=length)
        if length is not None and "Content-Encoding" not in response.headers:
            body = await response.read()
            self.bytes_read += len(body)
            return body
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            self.bytes_read += len(chunk)
            if size > limit:
                response.close()
                raise FetchError(too_long, where=where, size_bytes=size)
            chunks.append(chunk)
        return b"".join(chunks)

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
            )
        return self._session

    def tls(self, secret: Secret) -> ssl.SSLContext | bool:
        """Return who is trusted and who we are, read again when a file changed; True for the defaults."""
        if secret.ca is None and secret.cert is None:
            return True
        changed = tuple(os.stat(path).st_mtime for path in (secret.ca, secret.cert, secret.key) if path is not None)
        known = self._tls.get(secret)
        if known is not None and known[0] == changed:
            return known[1]
        context = ssl.create_default_context(cafile=secret.ca)
        if secret.cert is not None:
            context.load_cert_chain(secret.cert, secret.key)
        self._tls[secret] = (changed, context)
        return context


class SecretError(Exception):
    """A file that holds a secret cannot be read; the text is one sentence."""


def auth_headers(secret: Secret) -> dict[str, str]:
    """Return the headers that show who we are, read from the referenced files now.

    Raises:
        SecretError: a file cannot be read.
    """
    if secret.bearer_token_file is not None:
        return {"Authorization": f"Bearer {_secret_text(secret.bearer_token_file, 'bearer_token_file')}"}
    if secret.username is not None:
        password = "" if secret.password_file is None else _secret_text(secret.password_file, "password_file")
        token = base64.b64encode(f"{secret.username}:{password}".encode()).decode("ascii")
        return {"Authorization": f"Basic {token}"}
    return {}


def _secret_text(path: str, what: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(65536).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SecretError(f"{what} {path} cannot be read: {why}") from error


@lru_cache(maxsize=4096)
def is_loopback(url: URL) -> bool:
    """Return whether the address stays on this machine, where packing costs more than it saves."""
    host = url.host or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def failure_reason(error: BaseException, total_s: float) -> str:
    """Say in one sentence why there is no answer."""
    import aiohttp

    match error:
        case SecretError():
            return str(error)
        case aiohttp.ConnectionTimeoutError():
            return f"no connection within {min(total_s, CONNECT_TIMEOUT_S):g} s"
        case asyncio.TimeoutError():
            return f"no answer within {total_s:g} s"
        case aiohttp.ClientConnectorDNSError():
            return f"name {error.host} does not resolve"
        case aiohttp.ClientConnectorCertificateError():
            return f"TLS certificate is not accepted: {error.certificate_error}"
        case aiohttp.ClientConnectorError() | aiohttp.ClientOSError():
            code = error.os_error.errno if isinstance(error, aiohttp.ClientConnectorError) else error.errno
            return {
                errno.ECONNREFUSED: "connection refused",
                errno.ECONNRESET: "connection reset",
                errno.EHOSTUNREACH: "host is unreachable",
                errno.ENETUNREACH: "network is unreachable",
                errno.EMFILE: "too many open files: raise the limit of this process (ulimit -n)",
            }.get(code or 0, f"connection failed: {error}")
        case aiohttp.ServerDisconnectedError():
            return "connection closed without an answer"
        case aiohttp.ClientPayloadError():
            return "answer broke off"
        case aiohttp.ClientResponseError():
            return "answer is not HTTP"
        case aiohttp.InvalidURL() | ValueError():
            return "address is not a URL"
        case OSError():
            return error.strerror or type(error).__name__
    return f"{type(error).__name__}: {error}"
