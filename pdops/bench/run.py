"""Play many episodes on several processes, and keep what came of them in a file."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pdops.bench.baselines import learnt
from pdops.bench.episodes import Episode
from pdops.bench.grid import grid
from pdops.bench.outcome import Failed, Outcome
from pdops.bench.play import play
from pdops.bench.runlog import rules_hash
from pdops.errors import UsageError

SCHEMA = "pdops/bench-outcomes/v1"
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What came of the episodes of one run or of several.

    `rules` is the hash of the rules that judged, None where it was not noted or was not the same for all.
    """

    outcomes: list[Outcome]
    failed: list[Failed] = field(default_factory=list)
    rules: str | None = None


def run(
    episodes: Sequence[Episode], jobs: int, progress: Progress = lambda _: None, *, watched: bool = True
) -> Results:
    """Play episodes, the costly ones first, and return what came of them in the order given.

    One that ends in an error is told as failed, and the others go on.

    Args:
        episodes: what to play.
        jobs: processes; with 1 everything happens in this one.
        progress: called with how many are done.
        watched: whether healthy time and delays are watched too, and not only the scored answers asked for.
    """
    by_cost = sorted(episodes, key=lambda e: (-_workers(e), e.number))
    found: dict[str, Outcome | Failed] = {}
    for result in _play_all(by_cost, jobs, watched=watched):
        found[result.name] = result
        progress(len(found))
    ordered = [found[e.name] for e in episodes]
    return Results(
        outcomes=[o for o in ordered if isinstance(o, Outcome)],
        failed=[f for f in ordered if isinstance(f, Failed)],
        rules=rules_hash(),
    )


def with_learnt(outcomes: Sequence[Outcome], train: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes with the answers of learnt baselines added, trained on `train`.

    Raises:
        UsageError: scikit-learn is not installed, or there is too little to learn from.
    """
    found = list(outcomes)
    # By place: outcomes of several runs share numbers and names.
    usable = [place for place, o in enumerate(found) if o.features]
    answers = learnt.answers(train, [found[place] for place in usable])
    for i, place in enumerate(usable):
        outcome = found[place]
        said = {**outcome.said, **{name: list_[i] for name, list_ in answers.items()}}
        right = dict(outcome.right)
        if outcome.state == "fault":
            for name in answers:
                right[name] = learnt.place_right(outcome, said[name])
        found[place] = dataclasses.replace(outcome, said=said, right=right)
    return found


def save(results: Results, path: Path) -> None:
    """Write outcomes as gzipped JSON lines, a header with the hash of the rules and what failed first.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            failed = [dataclasses.asdict(f) for f in results.failed]
            head = {"schema": SCHEMA, "episodes": len(results.outcomes), "rules": results.rules, "failed": failed}
            file.write(json.dumps(head) + "\n")
            for outcome in results.outcomes:
                file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
    except OSError as error:
        raise UsageError(
            "outcomes cannot be written",
            where=str(path),
            why=(error.strerror or str(error)).lower(),
            hint="name another place with --out",
        ) from error


def load(path: Path) -> Results:
    """Read what `save` wrote.

    Raises:
        UsageError: the file cannot be read or holds something else.
    """
    what, hint = "outcomes cannot be read", "give a file that `pdops bench diagnosis --out` wrote"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            header = json.loads(file.readline() or "null")
            if not isinstance(header, dict) or header.get("schema") != SCHEMA:
                raise UsageError(what, where=str(path), why=f"it is not {SCHEMA}", hint=hint)
            adapter = TypeAdapter(Outcome)
            return Results(
                outcomes=[adapter.validate_python(json.loads(line)) for line in file],
                failed=TypeAdapter(list[Failed]).validate_python(header.get("failed", [])),
                rules=header.get("rules"),
            )
    except (OSError, EOFError, ValueError, ValidationError) as error:
        why = str(error).splitlines()[0].lower()
        raise UsageError(what, where=str(path), why=why, hint=hint) from error


def _play_all(episodes: Sequence[Episode], jobs: int, *, watched: bool) -> Iterator[Outcome | Failed]:
    if jobs <= 1:
        for episode in episodes:
            yield _tried(episode, watched=watched)
        return
    left = list(episodes)
    while left:
        lost: set[str] = set()
        for episode, result in _pooled(left, jobs, watched=watched):
            if result is None:
                lost.add(episode.name)
            else:
                yield result
        left = [e for e in left if e.name in lost]
        # A process that ended took the pool with it. One of those that were under way did it: each is tried alone.
        for episode in left[:jobs]:
            for _, result in _pooled([episode], 1, watched=watched):
                yield result or Failed(name=episode.name, seed=episode.seed, why=_ENDED)
        left = left[jobs:]


_ENDED = "the process that played it was ended, such as for lack of memory"


def _pooled(
    episodes: Sequence[Episode], jobs: int, *, watched: bool
) -> Iterator[tuple[Episode, Outcome | Failed | None]]:
    """Yield each episode with what came of it, None where processes ended before that was known."""
    # Each process is new, so that nothing of this one leaks into the numbers.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting: dict[Future[Outcome | Failed], Episode] = {}
        try:
            with contextlib.suppress(BrokenProcessPool):
                for episode in episodes:
                    waiting[pool.submit(_tried, episode, watched=watched)] = episode
            for done in as_completed(waiting):
                ended = isinstance(done.exception(), BrokenProcessPool)
                yield waiting[done], None if ended else done.result()
            yield from ((episode, None) for episode in episodes[len(waiting) :])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _tried(episode: Episode, *, watched: bool) -> Outcome | Failed:
    try:
        return play(episode, watched=watched)
    except Exception as error:  # noqa: BLE001  whatever it is, an hour of other episodes is not lost with it
        last = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        return Failed(name=episode.name, seed=episode.seed, why=" ".join(why.split()))


def _workers(episode: Episode) -> int:
    place = grid().topologies[episode.topology]
    return place.prefill + place.decode
