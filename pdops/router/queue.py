"""The bounded queue: requests wait first, and start only when both sides of a pair have room."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pdops.clock import Clock
from pdops.model.cluster import Role
from pdops.router.estimate import Estimator
from pdops.router.policies import Policy
from pdops.router.settings import Settings
from pdops.router.workers import Registry, Worker

REASONS = ("queue_full", "deadline", "no_prefill", "no_decode", "draining", "deadline_transfer", "not_admitted")
"""Why a request was turned away: the queue is full; the first token cannot come in time; no worker of a role came up in
time; the router stops; the KV hand-off cannot be done in time; only a share is let in."""
MAX_RETRY_AFTER_S = 60
SERVICE = "service"
"""Key of the estimator for the time a request holds its place on decode."""


class Rejected(Exception):  # noqa: N818  it is an answer, not a defect
    """The request gets no worker; `reason` is one of `REASONS`."""

    def __init__(self, reason: str, why: str, retry_after_s: int) -> None:
        super().__init__(why)
        self.reason, self.why, self.retry_after_s = reason, why, retry_after_s


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request wants: the start of its prompt, the prompt's size in characters, and monotonic times in seconds."""

    key: str
    size: int
    arrival_s: float
    deadline_s: float | None


@dataclass(slots=True)
class Grant:
    """A place on both workers of a pair, or on decode alone where that was allowed."""

    prefill: Worker | None
    decode: Worker
    _held: set[Role] = field(default_factory=lambda: {Role.PREFILL, Role.DECODE})

    def give_back(self, role: Role) -> bool:
        """Free the place of a role once; say whether it was held."""
        if role not in self._held:
            return False
        self._held.discard(role)
        worker = self.prefill if role is Role.PREFILL else self.decode
        if worker is not None:
            worker.inflight -= 1
        return True


@dataclass(slots=True, eq=False)
class _Waiter:
    ask: Ask
    future: asyncio.Future[Grant]


class Queue:
    """Hands out pairs in the order of arrival.

    A place on decode is held from before prefill starts until the last token, so no prefill makes KV that nobody takes;
    a full prefill pool holds requests here as well, so neither side is pushed by the other.

    Args:
        registry: the workers; its changes are watched.
        policy: chooses among those with room; may be replaced.
        settings: the limits; may be replaced, `pump` then serves whom that made room for.
        estimator: seconds by prefill id and by (prefill, decode) ids.
        clock: for durations.
    """

    def __init__(
        self, registry: Registry, policy: Policy, settings: Settings, estimator: Estimator, clock: Clock
    ) -> None:
        self._registry, self.policy, self.settings = registry, policy, settings
        self._estimator, self._clock = estimator, clock
        self._waiting: deque[_Waiter] = deque()
        self.draining = False
        self.watchers: list[Callable[[int], None]] = []
        registry.listeners.append(self.pump)

    @property
    def depth(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    async def acquire(self, ask: Ask) -> Grant:
        """Wait for a pair.

        Raises:
            Rejected: there is no place in the queue, or no pair in time.
        """
        if self.draining:
            raise self._rejected("draining", "the router is stopping")
        left = self._left(ask)
        if left is not None and left < 0:
            raise self._rejected("deadline", f"prefill and hand-off are expected to take {-left:.1f} s too long")
        if not self._waiting:
            grant = self._try(ask)
            if grant is not None:
                return grant
        if len(self._waiting) >= self.settings.queue_limit:
            raise self._rejected("queue_full", f"{len(self._waiting)} requests wait already")
        waiter = _Waiter(ask, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._tell()
        try:
            done, _ = await asyncio.wait([waiter.future], timeout=left)
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled():
                self.give_back(waiter.future.result())
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                self._tell()
        if done:
            return waiter.future.result()
        raise self._late(ask)

    def give_back(self, grant: Grant, *roles: Role) -> None:
        """Free what a grant still holds, of the roles named or of both."""
        freed = [role for role in roles or (Role.PREFILL, Role.DECODE) if grant.give_back(role)]
        if freed:
            self.pump()

    def pump(self) -> None:
        """Serve those at the head of the queue for whom there is room."""
        before = len(self._waiting)
        while self._waiting:
            waiter = self._waiting[0]
            if waiter.future.done():
                self._waiting.popleft()
                continue
            grant = self._try(waiter.ask)
            if grant is None:
                break
            self._waiting.popleft()
            waiter.future.set_result(grant)
        if len(self._waiting) != before:
            self._tell()

    def decode_only(self) -> bool:
        """Say whether requests go to decode alone now: it is allowed, and no prefill worker may get any."""
        allowed = self.settings.fallback == "decode-only"
        return allowed and not any(w.routable for w in self._registry.of(Role.PREFILL))

    def _try(self, ask: Ask) -> Grant | None:
        prefills = self._free(Role.PREFILL, self.settings.max_inflight_prefill)
        decodes = self._free(Role.DECODE, self.settings.max_inflight_decode)
        if not decodes or not (prefills or self.decode_only()):
            return None
        prefill, decode = self.policy.pick(prefills, decodes, ask.key)
        if prefill is not None:
            prefill.inflight += 1
        decode.inflight += 1
        return Grant(prefill, decode)

    def _free(self, role: Role, limit: int) -> list[Worker]:
        return [w for w in self._registry.of(role) if w.routable and w.inflight < limit]

    def _left(self, ask: Ask) -> float | None:
        """Seconds this request may still wait for a pair; negative when it is too late, None without a deadline."""
        if ask.deadline_s is None:
            return None
        prefills = [w for w in self._registry.of(Role.PREFILL) if w.routable]
        decodes = [w for w in self._registry.of(Role.DECODE) if w.routable]
        need = min((self._estimator.seconds(p.id, ask.size) for p in prefills), default=0.0)
        # The size in tokens is not known before prefill, so the usual hand-off stands for this one.
        need += min((self._estimator.mean((p.id, d.id)) or 0.0 for p in prefills for d in decodes), default=0.0)
        return ask.deadline_s - self._clock.monotonic() - need

    def _late(self, ask: Ask) -> Rejected:
        waited = self._clock.monotonic() - ask.arrival_s
        for role in (Role.PREFILL, Role.DECODE):
            if not any(w.routable for w in self._registry.of(role)):
                return self._rejected(f"no_{role}", f"no {role} worker took requests for {waited:.1f} s")
        return self._rejected("deadline", f"no pair had room for {waited:.1f} s")

    def _rejected(self, reason: str, why: str) -> Rejected:
        return Rejected(reason, why, self.retry_after_s())

    def retry_after_s(self) -> int:
        """Return whole seconds after which those waiting now will have been served, between 1 and 60."""
        service = self._estimator.mean(SERVICE)
        places = self.settings.max_inflight_decode * sum(w.routable for w in self._registry.of(Role.DECODE))
        if service is None or not places:
            return 5
        return min(MAX_RETRY_AFTER_S, max(1, math.ceil(service * (len(self._waiting) + 1) / places)))

    def _tell(self) -> None:
        for watcher in self.watchers:
            watcher(len(self._waiting))
