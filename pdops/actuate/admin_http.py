"""Bounded HTTP to admin APIs: to the address of the inventory and no other, through no proxy, with a limit on time and size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import requests

from pdops.clock import WallClock
from pdops.errors import ActionError

TIMEOUT_S = (2.0, 10.0)
"""To connect and to answer, in seconds: who needs longer for a list of workers is not well."""
WHOLE_S = 30.0
"""To the end of an answer, in seconds: one that comes in drops never stalls, and is never there."""
_LIMIT = 4 << 20
_PIECE = 1 << 16
_CLOCK = WallClock()


class AdminHttp:
    """One admin API.

    Args:
        url: where it is.
        token_file: holds the bearer token it wants, None without one.
    """

    who = "the admin API"

    def __init__(self, url: str, token_file: Path | None = None) -> None:
        self.url, self._token_file = url.rstrip("/"), token_file

    def ask(self, method: str, path: str, content: object = None, *, fine: tuple[int, ...] = ()) -> tuple[int, Any]:
        """Return status and JSON, or text that is none; statuses of `fine` are answers too.

        Raises:
            ActionError: no answer, none that ends within `WHOLE_S`, one that is too large, or another status.
        """
        headers, end = {}, _CLOCK.monotonic() + WHOLE_S
        try:
            if self._token_file is not None:
                headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='utf-8').strip()}"
            with requests.Session() as session:
                session.trust_env = False
                answer = session.request(
                    method, self.url + path, json=content, headers=headers, timeout=TIMEOUT_S, allow_redirects=False,
                    stream=True,
                )  # fmt: skip
                body = bytearray()
                # Not `raw`, whose errors for an answer that stalls or is cut off are none of those caught here.
                for piece in answer.iter_content(_PIECE):
                    body += piece
                    if len(body) > _LIMIT:
                        # A part of a page counts a part of the requests, and a worker looks emptier than it is.
                        raise ActionError(
                            f"{self.who} answers too much", where=f"{self.url}{path}", why=f"more than {_LIMIT >> 20} MiB",
                            hint="check its address",
                        )  # fmt: skip
                    if _CLOCK.monotonic() > end:
                        raise requests.Timeout(f"timed out: its answer had not ended after {WHOLE_S:.0f} s")
        except (OSError, requests.RequestException) as error:
            raise ActionError(
                f"{self.who} does not answer",
                where=self.url,
                why=str(error)[:300],
                hint="check its address and token file",
            ) from error
        try:
            told = json.loads(body) if body else None
        except ValueError:
            told = body.decode("utf-8", "replace")
        if not (200 <= answer.status_code < 300 or answer.status_code in fine):
            raise ActionError(
                f"{self.who} says {answer.status_code}",
                where=f"{self.url}{path}",
                why=str(told)[:300],
                hint="see its log",
            )
        return answer.status_code, told
