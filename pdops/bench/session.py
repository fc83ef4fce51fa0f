"""One run of the benchmark from choice to report."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from math import ceil
from pathlib import Path

from pdops import __version__
from pdops.bench import calibrate, plots, report, runlog
from pdops.bench.episodes import HEALTHY_SHARE, Episode, cell_count, plan
from pdops.bench.grid import Split, grid, kinds, unseen
from pdops.bench.outcome import Failed, Outcome
from pdops.bench.play import FIRST_JUDGED_S
from pdops.bench.report import About
from pdops.bench.run import Progress, Results, load, run, save, with_learnt
from pdops.clock import WallClock
from pdops.errors import UsageError
from pdops.model.times import rfc3339

FULL = 800
"""Episodes of a full run; estimated, from few large episodes, at less than an hour on two idle cores."""
_SPARE = 1.15
_VERSIONED = ("numpy", "scikit-learn", "matplotlib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What to play and what to do with it.

    `healthy_hours` plays look-alikes alone, as many as make up that time. `train` is a file of outcomes that learnt
    baselines learn from, None learns from the run's own other folds. `replayed` are files of outcomes to score again
    instead of playing; their split is then the one that counts. `fit` is where a calibration is written.
    """

    split: Split = "develop"
    episodes: int = FULL
    healthy_hours: float | None = None
    seed: int = 0
    jobs: int = 1
    topologies: tuple[str, ...] = ()
    held_out: bool = False
    learnt: bool = True
    train: Path | None = None
    replayed: tuple[Path, ...] = ()
    out: Path | None = None
    drawn: bool = True
    fit: Path | None = None
    log: Path = runlog.DEFAULT
    command: str = "pdops bench diagnosis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run gave: the outcomes, what failed, the report as text, and the files that were written."""

    outcomes: tuple[Outcome, ...]
    failed: tuple[Failed, ...]
    text: str
    files: tuple[Path, ...]


def choose(choice: Choice) -> tuple[Episode, ...]:
    """Return the episodes of a choice, none where outcomes are scored again.

    Raises:
        UsageError: the held-out split without being asked for by name, a topology that does not exist, a fit on a
            split that is not for it, or learnt baselines with look-alikes alone to learn from.
    """
    if choice.split == "held-out" and not choice.held_out and not choice.replayed:
        raise UsageError(
            "the held-out split is played at a release only",
            hint="use --split develop; at a release add --held-out, and the run is logged",
        )
    strange = [t for t in choice.topologies if t not in grid().topologies]
    if strange:
        raise UsageError("no such topology", where=", ".join(strange), hint="known: " + ", ".join(grid().topologies))
    if choice.fit is not None and choice.split != "calibrate":
        raise UsageError("confidence is fitted on its own split only", where=choice.split, hint="add --split calibrate")
    if choice.replayed:
        return ()
    hours = choice.healthy_hours
    if hours is not None and choice.learnt and choice.train is None:
        raise UsageError(
            "learnt baselines cannot be trained",
            why="look-alikes alone have no fault to learn",
            hint="add --train FILE with outcomes of faults, or --no-learnt",
        )
    return plan(
        choice.split,
        choice.episodes if hours is None else _episodes_of(hours, choice.topologies),
        given=kinds(),
        unseen=unseen() if choice.split == "held-out" else (),
        seed=choice.seed,
        topologies=choice.topologies,
        healthy_share=HEALTHY_SHARE if hours is None else 1.0,
    )


def _episodes_of(hours: float, topologies: Sequence[str]) -> int:
    """Return how many look-alikes make up that time, with some to spare for those in which the promise breaks."""
    places = [t for name, t in grid().topologies.items() if not topologies or name in topologies]
    span_s = sum(t.weight * (t.before_s + t.after_s - FIRST_JUDGED_S) for t in places) / sum(t.weight for t in places)
    return ceil(_SPARE * hours * 3600.0 / span_s)


def conduct(choice: Choice, episodes: Sequence[Episode], progress: Progress = lambda _: None) -> Result:
    """Play the episodes, add the learnt baselines, write what is asked for, and return the report.

    Raises:
        UsageError: a file cannot be read or written, or a library is missing.
    """
    clock = WallClock()
    began_s = clock.monotonic()
    started_s = clock.now()
    if choice.replayed:
        results = _again(choice.replayed)
        if choice.fit is not None:
            _check_fit(choice.replayed, results)
    else:
        if choice.split == "held-out":
            _log(choice, started_s, len(episodes))
        # A fit needs answers alone.
        results = run(episodes, choice.jobs, progress, watched=choice.fit is None)
    files: list[Path] = []
    if choice.out is not None and not choice.replayed:
        files.append(choice.out / f"{choice.split}.outcomes.json.gz")
        # Before anything that may fail: an hour of playing must not be lost.
        save(results, files[-1])
    outcomes, rules = results.outcomes, results.rules
    # Where every episode failed the report says so; there is nothing to compare.
    if choice.learnt and outcomes:
        outcomes = with_learnt(outcomes, load(choice.train).outcomes if choice.train is not None else outcomes)
    splits = _splits(choice, outcomes)
    about = _about(choice, outcomes, results, started_s, clock.monotonic() - began_s)
    stem = f"diagnosis-{'-'.join(splits)}-{about.date[:10]}"
    drawn: list[tuple[str, str]] = []
    if choice.out is not None and choice.drawn:
        drawn = plots.draw(outcomes, choice.out, stem)
        files += [choice.out / name for _, name in drawn]
    text = report.markdown(outcomes, about, drawn)
    if choice.out is not None:
        files.append(choice.out / f"{stem}.md")
        _write(files[-1], text)
    if choice.fit is not None:
        files.append(choice.fit)
        fitted = calibrate.fit(outcomes)
        fitted_on = f"{len(outcomes)} episodes of the calibration split, {about.date[:10]}, rules {rules}: {fitted}"
        knots = calibrate.compose(calibrate.in_use(), fitted.knots)
        _write(choice.fit, calibrate.to_yaml(knots, fitted_on))
    return Result(outcomes=tuple(outcomes), failed=tuple(results.failed), text=text, files=tuple(files))


def _log(choice: Choice, started_s: float, count: int) -> None:
    """Write the run down before it is made: one that was broken off has been looked at too."""
    entry = {
        "date": rfc3339(started_s),
        "rules": runlog.rules_hash(),
        "kinds": runlog.kinds_hash(),
        "version": __version__,
        "seed": choice.seed,
        "episodes": count,
        "unseen_kinds": len(unseen()),
        "command": choice.command,
    }
    runlog.note(choice.log, entry)


def _again(files: Sequence[Path]) -> Results:
    """Read what came of one or several runs."""
    read = [load(file) for file in files]
    rules = {r.rules for r in read}
    return Results(
        outcomes=[o for r in read for o in r.outcomes],
        failed=[f for r in read for f in r.failed],
        rules=rules.pop() if len(rules) == 1 else None,
    )


def _splits(choice: Choice, outcomes: Sequence[Outcome]) -> list[str]:
    """Return the splits of the outcomes; where every episode failed, the one that was chosen."""
    return sorted({o.split for o in outcomes}) or [choice.split]


def _check_fit(files: Sequence[Path], results: Results) -> None:
    """Refuse what a fit on would be wrong: another split, or confidences that are not those of the line in use."""
    splits = sorted({o.split for o in results.outcomes})
    if splits == ["calibrate"] and results.rules == runlog.rules_hash():
        return
    why = (
        "it was judged by other rules than those in use" if splits == ["calibrate"] else f"it holds {', '.join(splits)}"
    )
    raise UsageError(
        "confidence cannot be fitted on these outcomes",
        where=", ".join(map(str, files)),
        why=why,
        hint="play them anew with --split calibrate",
    )


def _about(choice: Choice, outcomes: Sequence[Outcome], results: Results, started_s: float, took_s: float) -> About:
    splits = _splits(choice, outcomes)
    every = (*kinds().kinds, *(unseen() if "held-out" in splits else ()))
    versions = {"pdops": __version__, "Python": platform.python_version()}
    for name in _VERSIONED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return About(
        title=f"Diagnosis benchmark, {' and '.join(splits)} split",
        date=rfc3339(started_s),
        command=choice.command,
        versions=versions,
        rules=results.rules,
        took_s=took_s,
        jobs=choice.jobs,
        cells=(len(_cells(outcomes)), cell_count(every)),
        notes=_notes(choice),
        failed=results.failed,
    )


def _cells(outcomes: Sequence[Outcome]) -> set[tuple[str, str, str, str]]:
    return {(o.kinds[0], o.severity, o.workload, o.topology) for o in outcomes if o.expected}


def _notes(choice: Choice) -> tuple[str, ...]:
    """Return what limits the comparison with learnt baselines."""
    if not choice.learnt:
        return ()
    if choice.train is not None:
        return (f"Learnt baselines learnt from {choice.train.name}.",)
    return (
        "Learnt baselines learnt from four fifths of these very episodes and answered the last one, so they know this "
        "split's parameter families, and any kind that only it has.",
    )


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError("a file cannot be written", where=str(path), why=why, hint="name another place") from error
