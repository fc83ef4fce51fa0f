"""Try TCP connections, each bounded, all together bounded."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

CONNECT_TIMEOUT_S = 1.5
AT_ONCE = 64
MOST = 4_096
"""Connections tried in one run; the rest is left unread."""


class Place(NamedTuple):
    """An address to connect to."""

    host: str
    port: int


async def connect(place: Place, timeout_s: float = CONNECT_TIMEOUT_S) -> str:
    """Connect and hang up at once; returns `ok`, `refused`, `timeout`, `unresolved` or the system's own words."""
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(place.host, place.port)
    except TimeoutError:
        return "timeout"
    except socket.gaierror:
        return "unresolved"
    except ConnectionRefusedError:
        return "refused"
    except (OSError, ValueError, OverflowError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return "ok"


async def connect_all(places: Iterable[Place], timeout_s: float = CONNECT_TIMEOUT_S) -> Mapping[Place, str]:
    """Try each place once, at most 64 at a time and 4,096 in all."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(place: Place) -> tuple[Place, str]:
        async with gate:
            return place, await connect(place, timeout_s)

    return dict(await asyncio.gather(*(one(place) for place in list(dict.fromkeys(places))[:MOST])))
