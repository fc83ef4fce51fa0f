"""`/v1/models`: which models the workers serve, told by one of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from pdops.router.legs import Ended, refused
from pdops.router.workers import Worker

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 20
"""Longest answer that is passed on; a card of vLLM with all its permissions is below 1 kB."""


async def models(session: aiohttp.ClientSession, worker: Worker, headers: Mapping[str, str]) -> dict[str, Any] | None:
    """Return a worker's list of models, None when it gives none.

    Raises:
        Ended: the worker refuses the caller (status 4xx), which another would do as well.
    """
    limit = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with session.get(
            f"{worker.spec.url}/v1/models", headers=headers, timeout=limit, allow_redirects=False
        ) as answer:
            text = await _bounded(answer)
            if 400 <= answer.status < 500:
                raise refused(answer, text.decode("utf-8", "replace"), worker)
            content = json.loads(text) if answer.status == 200 else None
    except Ended:
        raise
    except (aiohttp.ClientError, OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and _listed(content.get("data")) else None


def _listed(data: object) -> bool:
    return isinstance(data, list) and all(isinstance(m, dict) and isinstance(m.get("id"), str) for m in data)


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body.

    Raises:
        ValueError: it is too long.
    """
    found = bytearray()
    async for chunk in answer.content.iter_any():
        found += chunk
        if len(found) > MAX_BYTES:
            raise ValueError(f"longer than {MAX_BYTES} bytes")
    return bytes(found)
