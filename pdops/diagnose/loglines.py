"""Join the log lines of the judged window with the catalog's table; shared by the checks that read logs."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from pdops.catalog.log_lines import LineSpec, recognise
from pdops.diagnose.context import Context
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, WEAK, Weighed
from pdops.model.report import Evidence

_RATIO = {"decisive": DECISIVE, "strong": STRONG, "moderate": MODERATE}
_NEXT_LOWER = {DECISIVE: MODERATE, STRONG: MODERATE, MODERATE: WEAK, WEAK: WEAK}
"""Weight for the other causes a line may tell of: never enough to be believed alone."""
_SHOWN = 160


@dataclass(frozen=True, slots=True)
class Match:
    """One kind of line as one worker logged it: how often, a sample, and what it weighs for `cause`."""

    spec: LineSpec
    cause: str
    worker: str
    n: int
    sample: str
    ratio: float


def matches(ctx: Context) -> tuple[Match, ...]:
    """Return what the lines of the judged window tell, by cause, kind and worker, the heaviest first.

    Of the kinds a line is of, only the heaviest counts for a cause.
    """
    found: dict[tuple[str, str, str], Match] = {}
    window = ctx.view.now
    for line in sorted(ctx.view.logs, key=lambda entry: (entry.t_s, entry.worker, entry.line)):
        if not window.start_s <= line.t_s <= window.end_s:
            continue
        for cause, spec, ratio in _told(line.line):
            key = (cause, spec.id, line.worker)
            before = found.get(key)
            n = 1 if before is None else before.n + 1
            sample = line.line.strip()[:_SHOWN] if before is None else before.sample
            found[key] = Match(spec, cause, line.worker, n, sample, ratio)
    return tuple(sorted(found.values(), key=lambda m: (-m.ratio, m.cause, m.spec.id, m.worker)))


def naming(found: Iterable[Match], causes: Container[str]) -> tuple[Match, ...]:
    """Return the matches whose own cause, not one they only may tell of, is among `causes` and that weigh at least strong."""
    return tuple(m for m in found if m.spec.cause == m.cause and m.cause in causes and m.ratio >= STRONG)


def _told(line: str) -> Iterable[tuple[str, LineSpec, float]]:
    best: dict[str, tuple[LineSpec, float]] = {}
    for spec in recognise(line):
        ratio = WEAK if spec.consequence else _RATIO[spec.weight]
        weights = dict.fromkeys(spec.also, _NEXT_LOWER[ratio]) | ({} if spec.cause is None else {spec.cause: ratio})
        for cause, weight in weights.items():
            if cause not in best or weight > best[cause][1]:
                best[cause] = (spec, weight)
    return [(cause, spec, weight) for cause, (spec, weight) in best.items()]


def evidence(ctx: Context, match: Match) -> Weighed:
    """Return a match as evidence; equal matches give equal evidence, so two checks may both bring it."""
    times = "" if match.n == 1 else f"{match.n} times: "
    said = Evidence(
        signal="log",
        scope=ctx.scope(match.worker),
        observed=f"{times}{match.sample}",
        expected=None,
        basis="log",
        window_s=ctx.view.now.span_s,
    )
    return Weighed(said, match.ratio, match.spec.group)
