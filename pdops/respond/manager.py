"""Ask Alertmanager what fires: it sends nothing again that was once received, and a restart must not forget it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp

from pdops.clock import Clock
from pdops.errors import UnreachableError
from pdops.respond.alerts import BodyError, Listed, check_receiver, read_list
from pdops.respond.status import ManagerStatus

EVERY_S = 30.0
MAX_BYTES = 16 << 20
_TIMEOUT = aiohttp.ClientTimeout(total=10.0)
_WANTED = {"active": "true", "silenced": "true", "inhibited": "true", "unprocessed": "true"}


class Manager:
    """One Alertmanager's API.

    Args:
        url: its address, or None where there is none.
        receiver: only alerts that are routed to it; None takes all.
        cluster: whose Watchdog counts.
        clock: where time comes from.
    """

    def __init__(self, url: str | None, receiver: str | None, cluster: str, clock: Clock) -> None:
        self._url, self._receiver, self._cluster, self._clock = url, receiver, cluster, clock
        self._answered_s: float | None = None
        self._why: str | None = None

    @property
    def there(self) -> bool:
        """Whether there is one to ask."""
        return self._url is not None

    async def listed(self) -> Listed:
        """Return what it has now.

        Raises:
            UnreachableError: it does not answer, not with alerts, or knows no such receiver.
        """
        where = f"{self._url}/api/v2/alerts"
        hint = "check --alertmanager; alerts that were delivered before are not asked for until it answers"
        try:
            async with aiohttp.ClientSession(timeout=_TIMEOUT, cookie_jar=aiohttp.DummyCookieJar()) as session:
                if self._receiver is not None:
                    check_receiver(await _body(session, f"{self._url}/api/v2/receivers", {}), self._receiver)
                body = await _body(session, where, _WANTED)
            found = await asyncio.to_thread(read_list, body, self._receiver, self._cluster)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, BodyError) as error:
            self._why = str(error) or type(error).__name__
            raise UnreachableError(
                "Alertmanager does not say what fires", where=where, why=self._why, hint=hint
            ) from error
        self._answered_s, self._why = self._clock.monotonic(), None
        return found

    def status(self) -> ManagerStatus:
        """Return how it is."""
        age_s = None if self._answered_s is None else self._clock.monotonic() - self._answered_s
        if self._url is None:
            return ManagerStatus(state="off", age_s=None, why="no --alertmanager: what was missed is not asked for")
        if self._why is not None:
            return ManagerStatus(state="failing", age_s=age_s, why=self._why)
        return ManagerStatus(state="waiting" if age_s is None else "ok", age_s=age_s, why="")


async def _body(session: aiohttp.ClientSession, url: str, params: Mapping[str, str]) -> bytes:
    async with session.get(url, params=params, allow_redirects=False) as answer:
        if answer.status != 200:
            raise BodyError(answer.status, f"HTTP {answer.status}")
        body = bytearray()
        async for chunk in answer.content.iter_chunked(1 << 16):
            body += chunk
            if len(body) > MAX_BYTES:
                raise BodyError(413, f"more than {MAX_BYTES} bytes")
        return bytes(body)
