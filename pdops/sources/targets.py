"""One page of one worker: which engine it is, what to ask it for, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from yarl import URL

from pdops.catalog.names import fast_names
from pdops.clock import Clock
from pdops.model.cluster import Worker
from pdops.model.frame import Event, EventKind, Scrape
from pdops.sources.backoff import Backoff
from pdops.sources.detect import UNKNOWN, detect, has_families
from pdops.sources.exposition import NotExposition, Parsed, Parser
from pdops.sources.fast import FAST_ENGINES, fast_url
from pdops.sources.fetch import Answer, Fetcher, FetchError

FULL_EVERY_S = 10.0
_MUCH_SMALLER = 0.5
_INLINE_BYTES = 1024 * 1024
"""Longer bodies are parsed in a thread, so that one huge page does not hold up the others."""


class _Fast(Enum):
    UNTRIED = auto()
    ACCEPTED = auto()
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class _Page:
    """What the last full page looked like."""

    size_bytes: int
    names: frozenset[str]


class Target:
    """Scrapes one endpoint and remembers how that went.

    Args:
        declared: the engine the inventory names, or None to detect it.
        phase: 0-1, spreads the full pages of all targets over time.
        now: gives Unix seconds; the clock's own by default.

    `due_s` is the monotonic second before which it is left alone, `last_s` how long the last one took, `error` how it failed;
    `asked` says whether a request is under way, `mismatch` why a page that came is of no use; `events` is emptied by
    the reader.
    """

    def __init__(
        self,
        worker: Worker,
        url: str,
        declared: str | None,
        *,
        clock: Clock,
        backoff: Backoff,
        phase: float = 0.0,
        full_every_s: float = FULL_EVERY_S,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.worker = worker
        self.endpoint = url
        self.declared = declared
        self.engine = declared
        self.due_s = clock.monotonic()
        self.events: list[Event] = []
        self.error: str | None = None
        self.mismatch: str | None = None
        self.last_s = 0.0
        self.asked = False
        self._clock = clock
        self._now = now or clock.now
        self._backoff = backoff
        self._phase = phase
        self._full_every_s = full_every_s
        self._next_full_s = 0.0
        self._url = URL(url, encoded=True)
        self._full = Parser()
        self._quick = Parser()
        self._page: _Page | None = None
        self._fast = _Fast.UNTRIED
        self._fast_url = fast_url(url, declared)
        self._fast_seen: frozenset[str] | None = None
        self._full_seen: frozenset[str] | None = None

    async def scrape(self, fetcher: Fetcher) -> Scrape:
        """Ask once and return what came, an error included; sets when to ask next."""
        start = self._clock.monotonic()
        self.asked = True
        try:
            result = await self._ask(fetcher)
        except FetchError as error:
            result = self._failed(error.reason, error.size_bytes, self._clock.monotonic() - start)
            # Whatever comes back after a failure may be a new process: look at all of it.
            self._next_full_s = 0.0
            self.due_s = start + self._backoff.failed()
        else:
            self._backoff.answered()
            self.due_s = start
        finally:
            self.asked = False
        self.error = result.error
        self.last_s = self._clock.monotonic() - start
        return result

    def waiting(self, why: str) -> Scrape:
        """Return the Scrape that stands for a page that is not here at this tick."""
        return self._failed(why, 0, 0.0)

    def restarted(self) -> None:
        """Look at everything again, since the process behind the page is a new one."""
        self._fast = _Fast.UNTRIED
        self._next_full_s = 0.0

    async def _ask(self, fetcher: Fetcher) -> Scrape:
        now = self._clock.monotonic()
        if self._may_be_fast() and now < self._next_full_s:
            quick = await self._ask_fast(fetcher)
            if quick is not None:
                return quick
        first = self._next_full_s == 0.0
        answer = await fetcher.get(self._url, self.worker.secret)
        self._next_full_s = now + self._full_every_s * (self._phase if first and self._phase > 0.0 else 1.0)
        try:
            parsed = await self._parse(self._full, answer.body)
        except NotExposition as error:
            raise FetchError(
                f"not an exposition: {error.reason}", where=self.endpoint, size_bytes=len(answer.body)
            ) from error
        if self._page is None or parsed.names is not self._page.names:
            self._recognise(parsed.names)
        self._page = _Page(len(answer.body), parsed.names)
        if self.mismatch is not None:
            return self._failed(self.mismatch, len(answer.body), answer.duration_s)
        return self._told(answer, parsed, full=True)

    def _may_be_fast(self) -> bool:
        return self._fast is not _Fast.REFUSED and self._fast_url is not None and self.engine in FAST_ENGINES

    async def _ask_fast(self, fetcher: Fetcher) -> Scrape | None:
        """Ask for the fast names only; None when the server does not do that, which then stays so."""
        page = self._page
        assert self._fast_url is not None
        if page is None:
            return None
        try:
            answer = await fetcher.get(self._fast_url, self.worker.secret)
            parsed = await self._parse(self._quick, answer.body)
        except FetchError as error:
            if self._fast is _Fast.ACCEPTED and (error.status is None or error.status >= 500):
                raise
            self._fast = _Fast.REFUSED
            return None
        except NotExposition:
            self._fast = _Fast.REFUSED
            return None
        if self._fast is _Fast.UNTRIED or parsed.names is not self._fast_seen or page.names is not self._full_seen:
            expected = page.names.intersection(fast_names(self.engine or ""))
            small = len(answer.body) < page.size_bytes * _MUCH_SMALLER
            if not (expected and small and expected <= parsed.names):
                self._fast = _Fast.REFUSED
                return None
            self._fast, self._fast_seen, self._full_seen = _Fast.ACCEPTED, parsed.names, page.names
        return self._told(answer, parsed, full=False)

    async def _parse(self, parser: Parser, body: bytes) -> Parsed:
        if len(body) <= _INLINE_BYTES:
            return parser.parse(body)
        return await asyncio.to_thread(parser.parse, body)

    def _recognise(self, names: frozenset[str]) -> None:
        found = detect(names)
        self.mismatch = None
        if self.declared is not None:
            if found is not None and found != self.declared and has_families(self.declared, names) is False:
                self.mismatch = f"the page is of engine {found}, the inventory says {self.declared}"
            return
        if found is None:
            self.mismatch = "no family on the page belongs to a known engine"
            return
        before = self.engine
        if before is not None and before != found and not has_families(before, names):
            self.events.append(
                Event(
                    t_s=self._now(),
                    kind=EventKind.CONFIG_CHANGE,
                    worker=self.worker.id,
                    detail=f"engine changed from {before} to {found}",
                )
            )
        if before != found:
            self.engine = found
            self._fast = _Fast.UNTRIED
            self._fast_url = fast_url(self.endpoint, found)

    def _told(self, answer: Answer, parsed: Parsed, *, full: bool) -> Scrape:
        return Scrape(
            worker=self.worker.id,
            engine=self.engine or UNKNOWN,
            at_s=answer.at_s,
            layout=parsed.layout,
            values=parsed.values,
            full=full,
            duration_s=answer.duration_s,
            size_bytes=len(answer.body),
            endpoint=self.endpoint,
            malformed=parsed.malformed,
            stamp_s=parsed.stamp_s,
            unread=parsed.skipped if full else None,
        )

    def _failed(self, why: str, size_bytes: int, duration_s: float) -> Scrape:
        return Scrape(
            worker=self.worker.id,
            engine=self.engine or UNKNOWN,
            at_s=self._now(),
            duration_s=duration_s,
            size_bytes=size_bytes,
            error=why,
            endpoint=self.endpoint,
        )
