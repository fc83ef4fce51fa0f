"""Latencies beside what is promised to clients; ok only when that is known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdops.model.cluster import CLIENT
from pdops.model.series import Reading
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import Cell, cell, seconds, unknown_cell

_OTHERS = (0.99, 0.95, 0.5)
"""Percentiles that a source may give instead of the promised one."""


BY_CHANCE = (
    "but no further than chance, or the width of a histogram bucket, makes of so few: the diagnosis does not count it"
)
"""Why a promise is passed and the cluster is called healthy all the same."""


@dataclass(frozen=True, slots=True)
class Promise:
    """One latency beside what is promised: its value, the target as text, and `[X]`, `[!]`, `ok` or `?`."""

    label: str
    value: Cell
    target: str
    state: Cell


def promises(ask: Ask) -> tuple[Promise, ...]:
    """Return TTFT and ITL at the SLO's percentile, or at the nearest one that clients' side gives.

    Without clients' TTFT the engines' own is only a lower bound, since each covers but its own leg: it can break a
    promise and never keep one. ITL of the decode engines stands for that of clients.
    """
    return (
        _promise(ask, "TTFT", *_client(ask, "ttft_seconds"), ask.slo.ttft_s),
        _promise(ask, "ITL", *_client(ask, "itl_seconds"), ask.slo.itl_s),
    )


def _client(ask: Ask, signal: str) -> tuple[Reading, float, str]:
    """Return the reading, its percentile, and what must be said about it."""
    wanted = ask.slo.percentile
    for q in (wanted, *(q for q in _OTHERS if q != wanted)):
        reading = ask.read.quantile(CLIENT, signal, q)
        if reading.known:
            return reading, q, "at clients"
    reason = ask.read.quantile(CLIENT, signal, wanted).why or "not known"
    if signal == "itl_seconds":
        return ask.context.itl(), wanted, f"of the decode engines; at clients: {reason}"
    legs = ask.context.ttft()
    why = f"the greatest of the engines' own, a lower bound of what clients see; at clients: {reason}"
    if legs.value is None:
        return legs, wanted, f"at clients: {reason}"
    if legs.bound == "le":
        return (
            Reading(None, why=f"engines' own TTFT is at most {seconds(legs.value)}, which bounds nothing"),
            wanted,
            why,
        )
    return replace(legs, bound="ge"), wanted, why


def _promise(ask: Ask, name: str, reading: Reading, q: float, about: str, target: float | None) -> Promise:
    label = f"{name} p{q * 100:g}"
    value = cell(reading, seconds, "s", about=f"{name} p{q * 100:g}, last {ask.view.now.span_s:g} s, {about}")
    if target is None:
        return Promise(label, value, "", Cell("no SLO", "dim", "the inventory promises nothing"))
    promised = ask.slo.percentile
    if q <= promised and reading.above(target):
        above = f"above the SLO of {seconds(target)}"
        state = Cell("[!]", "warn", f"{above}, {BY_CHANCE}", "!") if ask.healthy else Cell("[X]", "bad", above, "X")
    elif q >= promised and reading.below(target):
        state = Cell("ok", "good", f"below the SLO of {seconds(target)}")
    else:
        state = unknown_cell(reading.why or f"does not say on which side of the SLO p{promised * 100:g} is: {about}")
    return Promise(label, replace(value, style=state.style), f"/{seconds(target)}", state)
