"""Play many episodes on several processes, and keep what came of them in a file."""

from __future__ import annotations

import dataclasses
import gzip
import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pdops.bench.baselines import learnt
from pdops.bench.episodes import Episode
from pdops.bench.grid import grid
from pdops.bench.outcome import Outcome
from pdops.bench.play import play
from pdops.bench.runlog import rules_hash
from pdops.errors import UsageError

SCHEMA = "pdops/bench-outcomes/v1"
Progress = Callable[[int, Outcome], None]


def run(
    episodes: Sequence[Episode], jobs: int, progress: Progress = lambda _n, _o: None, *, watched: bool = True
) -> list[Outcome]:
    """Play episodes, the costly ones first, and return their outcomes in the order given.

    Args:
        episodes: what to play.
        jobs: processes; with 1 everything happens in this one.
        progress: called with how many are done and the newest outcome.
        watched: whether healthy time and delays are watched too, and not only the scored answers asked for.
    """
    by_cost = sorted(episodes, key=lambda e: (-_workers(e), e.number))
    found: dict[int, Outcome] = {}
    for outcome in _play_all(by_cost, jobs, watched=watched):
        found[outcome.number] = outcome
        progress(len(found), outcome)
    return [found[e.number] for e in episodes]


def with_learnt(outcomes: Sequence[Outcome], train: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes with the answers of learnt baselines added, trained on `train`.

    Raises:
        UsageError: scikit-learn is not installed, or there is too little to learn from.
    """
    usable = [o for o in outcomes if o.features]
    answers = learnt.answers(train, usable)
    found: dict[int, Outcome] = {}
    for i, outcome in enumerate(usable):
        said = {**outcome.said, **{name: list_[i] for name, list_ in answers.items()}}
        right = dict(outcome.right)
        if outcome.state == "fault":
            for name in answers:
                right[name] = learnt.place_right(outcome, said[name])
        found[outcome.number] = dataclasses.replace(outcome, said=said, right=right)
    return [found.get(o.number, o) for o in outcomes]


def save(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write outcomes that were just judged as gzipped JSON lines, a header with the hash of the rules first.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(json.dumps({"schema": SCHEMA, "episodes": len(outcomes), "rules": rules_hash()}) + "\n")
            for outcome in outcomes:
                file.write(json.dumps(dataclasses.asdict(outcome)) + "\n")
    except OSError as error:
        raise UsageError(
            "outcomes cannot be written",
            where=str(path),
            why=(error.strerror or str(error)).lower(),
            hint="name another place with --out",
        ) from error


def load(path: Path) -> tuple[list[Outcome], str | None]:
    """Read outcomes that `save` wrote, and the hash of the rules that judged them, None where it was not noted.

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
            return [adapter.validate_python(json.loads(line)) for line in file], header.get("rules")
    except (OSError, EOFError, ValueError, ValidationError) as error:
        why = str(error).splitlines()[0].lower()
        raise UsageError(what, where=str(path), why=why, hint=hint) from error


def _play_all(episodes: Sequence[Episode], jobs: int, *, watched: bool) -> Iterator[Outcome]:
    if jobs <= 1:
        for episode in episodes:
            yield play(episode, watched=watched)
        return
    # Each process is new, so that nothing of this one leaks into the numbers.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(play, episode, watched=watched) for episode in episodes}
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _workers(episode: Episode) -> int:
    place = grid().topologies[episode.topology]
    return place.prefill + place.decode
