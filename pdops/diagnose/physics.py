"""Laws that hold in any sound cluster, whatever its engine: what does not add up points to a fault, or to wrong data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from pdops.diagnose.context import SURE_Z, Context, once
from pdops.diagnose.load import size
from pdops.model.cluster import CLIENT, Role
from pdops.model.frame import EventKind
from pdops.model.series import Reading

MIN_EVENTS = 50
"""Fewer events than this in the window and chance alone breaks a law."""
PILES_UP = 2.0
"""Requests held over rate times mean time above which more come than leave, or some never do."""
TOO_FEW = 0.5
"""The same below which fewer are held than the times say: one of the three numbers is wrong."""
ELSEWHERE = 0.5
"""Share (0-1) of client TTFT outside both engines from which it is the greater part."""
LITTLE = 0.2
"""The same up to which the engines account for it."""
APART = 1.2
"""Two counts of one thing that differ by more than a fifth are not of one thing; scrapes that fall apart make less."""
BLOCKS = 1.5
"""Bytes moved over bytes of the tokens: up to this, the last block of each request, sent whole, may make it."""
_SETTLED = 3.0
"""Windows shorter than this many mean times begin and end with other requests than they count."""
_HELD_LEAST = 1.0


class LawState(StrEnum):
    """What came of a law."""

    HOLDS = "holds"
    ABOVE = "above"
    BELOW = "below"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Law:
    """One law at one scope: `left` over `right` should be one, or says what `state` names. `why` when it is unknown."""

    name: str
    scope: str
    signal: str
    state: LawState
    left: float | None = None
    right: float | None = None
    why: str | None = None


@once
def laws(ctx: Context) -> tuple[Law, ...]:
    """Return every law that applies to this cluster, with what came of it."""
    found: list[Law] = []
    for role in (Role.PREFILL, Role.DECODE):
        found.extend(_little(ctx, pool) for pool in ctx.pools(role))
    found.extend((_outside(ctx), _own_leg(ctx), _sent_received(ctx), _tokens_bytes(ctx), _counts(ctx)))
    return tuple(found)


def _little(ctx: Context, pool: str) -> Law:
    """Little's law: requests held = rate x mean time, in a window of several mean times under a steady load."""
    running, waiting = ctx.ask.level(pool, "running_requests"), ctx.ask.level(pool, "queue_depth")
    rate, mean = ctx.ask.rate(pool, "e2e_seconds"), ctx.ask.mean(pool, "e2e_seconds")

    def unknown(why: str) -> Law:
        return Law("little", pool, "e2e_seconds", LawState.UNKNOWN, why=why)

    for reading in (running, waiting, rate, mean):
        if reading.value is None or reading.missing:
            return unknown(reading.why or f"not known of {', '.join(reading.missing[:3])}")
    held = (running.value or 0.0) + (waiting.value or 0.0)
    passing = (rate.value or 0.0) * (mean.value or 0.0)
    if mean.n < MIN_EVENTS:
        return unknown(f"only {mean.n} requests ended in the window")
    if ctx.view.now.span_s < _SETTLED * (mean.value or 0.0):
        return unknown("requests last too long for this window")
    if max(held, passing) < _HELD_LEAST:
        return Law("little", pool, "e2e_seconds", LawState.HOLDS, held, passing)
    if held > PILES_UP * passing:
        state = LawState.ABOVE
    elif held < TOO_FEW * passing:
        # Fewer after many is a load that went away, and no contradiction.
        if not _steady(ctx, pool):
            return unknown("the load changes")
        if passing - held <= SURE_Z * _sampled(ctx, pool, passing, running.n):
            return unknown("the gauges were read too few times to tell")
        state = LawState.BELOW
    else:
        state = LawState.HOLDS
    return Law("little", pool, "e2e_seconds", state, held, passing)


def _sampled(ctx: Context, pool: str, passing: float, n: int) -> float:
    """Return the standard deviation of a mean of requests held that was read `n` times over all workers of a pool.

    Decode serves all it holds at once, so their number is Poisson with variance L (M/G/inf); a prefill worker serves one
    after another, so it is geometric with variance L (1 + L) (M/M/1).
    """
    workers = size(ctx, pool)
    spread = passing if ctx.role_of(pool) is Role.DECODE else passing * (1.0 + passing / workers)
    return float((spread * workers / max(1, n)) ** 0.5)


def _outside(ctx: Context) -> Law:
    """Client TTFT less both engines' own: the time before, between and behind them."""
    client, prefill, decode = _ttfts(ctx)
    name, signal = "ttft-outside", "ttft_seconds"
    for reading in (client, prefill, decode):
        if reading.value is None:
            return Law(name, CLIENT, signal, LawState.UNKNOWN, why=reading.why)
        if reading.n < MIN_EVENTS:
            return Law(name, CLIENT, signal, LawState.UNKNOWN, why=f"only {reading.n} requests in the window")
    total = client.value or 0.0
    legs = (prefill.value or 0.0) + (decode.value or 0.0)
    outside = total - legs
    if not _alike(client.n, decode.n):
        why = "client and engines did not count the same requests"
        return Law(name, CLIENT, signal, LawState.UNKNOWN, why=why)
    if outside >= ELSEWHERE * total:
        return Law(name, CLIENT, signal, LawState.ABOVE, total, legs)
    if outside <= LITTLE * total:
        return Law(name, CLIENT, signal, LawState.HOLDS, total, legs)
    return Law(name, CLIENT, signal, LawState.UNKNOWN, total, legs, "a good part is outside, but not the greater one")


def _own_leg(ctx: Context) -> Law:
    """No prefill takes longer than the first token it is made for.

    Decode's own leg may: a router that passes prefill's token on does not wait for decode.
    """
    client, prefill, _ = _ttfts(ctx)
    name, signal = "prefill-within-ttft", "ttft_seconds"
    for reading in (client, prefill):
        if reading.value is None:
            return Law(name, CLIENT, signal, LawState.UNKNOWN, why=reading.why)
    if min(client.n, prefill.n) < MIN_EVENTS or not _alike(client.n, prefill.n):
        return Law(name, CLIENT, signal, LawState.UNKNOWN, why="too few requests, or not the same ones")
    below = (client.value or 0.0) * APART < (prefill.value or 0.0)
    state = LawState.BELOW if below else LawState.HOLDS
    return Law(name, CLIENT, signal, state, client.value, prefill.value)


def _ttfts(ctx: Context) -> tuple[Reading, Reading, Reading]:
    return (ctx.ask.mean(CLIENT, "ttft_seconds"), _mean(ctx, Role.PREFILL), _mean(ctx, Role.DECODE))


def _sent_received(ctx: Context) -> Law:
    """Bytes that prefill sent = bytes that decode received, where both sides count.

    Many connectors count only on the side that issues a transfer; the other then stays at zero.
    """
    sent, got = _sum(ctx, Role.PREFILL, "kv_transfer_bytes"), _sum(ctx, Role.DECODE, "kv_transfer_bytes")
    if sent == 0.0 or got == 0.0:
        why = "one side counts nothing"
        return Law("sent-received", CLIENT, "kv_transfer_bytes", LawState.UNKNOWN, sent, got, why)
    return _equal(ctx, "sent-received", "kv_transfer_bytes", sent, got, APART)


def _tokens_bytes(ctx: Context) -> Law:
    """KV bytes received = tokens received x bytes a token, as far as whole blocks go."""
    each = ctx.cluster.kv_bytes_per_token
    name, signal = "tokens-bytes", "kv_transfer_bytes"
    if each is None:
        return Law(name, "", signal, LawState.UNKNOWN, why="KV bytes per token are not known")
    if ctx.cluster.of_role(Role.KVSTORE):
        return Law(name, "", signal, LawState.UNKNOWN, why="KV comes from the store as well")
    moved, tokens = _sum(ctx, Role.DECODE, "kv_transfer_bytes"), _sum(ctx, Role.DECODE, "external_kv_tokens")
    right = None if tokens is None else tokens * each
    return _equal(ctx, name, signal, moved, right, BLOCKS)


def _counts(ctx: Context) -> Law:
    """Requests that succeeded at the router = requests that succeeded at the decode engines."""
    at_client = ctx.ask.increase(CLIENT, "request_success")
    client = None if at_client.value is None or at_client.missing else at_client.value
    engines = _sum(ctx, Role.DECODE, "request_success")
    if client is not None and engines is not None and max(client, engines) < MIN_EVENTS:
        return Law("counts", CLIENT, "request_success", LawState.UNKNOWN, why="too few requests in the window")
    return _equal(ctx, "counts", "request_success", client, engines, APART)


def _equal(ctx: Context, name: str, signal: str, left: float | None, right: float | None, factor: float) -> Law:
    if left is None or right is None:
        return Law(name, CLIENT, signal, LawState.UNKNOWN, why=f"{signal} is not known on both sides")
    if ctx.events((EventKind.RESTART, EventKind.DOWN, EventKind.SCALE_IN), ctx.view.now.span_s + 60.0):
        return Law(name, CLIENT, signal, LawState.UNKNOWN, why="what a worker counted before it ended is lost")
    if left <= 0 and right <= 0:
        return Law(name, CLIENT, signal, LawState.HOLDS, left, right)
    if left > factor * right:
        return Law(name, CLIENT, signal, LawState.ABOVE, left, right)
    if right > factor * left:
        return Law(name, CLIENT, signal, LawState.BELOW, left, right)
    return Law(name, CLIENT, signal, LawState.HOLDS, left, right)


def _sum(ctx: Context, role: Role, signal: str) -> float | None:
    """Return a counter's growth over all pools of a role; None when one worker does not give it."""
    readings = [ctx.ask.increase(pool, signal) for pool in ctx.pools(role)]
    if not readings or any(r.value is None or r.missing for r in readings):
        return None
    return sum(r.value or 0.0 for r in readings)


def _mean(ctx: Context, role: Role) -> Reading:
    readings = [ctx.ask.mean(pool, "ttft_seconds") for pool in ctx.pools(role)]
    bad = next((r for r in readings if r.value is None), None)
    if bad is not None:
        return bad
    n = sum(r.n for r in readings)
    return Reading(sum((r.value or 0.0) * r.n for r in readings) / max(n, 1), n=n)


def _alike(a: int, b: int) -> bool:
    return max(a, b) <= APART * max(1, min(a, b))


def _steady(ctx: Context, pool: str) -> bool:
    before = ctx.before(lambda s, w: ctx.ask.rate(s, "e2e_seconds", w), pool)
    now = ctx.ask.rate(pool, "e2e_seconds").value
    return before is not None and now is not None and max(now, before) <= APART * min(now, before)


def broken(ctx: Context) -> Iterator[Law]:
    """Yield the laws whose breach means that a number is wrong, not that serving is."""
    for law in laws(ctx):
        impossible = {
            "little": LawState.BELOW,
            "prefill-within-ttft": LawState.BELOW,
            "sent-received": LawState.BELOW,
            "counts": LawState.ABOVE,
        }
        if impossible.get(law.name) is law.state:
            yield law
