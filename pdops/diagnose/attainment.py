"""Which share of requests kept the promise, and how many a second kept all of it, as far as bucket edges and counts allow."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.history.readings import Readings
from pdops.model.cluster import CLIENT, Role, pool_key
from pdops.model.series import HistogramSeries, Window
from pdops.stats import histograms


@dataclass(frozen=True, slots=True)
class Interval:
    """The least and the greatest that a number can be; both the same when it is known exactly."""

    low: float
    high: float


def attainment(ask: Readings, signal: str, promised_s: float, window: Window | None = None) -> Interval | None:
    """Return the share (0-1) of events within a promise, failures counted as broken; None when nothing is known.

    At clients where a router tells, else on decode: an engine's own TTFT leaves out the prefill leg, so that share is
    an upper bound only and its lower end is zero; so it is where failures are not counted.
    """
    window = window or ask.view.now
    decode = [pool_key(p) for p in ask.view.cluster.pools(Role.DECODE)]
    scopes = [CLIENT] if ask.has(CLIENT, signal) else decode
    grown = [
        g
        for scope in scopes
        for _, series in ask.parts(scope, signal)
        if isinstance(series, HistogramSeries)
        and (g := histograms.growth(series, window.start_s, window.end_s)) is not None
    ]
    merged = histograms.merge(grown)
    if merged is None or merged.counts is None:
        return None
    above = histograms.share_above(merged.bounds, merged.counts, promised_s)
    if above is None:
        return None
    low, high = 1.0 - above[1], 1.0 - above[0]
    if signal != "ttft_seconds":
        return Interval(low, high)
    failed = ask.increase(scopes[0], "request_failure", window).value if len(scopes) == 1 else None
    if failed is not None and failed > 0:
        kept = merged.total / (merged.total + failed)
        low, high = low * kept, high * kept
    # Where nobody counts the failures any number of requests may have broken it.
    return Interval(0.0 if failed is None or scopes != [CLIENT] else low, high)


@dataclass(frozen=True, slots=True)
class Goodput:
    """Requests/s that met every promise, of all that ended; `why` says what is not known, or how it was bounded."""

    per_s: Interval | None
    of_per_s: float | None
    why: str


def goodput(ask: Readings, window: Window | None = None) -> Goodput:
    """Return how many requests a second met every promise, as the interval that counts allow.

    Clients' TTFT gives the greatest number. A request breaks ITL with one gap at least, so no more requests than gaps
    can have broken it: the least is what TTFT leaves, less the gaps that may be too long. Without TTFT at clients nothing
    is said, since an engine's own leaves out the prefill leg.
    """
    window = window or ask.view.now
    slo = ask.view.cluster.slo
    good, bad = (ask.rate(CLIENT, signal, window) for signal in ("request_success", "request_failure"))
    if good.value is None:
        return Goodput(None, None, good.why or "finished requests are not known")
    if bad.value is None:
        return Goodput(None, None, bad.why or "failed requests are not known")
    ended = good.value + bad.value
    if slo.ttft_s is None and slo.itl_s is None:
        return Goodput(None, ended, "the inventory promises nothing")
    low = high = good.value
    if slo.ttft_s is not None:
        share = attainment(ask, "ttft_seconds", slo.ttft_s, window) if ask.has(CLIENT, "ttft_seconds") else None
        if share is None:
            return Goodput(None, ended, "TTFT at clients is not known")
        low, high = min(low, share.low * ended), min(high, share.high * ended)
    if slo.itl_s is not None:
        gaps = ask.rate(CLIENT, "itl_seconds", window)
        share = attainment(ask, "itl_seconds", slo.itl_s, window) if ask.has(CLIENT, "itl_seconds") else None
        if share is None or gaps.value is None:
            return Goodput(Interval(0.0, high), ended, "ITL at clients is not known, so this is an upper bound")
        low = max(0.0, low - (1.0 - share.low) * gaps.value)
    return Goodput(Interval(low, high), ended, "requests that met TTFT, less the token gaps that may break ITL")
