"""What a run says, as Markdown: all numbers with intervals, also where pdops loses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pdops.bench import scores
from pdops.bench.encode import delays
from pdops.bench.grid import grid
from pdops.bench.outcome import Failed, Outcome
from pdops.bench.scores import PDOPS, Rate

TOLD = "told onset"
AIMS = (
    ("cause top-1", "≥ 0.85"),
    ("cause top-3", "≥ 0.95"),
    ("scope top-1", "≥ 0.90"),
    ("ahead of the best baseline", "≥ 20 points"),
    ("false alarms per healthy hour", "≤ 0.1"),
    ("delay, median", "≤ 3 intervals"),
    ("ECE", "≤ 0.05"),
    ("lost at 30 % of metrics missing", "≤ 10 points"),
    ("unseen kinds: abstains or right scope", "≥ 0.80"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a reader must know of a run.

    `cells` are those drawn and those there are; `rules` None means that nobody noted which ones judged. `failed` are the
    episodes that are in no number.
    """

    title: str
    date: str
    command: str
    versions: Mapping[str, str]
    rules: str | None
    took_s: float
    jobs: int
    cells: tuple[int, int]
    notes: Sequence[str] = ()
    failed: Sequence[Failed] = ()


def markdown(outcomes: Sequence[Outcome], about: About, plots: Sequence[tuple[str, str]] = ()) -> str:
    """Return the report; `plots` are (caption, file) to refer to."""
    parts = (
        _head(outcomes, about),
        _aims(outcomes),
        _methods(outcomes),
        _kinds(outcomes),
        _slices(outcomes),
        _healthy(outcomes),
        _sureness(outcomes),
        _speed(outcomes),
        _cells(outcomes),
        (line for caption, file in plots for line in (f"![{caption}]({file})", "")),
        _limits(about),
    )
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def best_baseline(outcomes: Sequence[Outcome]) -> tuple[str, Rate] | None:
    """Return the baseline with the most right first causes; those that were told the onset are baselines too."""
    rates = [(m, scores.score(outcomes, m).top1) for m in scores.methods(outcomes) if m != PDOPS]
    known = [(m, r) for m, r in rates if r.value is not None]
    return max(known, key=lambda pair: pair[1].value or 0.0) if known else None


def _head(outcomes: Sequence[Outcome], about: About) -> Iterator[str]:
    states = Counter(o.state for o in outcomes)
    yield from (f"# {about.title}", "")
    yield f"- date: {about.date}"
    yield f"- command: `{about.command}`"
    yield "- versions: " + ", ".join(f"{k} {v}" for k, v in about.versions.items())
    rules = "not known" if about.rules is None else f"`{about.rules}`"
    yield f"- rules: {rules} (hash of checks, weighing, calibration and catalogs)"
    yield f"- took {about.took_s / 60:.1f} min on {about.jobs} process{'es' if about.jobs != 1 else ''}"
    yield (
        f"- {len(outcomes)} episodes: {states['fault']} with a fault that clients noticed or that is one of telemetry alone, "
        f"{states['healthy']} healthy; "
        f"set aside: {states['sub-threshold']} whose fault no client noticed, {states['not-healthy']} look-alikes that "
        "broke the promise"
    )
    if about.failed:
        yield f"- **{len(about.failed)} more episodes failed and are in no number**:"
        yield from (f"  - `{f.name}`, seed {f.seed}: {f.why}" for f in about.failed)
    drawn, all_ = about.cells
    yield f"- cells (kind × severity × workload × topology): {drawn} of {all_} were drawn, by seed"
    by_place = Counter(o.topology for o in outcomes)
    absent = [name for name in grid().topologies if name not in by_place]
    not_drawn = f"; not drawn: {', '.join(absent)}" if absent else ""
    yield "- by topology: " + ", ".join(f"{name} {n}" for name, n in by_place.items()) + not_drawn
    yield ""


def _aims(outcomes: Sequence[Outcome]) -> Iterator[str]:
    ours, best = scores.score(outcomes, PDOPS), best_baseline(outcomes)
    per_hour, upper, hours = scores.alarms_per_hour(outcomes)
    values = (
        _shown(ours.top1),
        _shown(ours.top3),
        _shown(ours.scope),
        _ahead(ours.top1, best),
        "not watched" if per_hour is None else f"{per_hour:.2f} (95 %: up to {upper:.2f}) over {hours:.0f} h",
        _waited(outcomes),
        _number(scores.ece(scores.stated(outcomes, PDOPS))),
        _lost(outcomes),
        _shown(ours.unseen),
    )
    yield from ("## Aims", "", "| | aim | measured |", "|---|---|---|")
    for (name, aim), value in zip(AIMS, values, strict=True):
        yield f"| {name} | {aim} | {value} |"
    yield ""


def _methods(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from ("## All methods, same episodes", "")
    yield "Macro means over kinds with 95 % intervals; answers are given 60 s after clients noticed, or when the fault ends."
    yield "Methods that were told the onset are not asked about healthy clusters, and may be the best baseline all the same."
    yield "A scope is right if what it names and what was hit have more than half of all workers of both in common; one of two"
    yield "hit workers is not enough, nor is a pool of which less than half was hit. Of a router or store fault the whole"
    yield "cluster is right too where its kind says so. Unseen kinds are judged where they came alone."
    yield "Top-1, scope and layer count what a method stands for; top-3 and both of two also what an `unknown` lists."
    yield "Where a kind's truth allows the verdict `unknown`, that verdict is right in top-1 and top-3."
    yield ""
    yield "| method | cause top-1 | top-3 | scope top-1 | layer | answered | healthy called faulty | both of two faults in top-3 | exact pair |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for method in scores.methods(outcomes):
        s = scores.score(outcomes, method)
        told = method.endswith(TOLD)
        cells = (s.top1, s.top3, s.scope, s.layer, s.answered, None if told else s.false_share, s.both, s.exact)
        yield f"| {method} | " + " | ".join("–" if c is None else _shown(c) for c in cells) + " |"
    yield ""


def _kinds(outcomes: Sequence[Outcome]) -> Iterator[str]:
    single = [o for o in scores.faults(outcomes) if len(o.expected) == 1]
    best = best_baseline(outcomes)
    yield from ("## By kind of fault", "")
    yield f"| kind | n | top-1 | top-3 | scope | abstained | {best[0] if best else 'baseline'} top-1 | taken for |"
    yield "|---|---|---|---|---|---|---|---|"
    for kind in sorted({o.kinds[0] for o in single}):
        group = [o for o in single if o.kinds[0] == kind]
        ours = [
            scores.plain(group, lambda o: scores.top(o, PDOPS, 1)),
            scores.plain(group, lambda o: scores.top(o, PDOPS, 3)),
            scores.plain(group, lambda o: o.right.get(PDOPS, False)),
            scores.plain(group, lambda o: not scores.stands(o.said[PDOPS])),
        ]
        theirs = scores.plain(group, lambda o: scores.top(o, best[0], 1)) if best else Rate(None, None, None, 0)
        cells = " | ".join(_share(r) for r in (*ours, theirs))
        yield f"| {kind} | {len(group)} | {cells} | {_taken_for(group)} |"
    yield ""


def _taken_for(group: Sequence[Outcome]) -> str:
    wrong = Counter(
        o.said[PDOPS].causes[0] for o in group if scores.stands(o.said[PDOPS]) and not scores.top(o, PDOPS, 1)
    )
    missed = sum(not o.said[PDOPS].alarm for o in group)
    parts = [f"{cause} {n}" for cause, n in wrong.most_common(3)]
    return ", ".join([*parts, *([f"healthy {missed}"] if missed else [])])


def _slices(outcomes: Sequence[Outcome]) -> Iterator[str]:
    single = [o for o in scores.faults(outcomes) if len(o.expected) == 1]
    yield from ("## By severity, workload, topology and missing data", "", "| slice | n | top-1 |", "|---|---|---|")
    slices = (lambda o: o.severity, lambda o: o.workload, lambda o: o.topology)
    for key in slices:
        for name, rate in scores.split_by(single, key, lambda o: scores.top(o, PDOPS, 1)).items():
            yield f"| {name} | {rate.n} | {_shown(rate)} |"
    for name, rate in scores.by_missing(outcomes, PDOPS):
        yield f"| metrics missing: {name} | {rate.n} | {_shown(rate)} |"
    yield ""


def _healthy(outcomes: Sequence[Outcome]) -> Iterator[str]:
    ours = scores.score(outcomes, PDOPS)
    unknown = f"`unknown` on a healthy cluster, at one instant each: {_shown(ours.unknown_share)}."
    yield from ("## Healthy clusters", "")
    if not scores.watched(outcomes):
        yield from ("Healthy time was not watched: only the scored answers were asked for.", "", unknown, "")
        return
    yield from ("| look-alike | episodes | hours | false alarms | as what |", "|---|---|---|---|---|")
    groups: dict[str, list[Outcome]] = {}
    for o in outcomes:
        name = o.kinds[0] if o.state == "healthy" else "before a fault"
        if o.healthy_s:
            groups.setdefault(name, []).append(o)
    for name, group in sorted(groups.items()):
        per_hour, _, hours = scores.alarms_per_hour(group)
        as_what = Counter(cause for o in group for cause in o.false_causes)
        said = ", ".join(f"{c} {n}" for c, n in as_what.most_common(4))
        yield f"| {name} | {len(group)} | {hours:.1f} | {sum(as_what.values())} ({per_hour or 0:.2f}/h) | {said} |"
    broken_h, excused = sum(o.broken_s for o in outcomes) / 3600.0, sum(o.excused for o in outcomes)
    yield from ("", unknown, "")
    yield (
        f"Not in these hours: {broken_h:.1f} h in which the load alone broke the promise for clients by a share of 0.05 more "
        f"than it allows, as their own requests tell, or ITL was over its promise; {excused} alarms came then."
    )
    if blind := sum(not scores.was_watched(o) for o in outcomes):
        yield f"{blind} of {len(outcomes)} episodes were not watched, and are in no hours and no delays."
    yield ""


def _sureness(outcomes: Sequence[Outcome]) -> Iterator[str]:
    pairs = scores.stated(outcomes, PDOPS)
    yield from ("## How sure, how right", "")
    yield f"Brier {_number(scores.brier(pairs))}, ECE {_number(scores.ece(pairs))} over {len(pairs)} answers."
    yield from ("", "| stated | right | n |", "|---|---|---|")
    for said, right, n in scores.reliability(pairs):
        yield f"| {said:.2f} | {right:.2f} | {n} |"
    curve = scores.risk_coverage(outcomes, PDOPS)
    if curve:
        picked = [curve[min(len(curve) - 1, int(len(curve) * q))] for q in (0.25, 0.5, 0.75, 0.999)]
        words = "; ".join(f"{cover:.0%} answered → {risk:.0%} of them wrong" for cover, risk in picked)
        yield from ("", f"Risk and coverage, surest first: {words}.")
    yield ""


def _speed(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield from ("## Time for one answer", "", "| workers | median | p95 | n |", "|---|---|---|---|")
    by_size: dict[int, list[float]] = {}
    for o in outcomes:
        if o.diagnose_s is not None:
            by_size.setdefault(o.workers, []).append(o.diagnose_s)
    for size, times in sorted(by_size.items()):
        yield f"| {size} | {np.median(times) * 1e3:.0f} ms | {np.quantile(times, 0.95) * 1e3:.0f} ms | {len(times)} |"
    yield ""


def _cells(outcomes: Sequence[Outcome]) -> Iterator[str]:
    places = [name for name in grid().topologies if any(o.topology == name for o in outcomes)]
    yield from ("## Cells that were played", "")
    yield "Severity and workload of each episode by its first fault, then look-alikes, which have no severity; a second fault or"
    yield "missing metrics are no cells of their own."
    yield from ("", f"| what | {' | '.join(places)} |", "|---" * (1 + len(places)) + "|")
    played: dict[tuple[bool, str], dict[str, Counter[str]]] = {}
    for o in outcomes:
        cell = f"{o.severity} {o.workload}" if o.expected else o.workload
        row = played.setdefault((not o.expected, o.kinds[0]), {})
        row.setdefault(o.topology, Counter())[cell] += 1
    for (_, what), row in sorted(played.items()):
        cells = (sorted(row.get(place, Counter()).items()) for place in places)
        texts = (", ".join(f"{cell} x{n}" if n > 1 else cell for cell, n in found) or "–" for found in cells)
        yield f"| {what} | {' | '.join(texts)} |"
    yield ""


def _limits(about: About) -> Iterator[str]:
    yield from ("## What this does not show", "")
    yield "- The simulator is ours. It shows that the diagnosis is consistent with it, not that it is right in the field."
    for note in about.notes:
        yield f"- {note}"


def _waited(outcomes: Sequence[Outcome]) -> str:
    found = delays(outcomes)
    if not found["n"]:
        return "–" if scores.watched(outcomes) else "not watched"
    median, p95 = ("never" if found[name] is None else f"{found[name]:.1f}" for name in ("median", "p95"))
    return (
        f"{median} (p95 {p95}, n {found['n']}: {found['before_impact']} before clients noticed, {found['never']} never)"
    )


def _ahead(ours: Rate, best: tuple[str, Rate] | None) -> str:
    if best is None or ours.value is None or best[1].value is None:
        return "–"
    return f"{(ours.value - best[1].value) * 100:+.0f} points ({best[0]}: {best[1].value:.2f})"


def _lost(outcomes: Sequence[Outcome]) -> str:
    by_missing = dict(scores.by_missing(outcomes, PDOPS))
    whole, most = by_missing["none"], by_missing["30%–40%"]
    if whole.value is None or most.value is None:
        return "–"
    return f"{(whole.value - most.value) * 100:.0f} points at 30–40 % (n {most.n})"


def _shown(rate: Rate) -> str:
    if rate.value is None:
        return "–"
    return f"{rate.value:.2f} [{rate.low:.2f}, {rate.high:.2f}]"


def _share(rate: Rate) -> str:
    return "–" if rate.value is None else f"{rate.value:.2f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
