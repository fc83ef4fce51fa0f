"""The curves of a report as SVG files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pdops.bench import scores
from pdops.bench.outcome import Outcome
from pdops.bench.scores import PDOPS
from pdops.errors import UsageError

_SIZE = (6.0, 3.6)


def draw(outcomes: Sequence[Outcome], folder: Path, stem: str) -> list[tuple[str, str]]:
    """Write the plots beside the report and return (caption, file name) of each.

    Raises:
        UsageError: matplotlib is not installed, or the folder cannot be written.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise UsageError(
            "matplotlib is not installed", hint="pip install 'pdops[bench]', or leave plots out with --no-plots"
        ) from error
    mpl.use("agg")
    # Without these the same numbers give another file each time.
    mpl.rcParams["svg.hashsalt"] = "pdops"
    made: list[tuple[str, str]] = []
    drawings: tuple[tuple[str, str, Callable[[Any, Sequence[Outcome]], None]], ...] = (
        ("methods", "Cause top-1 of every method, 95 % intervals", _methods),
        ("reliability", "Stated confidence and share of right answers", _reliability),
        ("risk", "Share of wrong answers among those given, surest first", _risk),
        ("missing", "Cause top-1 as metrics are taken away", _missing),
        ("delay", "Intervals from impact to the first right answer", _delay),
    )
    for name, caption, paint in drawings:
        file = f"{stem}-{name}.svg"
        _save(folder / file, caption, paint, outcomes)
        made.append((caption, file))
    return made


def _save(
    path: Path, caption: str, paint: Callable[[Any, Sequence[Outcome]], None], outcomes: Sequence[Outcome]
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    paint(axes, outcomes)
    axes.set_title(caption, fontsize=10)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
    except OSError as error:
        raise UsageError(
            "a plot cannot be written", where=str(path), why=(error.strerror or str(error)).lower(), hint="check --out"
        ) from error


def _methods(axes: Any, outcomes: Sequence[Outcome]) -> None:
    rates = [(m, scores.score(outcomes, m).top1) for m in scores.methods(outcomes)]
    known = [(m, r) for m, r in reversed(rates) if r.value is not None]
    for place, (_, r) in enumerate(known):
        axes.barh(place, r.value, color="tab:blue", height=0.6)
        axes.plot([r.low, r.high], [place, place], color="black", linewidth=1)
    axes.set_yticks(range(len(known)), [m for m, _ in known], fontsize=8)
    axes.set_xlim(0, 1)


def _reliability(axes: Any, outcomes: Sequence[Outcome]) -> None:
    points = scores.reliability(scores.stated(outcomes, PDOPS))
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    axes.plot([c for c, _, _ in points], [r for _, r, _ in points], marker="o")
    _unit(axes, "stated", "right")


def _risk(axes: Any, outcomes: Sequence[Outcome]) -> None:
    for method in scores.methods(outcomes):
        curve = scores.risk_coverage(outcomes, method)
        if curve and method in (PDOPS, "forest", "baro"):
            axes.plot([c for c, _ in curve], [r for _, r in curve], label=method)
    if axes.lines:
        axes.legend(fontsize=8)
    _unit(axes, "share of faults answered", "wrong among them")


def _missing(axes: Any, outcomes: Sequence[Outcome]) -> None:
    for method in scores.methods(outcomes):
        if method in (PDOPS, "forest", "thresholds"):
            rates = [(n, r) for n, r in scores.by_missing(outcomes, method) if r.value is not None]
            axes.plot([n for n, _ in rates], [r.value for _, r in rates], marker="o", label=method)
    if axes.lines:
        axes.legend(fontsize=8)
    axes.set_ylim(0, 1)


def _delay(axes: Any, outcomes: Sequence[Outcome]) -> None:
    from pdops.bench.scenario import INTERVAL_S

    delays = [o.delay_s / INTERVAL_S for o in scores.faults(outcomes) if o.delay_s is not None]
    if delays:
        axes.hist(delays, bins=range(int(max(delays)) + 3), color="tab:blue")
    axes.set_xlabel("scrape intervals")


def _unit(axes: Any, x: str, y: str) -> None:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
