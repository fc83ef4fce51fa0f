"""Would clients still wait if the suspect were as usual? A latency cause must explain at least half of the excess."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

from pdops.diagnose import past
from pdops.diagnose.context import Context
from pdops.diagnose.mechanism import MECHANISMS, Mechanism
from pdops.diagnose.symptoms import picture
from pdops.diagnose.ttft import stages
from pdops.model.cluster import CLIENT, Pair, Role, pool_key
from pdops.model.report import Scope, Symptom
from pdops.stats.robust import MIN_PEERS, median

HALF = 0.5
"""Least share (0-1) of an excess that its cause must explain."""
MORE = 1.05
"""Requests over those of before from which a worker takes what another no longer does; at its own limit it takes hardly more."""
MAX_OTHERS = 2
"""Other faults that may take their own part of the excess first."""

_MEASURED: dict[str, tuple[Role, str]] = {
    "prefill_queue": (Role.PREFILL, "queue_seconds"),
    "prefill_compute": (Role.PREFILL, "prefill_seconds"),
    "kv_transfer": (Role.DECODE, "kv_transfer_seconds"),
    "decode_wait": (Role.DECODE, "queue_seconds"),
}
"""Where single workers tell their own part of a stage."""

Suspect = tuple[str, tuple[Scope, ...]]
"""A cause and where it is said to be."""


class Account:
    """By how much TTFT and ITL exceed what is usual or promised, and which stages the excess was spent in.

    Stage means are set beside a client mean, or beside a quantile q times -ln(1-q), what an exponential tail makes of a
    mean: most tails are lighter, so the share of a suspect is rather too large than too small. What no known stage
    holds is credited to every suspect that works through an unknown one. Only such an upper bound below one half
    says anything.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        seen = picture(ctx)
        self.ttft_high, self.itl_high = seen.ttft_high, seen.itl_high
        self.asks = (seen.ttft_high or seen.itl_high) and Symptom.WRONG_ANSWERS not in seen.symptoms
        self._failing = Symptom.ERRORS in seen.symptoms
        self._excess_s = 0.0
        self._grown_s: dict[str, float] = {}
        self._unknown: frozenset[str] = frozenset()
        if self.asks and seen.ttft_high:
            self._measure()

    def share(self, suspect: Suspect, others: Sequence[Suspect] = ()) -> float | None:
        """Return the most (0-1) of the excess that a cause can explain once `others` have had theirs.

        None when it cannot be said: no latency cause, no latency symptom, or not enough is known.
        """
        how = self._how(suspect)
        if how is None or not self.asks or (self._failing and not self._closed):
            return None
        found: list[float] = []
        if self.ttft_high:
            if self._excess_s <= 0:
                return None
            found.append(self._of_ttft(how, suspect, others))
        if self.itl_high:
            found.append(self._part("itl_seconds", Role.DECODE, suspect) if how.itl else 0.0)
        return max(found)

    @property
    def _closed(self) -> bool:
        """Whether the stages hold at least half of the excess: requests that were given up waited in stages that never ended."""
        return self.ttft_high and sum(self._grown_s.values()) >= HALF * self._excess_s

    def _how(self, suspect: Suspect) -> Mechanism | None:
        how = MECHANISMS.get(suspect[0])
        roles = {self._ctx.role_of(pool_key(s.id) if s.kind == "pool" else s.id) for s in suspect[1]}
        return how.at(roles.pop() if len(roles) == 1 else None) if how is not None else None

    def _measure(self) -> None:
        ctx, base = self._ctx, self._ctx.view.base
        now, before = ctx.ask.mean(CLIENT, "ttft_seconds"), None
        tail = 1.0
        if base is not None:
            before = ctx.ask.mean(CLIENT, "ttft_seconds", base).value
        if now.value is None or before is None:
            now = ctx.ttft()
            before = ctx.ttft(base).value if base is not None else None
            tail = -log(1.0 - min(0.999, ctx.percentile("ttft_seconds") / 100))
        promised = ctx.slo.ttft_s
        # Where it was bad already, the past is no measure of what is usual.
        usual = before is not None and (promised is None or before <= promised)
        reference = before if usual else promised
        if now.value is None or now.bound == "ge" or reference is None:
            return
        self._excess_s = (now.value - reference) / tail
        then = stages(ctx, base) if usual and base is not None else {}
        unknown = []
        for name, reading in stages(ctx).items():
            if reading.value is None or reading.bound is not None:
                unknown.append(name)
                continue
            former = then[name].value if name in then else None
            self._grown_s[name] = max(0.0, reading.value - (former or 0.0))
        self._unknown = frozenset(unknown)

    def _of_ttft(self, how: Mechanism, suspect: Suspect, others: Sequence[Suspect]) -> float:
        mine = sum(self._grown_s.get(s, 0.0) * self._fraction(s, suspect) for s in how.stages)
        if how.stages & self._unknown:
            mine += max(0.0, self._excess_s - sum(self._grown_s.values()))
        taken: set[str] = set()
        for other in others[:MAX_OTHERS]:
            theirs = self._how(other)
            taken |= theirs.stages - how.stages if theirs is not None else set()
        left = self._excess_s - sum(self._grown_s.get(s, 0.0) for s in taken)
        # Means and tails do not add up exactly, so a rest below a tenth says nothing about who made it.
        return min(1.0, mine / max(left, 0.1 * self._excess_s))

    def _fraction(self, stage: str, suspect: Suspect) -> float:
        where = _MEASURED.get(stage)
        return self._part(where[1], where[0], suspect) if where is not None else 1.0

    def _part(self, signal: str, role: Role, suspect: Suspect) -> float:
        """Return which part of a pool's growth the accused workers made, 1 where that is not told."""
        ctx = self._ctx
        units = ctx.units(role)
        accused = _workers(suspect[1]) & set(units)
        if not accused or len(accused) == len(units):
            return 1.0
        now = {u: ctx.ask.mean(u, signal) for u in units}
        if any(r.value is None for r in now.values()):
            return 1.0
        peers = [r.value for u, r in now.items() if u not in accused and r.value is not None]
        usual = median(peers) if len(peers) >= MIN_PEERS else None
        grown: dict[str, float] = {}
        for unit, reading in now.items():
            former = ctx.before(lambda s, w: ctx.ask.mean(s, signal, w), unit)
            expected = former if former is not None else usual
            if expected is None:
                return 1.0
            grown[unit] = max(0.0, (reading.value or 0.0) - expected) * max(1, reading.n)
        total = sum(grown.values())
        theirs = accused | self._flooded(signal, accused, units)
        return sum(grown[u] for u in theirs) / total if total > 0 else 1.0

    def _flooded(self, signal: str, accused: set[str], units: Sequence[str]) -> set[str]:
        """Return peers that get more than before while the accused get less: they wait for what was moved to them."""
        ctx = self._ctx
        pace = {u: (ctx.ask.rate(u, signal).value, past.rate(ctx, u, signal)) for u in units}
        if any(now is None or not before for now, before in pace.values()):
            return set()
        less = sum(pace[u][0] or 0.0 for u in accused) < sum(pace[u][1] or 0.0 for u in accused)
        return (
            {u for u in units if u not in accused and (pace[u][0] or 0.0) > MORE * (pace[u][1] or 0.0)}
            if less
            else set()
        )


def _workers(scopes: Iterable[Scope]) -> set[str]:
    found: set[str] = set()
    for scope in scopes:
        if scope.kind == "worker":
            found.add(scope.id)
        elif scope.kind == "pair":
            pair = Pair.parse(scope.id)
            found |= {pair.src, pair.dst}
        else:
            return set()
    return found
