"""Ask a Loki server for the new lines of one query."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from yarl import URL

from pdops.clock import Clock
from pdops.model.cluster import Secret
from pdops.sources.fetch import Fetcher, FetchError
from pdops.sources.logs.batch import MAX_LINES, Batch, Line, Trouble, decode

EVERY_S = 5.0
OVERLAP_S = 15.0
"""Lines come late: agents send in batches of some seconds. What was seen is told from what is new by time and text."""
LOOK_BACK_S = 3600.0
"""A query without a line in this time is said to find nothing."""
_TIMEOUT_S = 10.0
_MAX_BYTES = 2 * 1024 * 1024
_REMEMBERED = 8 * MAX_LINES
_LEVELS = frozenset({"warn", "warning", "error", "critical", "fatal"})
_LEVEL_LABELS = ("detected_level", "level", "severity")

Entry = tuple[int, str, bool]
"""Nanoseconds, text, and whether the stream is marked as a warning or worse."""


class LokiLog:
    """The lines of one query; asked for every five seconds, at most 200 at once, the newest ones.

    Args:
        url: address of the server; its API path is added.
        query: a log query, such as `{pod="decode-0"}`.
        tenant: value of X-Scope-OrgID, or None.
    """

    def __init__(
        self,
        url: str,
        query: str,
        *,
        secret: Secret,
        clock: Clock,
        tenant: str | None = None,
        every_s: float = EVERY_S,
    ) -> None:
        self.name = f"loki {query}"
        self.trouble: Trouble | None = None
        self._url = URL(f"{url}/loki/api/v1/query_range", encoded=True)
        self._query, self._secret, self._clock, self._every_s = query, secret, clock, every_s
        self._headers = {} if tenant is None else {"X-Scope-OrgID": tenant}
        self._fetcher = Fetcher(clock, clock.now, timeout_s=_TIMEOUT_S)
        self._seen: OrderedDict[tuple[int, str], None] = OrderedDict()
        self._first_ns: int | None = None
        self._spoke = False
        self._batch = Batch()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def read(self) -> Batch:
        """Return the lines that came since the last call."""
        if self._task is None and not self._closed:
            self._first_ns = _ns(self._clock.now())
            self._task = asyncio.create_task(self._run())
        batch, self._batch = self._batch, Batch()
        return batch

    async def aclose(self) -> None:
        """Stop asking; may be called twice."""
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._fetcher.aclose()

    async def _run(self) -> None:
        while True:
            await self._ask()
            await asyncio.sleep(self._every_s)

    async def _ask(self) -> None:
        now_s = self._clock.now()
        back_s = OVERLAP_S if self._spoke else LOOK_BACK_S
        asked = {
            "query": self._query,
            "start": str(_ns(now_s - back_s)),
            "end": str(_ns(now_s + 1.0)),
            "limit": str(MAX_LINES),
            "direction": "backward",
        }
        try:
            answer = await self._fetcher.get(
                self._url.with_query(asked),
                self._secret,
                accept="application/json",
                max_bytes=_MAX_BYTES,
                headers=self._headers,
            )
            entries = parse(json.loads(answer.body))
        except FetchError as error:
            self.trouble = Trouble(error.reason, _fix(error))
            return
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, NotLinesError) else "the answer is not JSON"
            self.trouble = Trouble(why, "check the address: Loki answers at /loki/api/v1/query_range")
            return
        self._spoke = self._spoke or bool(entries)
        self.trouble = None if self._spoke else Trouble("no line of the last hour matches", "check the query's labels")
        self._take(entries)

    def _take(self, entries: list[Entry]) -> None:
        fresh = [e for e in entries if e[0] >= (self._first_ns or 0) and (e[0], e[1]) not in self._seen]
        for at_ns, text, _ in fresh:
            self._seen[at_ns, text] = None
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        lines = tuple(Line(decode(text.encode("utf-8", "replace")), at_ns / 1e9, heavy) for at_ns, text, heavy in fresh)
        # An answer that is full and all new has cut off what lies before it, and nobody says how much.
        cut = len(entries) >= MAX_LINES and len(fresh) == len(entries)
        before = self._batch
        kept = (*before.lines, *lines)
        gone = max(0, len(kept) - MAX_LINES)
        left_out = before.left_out_lines + gone + int(cut)
        self._batch = Batch(kept[gone:], left_out_lines=left_out, or_more=before.or_more or cut)


class NotLinesError(ValueError):
    """An answer that holds no lines; the text says what it is instead."""


def parse(document: Any) -> list[Entry]:
    """Return the entries of an answer by time.

    Raises:
        NotLinesError: it is no answer with lines.
    """
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        raise NotLinesError("the answer is not Loki's")
    if data.get("resultType") != "streams":
        raise NotLinesError("the query gives numbers, not lines")
    entries: list[Entry] = []
    for stream in data["result"]:
        if not isinstance(stream, dict):
            continue
        heavy = _heavy(stream.get("stream"))
        values = stream.get("values")
        for value in values if isinstance(values, list) else ():
            if isinstance(value, list) and len(value) >= 2 and isinstance(value[1], str):
                at = value[0]
                if isinstance(at, str) and at.isascii() and at.isdigit() and len(at) < 20:
                    entries.append((int(at), value[1], heavy))
    return sorted(entries)[-MAX_LINES:]


def _heavy(labels: Any) -> bool:
    if not isinstance(labels, Mapping):
        return False
    return any(isinstance(v := labels.get(name), str) and v.casefold() in _LEVELS for name in _LEVEL_LABELS)


def _fix(error: FetchError) -> str:
    if error.status == 400:
        return "check the query; Grafana's Explore or logcli says what is wrong with it"
    if error.status in (401, 403):
        return "check bearer_token_file, basic_auth and tenant"
    return "check the address, and that Loki is up"


def _ns(at_s: float) -> int:
    return int(at_s * 1_000_000_000)
