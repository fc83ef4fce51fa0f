"""Read how a router is set up: from its own account of its settings, or by its defaults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from yarl import URL

from pdops.model.cluster import Secret
from pdops.sources.fetch import Fetcher, FetchError

_ADMIN, _SETTINGS = "/admin", "/settings"
DEFAULTS = {
    "policy": "round-robin",
    "queue_limit": "1000",
    "deadline_s": "120.0",
    "prefill_timeout_s": "60.0",
    "first_token_timeout_s": "60.0",
    "stream_idle_timeout_s": "60.0",
    "answer_timeout_s": "600.0",
    "fallback": "none",
    "retries": "0",
}
"""Of pdops-router, as `pdops router --help` prints them."""
_ALWAYS = {"keepalive_s": "0"}
"""pdops-router opens a connection for each request."""
_UNLIMITED = ("deadline_s",)
_TIMEOUT_S = 5.0
_MAX_BYTES = 64 * 1024


def is_own(argv: Sequence[str]) -> bool:
    """Whether a command line starts pdops-router."""
    names = [word.rpartition("/")[2] for word in argv[:6]]
    return "pdops.router" in names or ("router" in names and ("pdops" in names))


def with_defaults(options: dict[str, str]) -> dict[str, str]:
    """Return the settings of a pdops-router that was started with these options."""
    settings = {**DEFAULTS, **options, **_ALWAYS}
    return {k: "unlimited" if k in _UNLIMITED and v == "none" else v for k, v in settings.items()}


def settings_facts(document: Any) -> dict[str, str]:
    """Return the settings that a pdops-router tells of itself; nothing when it is another answer."""
    if not isinstance(document, dict) or "queue_limit" not in document:
        return {}
    facts = {str(k): v if isinstance(v, str) else json.dumps(v) for k, v in document.items() if v is not None}
    return with_defaults(facts | {k: "none" for k in _UNLIMITED if document.get(k, 0) is None})


async def ask_router(url: str, secret: Secret, fetcher: Fetcher) -> tuple[dict[str, str], str | None]:
    """Ask a pdops-router for its settings; returns them, or why they could not be had.

    Args:
        url: its administrative address, with or without `/admin`.
        secret: the token.
        fetcher: the session.
    """
    base = url.rstrip("/").removesuffix(_ADMIN) + _ADMIN
    try:
        answer = await fetcher.get(
            URL(base + _SETTINGS, encoded=True),
            secret,
            accept="application/json",
            timeout_s=_TIMEOUT_S,
            max_bytes=_MAX_BYTES,
        )
        facts = settings_facts(json.loads(answer.body))
    except FetchError as error:
        return {}, error.reason
    except (ValueError, RecursionError):
        return {}, "answer is not JSON"
    return facts, None if facts else "answer does not say"
