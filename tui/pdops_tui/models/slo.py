"""SLO attainment and goodput: a number, an interval, or not known."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.diagnose.attainment import Interval, attainment, goodput
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import Cell, Form, per_second, unknown_cell
from pdops_tui.models.promise import BY_CHANCE


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of the promises: attainment of each, with its target, and goodput."""

    attained: tuple[tuple[str, Cell], ...]
    target: str
    goodput: Cell


def kept(ask: Ask) -> Kept:
    """Return attainment of TTFT and ITL, and goodput."""
    slo = ask.slo
    pairs = []
    for name, signal, promised in (("TTFT", "ttft_seconds", slo.ttft_s), ("ITL", "itl_seconds", slo.itl_s)):
        if promised is None:
            continue
        pairs.append((name, _attained(ask, signal, promised)))
    return Kept(tuple(pairs), f"{slo.attainment * 100:g}%", _goodput(ask))


def _attained(ask: Ask, signal: str, promised_s: float) -> Cell:
    found = attainment(ask.read, signal, promised_s)
    if found is None:
        return unknown_cell(f"no buckets of {signal} at clients or on decode in the window")
    text = _span(found, lambda share: f"{share * 100:.3g}") + "%"
    wanted = ask.slo.attainment
    why = f"share within {promised_s:g} s, failures count as broken, last {ask.view.now.span_s:g} s"
    if found.low >= wanted:
        return Cell(text, "good", f"{why}; at least the {wanted:.3g} that is wanted", "", found.low)
    if found.high < wanted and ask.healthy:
        return Cell(text, "warn", f"{why}; below the {wanted:.3g} that is wanted, {BY_CHANCE}", "!", found.low)
    if found.high < wanted:
        return Cell(text, "bad", f"{why}; below the {wanted:.3g} that is wanted", "X", found.high)
    return Cell(text, "unknown", f"{why}; the interval does not say on which side of {wanted:.3g} it is", "", found.low)


def _goodput(ask: Ask) -> Cell:
    found = goodput(ask.read)
    if found.per_s is None:
        return unknown_cell(found.why)
    whole = f"/{per_second(found.of_per_s)}" if found.of_per_s is not None else ""
    return Cell(_span(found.per_s, per_second) + whole, "", found.why, "", found.per_s.low)


def _span(found: Interval, form: Form) -> str:
    low, high = form(found.low), form(found.high)
    return low if low == high else f"{low}-{high}"
