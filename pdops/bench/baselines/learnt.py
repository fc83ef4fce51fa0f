"""Decision tree, random forest and the most frequent answer, trained on the causes of another split's episodes."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pdops.bench.outcome import Outcome, Said
from pdops.catalog.load import catalog
from pdops.errors import UsageError
from pdops.model.report import Scope

HEALTHY = "healthy"
FOLDS = 5
_SEED = 7
NAMES = ("prior", "tree", "forest")


def label(outcome: Outcome) -> str:
    """Return what a learner is to answer: the first cause of the first fault, or healthy."""
    return outcome.expected[0].causes[0] if outcome.state == "fault" and outcome.expected else HEALTHY


def answers(train: Sequence[Outcome], test: Sequence[Outcome]) -> dict[str, list[Said]]:
    """Return each learner's answer for each test episode.

    Where the test episodes are those of training, every answer comes from a model that has not seen its fifth of them.

    Raises:
        UsageError: scikit-learn is not installed, or there is nothing to learn from.
    """
    usable = [o for o in train if o.state in ("fault", "healthy") and o.features]
    if len(usable) < 2 * FOLDS or not test:
        raise UsageError(
            "learnt baselines cannot be trained",
            why=f"{len(usable)} episodes to learn from",
            hint=f"play at least {2 * FOLDS} episodes, or leave them out with --no-learnt",
        )
    same = {o.name for o in usable} & {o.name for o in test}
    if not same:
        return {name: _predict(make(), usable, test) for name, make in _models().items()}
    found: dict[str, list[Said | None]] = {name: [None] * len(test) for name in NAMES}
    for fold in range(FOLDS):
        held = [i for i in range(len(test)) if i % FOLDS == fold]
        hidden = {test[i].name for i in held}
        rest = [o for o in usable if o.name not in hidden]
        for name, make in _models().items():
            for i, said in zip(held, _predict(make(), rest, [test[i] for i in held]), strict=True):
                found[name][i] = said
    return {name: [s for s in list_ if s is not None] for name, list_ in found.items()}


def _models() -> dict[str, Callable[[], Any]]:
    try:
        from sklearn.dummy import DummyClassifier
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.tree import DecisionTreeClassifier
    except ImportError as error:
        raise UsageError(
            "scikit-learn is not installed", hint="pip install 'pdops[bench]', or leave them out with --no-learnt"
        ) from error
    return {
        "prior": lambda: DummyClassifier(strategy="prior"),
        "tree": lambda: DecisionTreeClassifier(min_samples_leaf=3, class_weight="balanced", random_state=_SEED),
        "forest": lambda: RandomForestClassifier(
            n_estimators=300, min_samples_leaf=2, class_weight="balanced_subsample", random_state=_SEED, n_jobs=1
        ),
    }


def _predict(model: Any, train: Sequence[Outcome], test: Sequence[Outcome]) -> list[Said]:
    labels = [label(o) for o in train]
    if len(Counter(labels)) < 2:
        raise UsageError("learnt baselines cannot be trained", why="all episodes have one label", hint="play more")
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        # It doubts that many causes in few episodes are classes; they are.
        model.fit(_matrix(train), labels)
    table = model.predict_proba(_matrix(test))
    return [_said(o, model.classes_, row) for o, row in zip(test, table, strict=True)]


def _matrix(outcomes: Sequence[Outcome]) -> np.ndarray:
    # A number no feature has stands for unknown, so that a tree can split on it.
    return np.nan_to_num(np.array([o.features for o in outcomes], dtype=np.float64), nan=-1000.0)


def _said(outcome: Outcome, classes: Sequence[str], row: np.ndarray) -> Said:
    order = sorted(range(len(classes)), key=lambda i: (-row[i], classes[i]))
    if classes[order[0]] == HEALTHY:
        return Said(alarm=False, verdict=HEALTHY)
    ranked = [i for i in order if classes[i] != HEALTHY and row[i] > 0][:5]
    causes = tuple(str(classes[i]) for i in ranked)
    return Said(
        alarm=True,
        verdict="fault",
        causes=causes,
        confidences=tuple(float(row[i]) for i in ranked),
        faults=tuple(1 for _ in ranked),
        layer=catalog().causes[causes[0]].layer.value,
        scopes=tuple(outcome.places.get(c, (Scope("global", "all"),)) for c in causes),
    )


def place_right(outcome: Outcome, said: Said) -> bool:
    """Whether the place of a learnt answer is right: places are kept by cause, judged when the episode was played."""
    return said.alarm and bool(said.causes) and outcome.place_right.get(said.causes[0], False)
