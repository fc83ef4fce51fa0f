"""What every check may ask: readings, comparisons with peers and history, recent events, and the split of TTFT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Literal, TypeVar, cast

from pdops.catalog.load import catalog
from pdops.diagnose.finding import Weighed
from pdops.history.readings import Readings
from pdops.model.cluster import CLIENT, PAIR_PREFIX, POOL_PREFIX, ROUTER, Pair, Role, Worker, pool_key
from pdops.model.frame import Event, EventKind, Probe, ProbeKind
from pdops.model.report import Basis, Evidence, Observed, Scope, observed
from pdops.model.series import Reading, Window
from pdops.model.view import Health, Presence, View
from pdops.stats.histograms import share_above
from pdops.stats.robust import MIN_PEERS, median_of_rest

RECENT_S = 600.0
"""A restart this recent is part of the story (public incidents: failures follow within ten minutes of a peer's restart)."""

SURE_Z = 2.33
"""Standard deviations of a share that chance exceeds once in a hundred windows (normal distribution)."""
_OTHERS = (0.99, 0.95, 0.5)
"""Percentiles to take where a source does not give the SLO's own."""

_AWAY = (Presence.DOWN, Presence.STALE, Presence.NEVER)
_PLANNED = (EventKind.SCALE_OUT, EventKind.SCALE_IN, EventKind.ROLLOUT)

Question = Callable[[str, Window | None], Reading]
T = TypeVar("T")


def once(function: Callable[[Context], T]) -> Callable[[Context], T]:
    """Let a question about a whole View be answered once: several checks and the weighing ask the same."""

    @wraps(function)
    def asked(ctx: Context) -> T:
        if function not in ctx.answers:
            ctx.answers[function] = function(ctx)
        return cast("T", ctx.answers[function])

    return asked


@dataclass(frozen=True, slots=True)
class Comparison:
    """A reading beside what it should be; `ratio` is now over expected. `basis` says where the expectation is from."""

    now: Reading
    expected: float | None
    basis: Literal["peer", "history", "physics", "config"]

    @property
    def ratio(self) -> float | None:
        """Now over expected, or None when one of them is unknown or nothing was expected."""
        if self.now.value is None or not self.expected:
            return None
        return self.now.value / self.expected


class Context:
    """One View, and the questions checks have in common."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.ask = Readings(view)
        self.cluster = view.cluster
        self.slo = view.cluster.slo
        self.answers: dict[Callable[..., object], object] = {}
        self._units: dict[Role, tuple[str, ...]] = {}

    # who is there

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs that have data of their own, sorted."""
        return tuple(sorted(Pair.parse(scope) for scope in set().union(*self._paired.values())))

    def pairs_with(self, *signals: str) -> tuple[Pair, ...]:
        """Return the pairs that have one of these signals, or a statistic of it, sorted: a router may tell of thousands."""
        told = set().union(*(self._paired.get(signal, ()) for signal in signals))
        return tuple(pair for pair in self.pairs if pair.key in told) if told else ()

    @cached_property
    def _paired(self) -> dict[str, set[str]]:
        """The pairs, as signal keys, that have a signal or a statistic of it."""
        found: dict[str, set[str]] = {}
        for scope, signal in self.view.series:
            if scope.startswith(PAIR_PREFIX):
                found.setdefault(signal.partition(".")[0], set()).add(scope)
        return found

    def units(self, role: Role) -> tuple[str, ...]:
        """Return the scopes to judge a role by: its workers, or its pools where those tell more, or nothing.

        A server that adds pools up gives only a few series of single workers, too few to judge them by.
        """
        if role not in self._units:
            workers = tuple(w.id for w in self.cluster.of_role(role) if self.has_data(w.id))
            pools = tuple(p for p in self.pools(role) if p in self._told)
            known = max((self._told[w] for w in workers), default=0)
            self._units[role] = pools if pools and max(self._told[p] for p in pools) > known else workers
        return self._units[role]

    def pools(self, role: Role) -> tuple[str, ...]:
        """Return the signal keys of a role's pools."""
        return tuple(pool_key(p) for p in self.cluster.pools(role)) or (pool_key(role.value),)

    @cached_property
    def _told(self) -> Counter[str]:
        """How many signals each scope has of its own."""
        return Counter(scope for scope, _ in self.view.series)

    def has_data(self, worker: str) -> bool:
        """Whether a worker has any series, and is there to be judged."""
        return worker in self._told and self.health(worker).presence in (Presence.UP, Presence.GIVEN)

    def health(self, worker: str) -> Health:
        """Return a worker's presence; GIVEN when nobody scraped it."""
        return self.view.health.get(worker, Health(Presence.GIVEN))

    def scope(self, key: str) -> Scope:
        """Return the published form of a signal key."""
        if key.startswith(POOL_PREFIX):
            return Scope("pool", key.removeprefix(POOL_PREFIX))
        if ">" in key:
            return Scope("pair", str(Pair.parse(key)))
        if key in (CLIENT, ROUTER):
            return Scope("global", key)
        return Scope("worker", key)

    def role_of(self, key: str) -> Role | None:
        """Return the role of a worker or pool key, or None."""
        if key.startswith(POOL_PREFIX):
            members = self.cluster.of_pool(key.removeprefix(POOL_PREFIX))
            return members[0].role if members else None
        worker = self.cluster.get(key)
        return worker.role if worker else None

    # what happened

    def events(
        self, kinds: Container[EventKind], within_s: float = RECENT_S, worker: str | None = None
    ) -> tuple[Event, ...]:
        """Return recent events of these kinds, newest first, of one worker or of all."""
        if not self.view.events:
            return ()
        since = self.view.at_s - within_s
        heard = self._events if worker is None else self._touching(worker)
        return tuple(e for e in heard if e.kind in kinds and e.t_s >= since)

    @cached_property
    def _events(self) -> tuple[Event, ...]:
        """All events, newest first."""
        return tuple(sorted(self.view.events, key=_newest))

    @cached_property
    def _events_at(self) -> dict[str, list[Event]]:
        """The events of each worker, and by the signal key of a pool those that name the pool alone."""
        found: dict[str, list[Event]] = {}
        for event in self._events:
            if event.worker is not None:
                found.setdefault(event.worker, []).append(event)
            elif event.pool is not None:
                found.setdefault(pool_key(event.pool), []).append(event)
        return found

    def _touching(self, worker: str) -> Iterable[Event]:
        own = self._events_at.get(worker, ())
        known = self.cluster.get(worker)
        shared = self._events_at.get(pool_key(known.pool), ()) if known is not None else ()
        return sorted((*own, *shared), key=_newest) if shared else own

    @cached_property
    def nothing_answers(self) -> bool:
        """Whether no worker of any role answers: from here that looks the same as a fault on this side of the network."""
        workers = self.cluster.workers
        return bool(workers) and all(self.health(w.id).presence in _AWAY for w in workers)

    def is_down(self, worker: str) -> bool:
        """Whether a worker is away: it does not answer, or going down is the last that was heard of it."""
        health = self.health(worker)
        if health.presence is Presence.DOWN:
            return True
        events = self.events((EventKind.DOWN, EventKind.RESTART), worker=worker)
        if not events or events[0].kind is not EventKind.DOWN:
            return False
        answered_since = health.age_s is not None and self.view.at_s - health.age_s > events[0].t_s
        return not answered_since

    def restarted(self, role: Role, within_s: float = RECENT_S) -> tuple[tuple[Worker, Event], ...]:
        """Return workers of a role that restarted or went down recently, with the newest such event."""
        found = []
        for worker in self.cluster.of_role(role):
            events = self.events((EventKind.RESTART, EventKind.DOWN), within_s, worker.id)
            if events:
                found.append((worker, events[0]))
        return tuple(found)

    def settled(self, worker: str) -> bool:
        """Whether nobody lately let a worker join or replaced it, nor takes it out: until then it gets another share by plan."""
        return not self.events(_PLANNED, worker=worker)

    def canaries(self) -> tuple[Probe, ...]:
        """Return the newest canary through each pair, or at each worker, that could be judged; else the newest."""
        sent = sorted(self.view.probes, key=lambda p: (p.ok is not None, p.t_s))
        return tuple({(p.pair, p.worker): p for p in sent if p.kind is ProbeKind.CANARY}.values())

    # how it compares

    def compare(self, question: Question, role: Role) -> dict[str, Comparison]:
        """Set the reading of each unit of a role beside those of its peers (four or more), else beside its own history."""
        now = {unit: question(unit, None) for unit in self.units(role)}
        ranked = sorted(r.value for r in now.values() if r.value is not None)
        found = {}
        for unit, reading in now.items():
            if reading.value is not None and len(ranked) > MIN_PEERS and not unit.startswith(POOL_PREFIX):
                found[unit] = Comparison(reading, median_of_rest(ranked, reading.value), "peer")
            else:
                found[unit] = Comparison(reading, self.before(question, unit), "history")
        return found

    def before(self, question: Question, scope: str) -> float | None:
        """Return what a reading was in the base window, or None."""
        return question(scope, self.view.base).value if self.view.base is not None else None

    # evidence

    def saw(
        self,
        signal: str,
        key: str | None,
        seen: Reading | Observed,
        expected: Observed,
        *,
        basis: Basis,
        ratio: float,
        group: str,
    ) -> Weighed:
        """Make one weighed piece of evidence about a signal key."""
        known = catalog().signals.get(signal.partition(".")[0])
        unit = "" if known is None else known.unit
        if known is not None and signal.endswith(".rate"):
            unit = f"{unit}/s"
        evidence = Evidence(
            signal=signal,
            scope=self.scope(key) if key else None,
            observed=observed(seen) if isinstance(seen, Reading) else seen,
            expected=expected,
            basis=basis,
            unit=unit,
            window_s=self.view.now.span_s if basis in ("peer", "history", "physics") else None,
        )
        return Weighed(evidence, ratio, group)

    # what clients see

    def ttft(self, window: Window | None = None) -> Reading:
        """Return TTFT at the SLO's percentile: at clients, else the greatest of the engines' own, which is a lower bound.

        An engine's TTFT in a PD cluster covers only its own leg, so clients wait at least that long. Where nobody tells
        any, clients wait on the mean at least as long as prompts do for prefill.
        """
        told = self._latency("ttft_seconds", window, (Role.DECODE, Role.PREFILL))
        if told.known or self.view.relative:
            return told
        waits = [self.ask.mean(pool, "queue_seconds", window) for pool in self.pools(Role.PREFILL)]
        known = [r for r in waits if r.value is not None]
        return Reading(max(r.value or 0.0 for r in known), "ge", n=sum(r.n for r in known)) if known else told

    def itl(self, window: Window | None = None) -> Reading:
        """Return ITL at the SLO's percentile: at clients, else the greatest of the decode pools."""
        return self._latency("itl_seconds", window, (Role.DECODE, Role.COLOCATED))

    def percentile(self, signal: str) -> int:
        """Return which percentile of a latency is really known: the SLO's, or the nearest that a source gave."""
        wanted = self.slo.percentile
        for scope in (CLIENT, *self.pools(Role.DECODE), *self.pools(Role.PREFILL)):
            for q in (wanted, *_OTHERS):
                if self.ask.quantile(scope, signal, q).known:
                    return round(q * 100)
        return round(wanted * 100)

    def _latency(self, signal: str, window: Window | None, roles: tuple[Role, ...]) -> Reading:
        at_client = self._quantile(CLIENT, signal, window)
        if at_client.known:
            return at_client
        readings = [self._quantile(p, signal, window) for role in roles for p in self.pools(role)]
        known = [r for r in readings if r.value is not None]
        if not known:
            return at_client
        worst = max(known, key=lambda r: r.value or 0.0)
        return Reading(worst.value, worst.bound if worst.bound else None, n=worst.n, missing=worst.missing)

    def exceeds(self, signal: str, limit: float) -> bool:
        """Return whether a client latency at the SLO's percentile is above a limit by more than chance.

        Few requests must exceed it by what a share of so few varies (normal approximation of the binomial, one-sided
        99 %). Where the limit lies inside a client bucket, the decode pools' own decide for ITL, which clients and decode
        see alike. Gaps of one batch are alike too, so inside a bucket no share of them is told: then only a mean above the
        limit is.
        """
        itl = signal == "itl_seconds"
        if not (self.itl() if itl else self.ttft()).above(limit):
            return False
        grown = self.ask.events(CLIENT, signal)
        if isinstance(grown, Reading) or grown.counts is None or not grown.counts[-1]:
            return True
        wanted = self.slo.percentile
        wary = wanted - SURE_Z * (wanted * (1.0 - wanted) / float(grown.counts[-1])) ** 0.5
        if not self.ask.quantile(CLIENT, signal, max(0.5, wary), by_mean=True).above(limit):
            return False
        sure = share_above(grown.bounds, grown.counts, limit)
        if not itl or (sure is not None and sure[0] > 1.0 - wanted):
            return True
        return not self.decode_keeps(limit) and self._gaps_surely_above(limit)

    def _gaps_surely_above(self, limit_s: float) -> bool:
        """Whether a decode pool has too many gaps beyond the bucket of a limit, or its or clients' mean gap is above it."""
        for pool in self.pools(Role.DECODE):
            grown = self.ask.events(pool, "itl_seconds")
            if not isinstance(grown, Reading) and grown.counts is not None:
                sure = share_above(grown.bounds, grown.counts, limit_s)
                if sure is not None and sure[0] > 1.0 - self.slo.percentile:
                    return True
        return any(self.ask.mean(scope, "itl_seconds").above(limit_s) for scope in (CLIENT, *self.pools(Role.DECODE)))

    def decode_keeps(self, limit_s: float) -> bool:
        """Whether ITL at the SLO's percentile is surely not above a limit in any decode pool, told by all of its workers."""
        pools = [self.ask.quantile(p, "itl_seconds", self.slo.percentile) for p in self.pools(Role.DECODE)]
        return all(r.known and r.bound != "ge" and not r.missing and not r.above(limit_s) for r in pools)

    def at_clients(self, signal: str) -> bool:
        """Whether clients themselves, or the router for them, tell a latency."""
        return self._quantile(CLIENT, signal, None).known

    def _quantile(self, scope: str, signal: str, window: Window | None) -> Reading:
        wanted = self.slo.percentile
        first = self.ask.quantile(scope, signal, wanted, window, by_mean=True)
        if first.known:
            return first
        for other in _OTHERS:
            given = self.ask.level(scope, f"{signal}.p{round(other * 100)}", window or self.view.now)
            if given.known:
                return given
        return first

    def error_share(self, window: Window | None = None) -> Reading:
        """Return failed over finished requests at clients, else as the decode engines count them; timeouts included.

        Where clients' own successes are not read, those of decode stand for them. Nothing is known where neither is.
        """
        pools = self.pools(Role.DECODE)
        for scopes in ((CLIENT,), pools):
            # What ended well where nobody counts failures says nothing of how many failed.
            counted = [s for s in scopes if self.ask.increase(s, "request_failure", window).value is not None]
            if not counted:
                continue
            bad = sum(self.ask.increase(s, "request_failure", window).value or 0.0 for s in counted)
            good = self._succeeded(counted, window)
            if good is None and scopes == (CLIENT,):
                good = self._succeeded(pools, window)
            if good is None:
                return Reading(None, why="how many requests succeeded is not known")
            if bad + good > 0:
                return Reading(bad / (bad + good), n=int(bad + good))
            return Reading(None, why="no request finished in the window")
        return Reading(None, why="request_failure is not given for client or decode")

    def _succeeded(self, scopes: Iterable[str], window: Window | None) -> float | None:
        """Return the requests that ended well at all of these scopes, or None where one does not tell."""
        told = [self.ask.increase(s, "request_success", window) for s in scopes]
        if not told or any(r.value is None or r.missing for r in told):
            return None
        return sum(r.value or 0.0 for r in told)


def _newest(event: Event) -> tuple[float, str, EventKind]:
    return -event.t_s, event.worker or "", event.kind
