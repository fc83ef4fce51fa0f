"""Fit how often a stated confidence is right, on the split kept for that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import yaml

from pdops.bench.outcome import Outcome
from pdops.bench.scores import PDOPS, brier, stated
from pdops.errors import CatalogError

Knots = tuple[tuple[float, float], ...]

_FOLDS = 5
_DRAWS = 10
LEAST = 30
"""With fewer answers than this the identity is kept."""
IDENTITY = ((0.0, 0.0), (1.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Knots (stated, right) from `n` first answers, with the Brier score as they were and as fitted out of fold.

    The fitted score is None where there were too few answers to fit.
    """

    knots: Knots
    n: int
    before: float | None
    after: float | None

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{self.n} answers, too few to fit"
        kept = " and so not used" if self.knots == IDENTITY else ""
        return f"{self.n} answers, Brier {self.before:.4f}, isotonic out of fold {self.after:.4f}{kept}"


def fit(outcomes: Sequence[Outcome]) -> Fit:
    """Fit isotonic knots to the first answers of pdops; the identity is kept where a fit betters nothing out of fold."""
    pairs = stated(outcomes, PDOPS)
    before = brier(pairs)
    if len(pairs) < LEAST or before is None:
        return Fit(knots=IDENTITY, n=len(pairs), before=before, after=None)
    after = _out_of_fold(pairs)
    knots = _isotonic(pairs) if after < before else IDENTITY
    return Fit(knots=knots, n=len(pairs), before=before, after=after)


def _isotonic(pairs: Sequence[tuple[float, bool]]) -> Knots:
    return isotonic([c for c, _ in pairs], [float(ok) for _, ok in pairs])


def _out_of_fold(pairs: Sequence[tuple[float, bool]]) -> float:
    """Return the Brier score of answers by knots fitted on the others, over several draws of the folds."""
    rng = np.random.default_rng(0)
    squared: list[float] = []
    for _ in range(_DRAWS):
        order = rng.permutation(len(pairs))
        for fold in range(_FOLDS):
            held = set(order[fold::_FOLDS].tolist())
            raw, right = (
                np.array(s) for s in zip(*_isotonic([p for i, p in enumerate(pairs) if i not in held]), strict=True)
            )
            squared += [(float(np.interp(pairs[i][0], raw, right)) - pairs[i][1]) ** 2 for i in sorted(held)]
    return float(np.mean(squared))


def isotonic(x: Sequence[float], y: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Return the knots of the least-squares non-decreasing fit (pool adjacent violators), between 0 and 1.

    Equal x share one value. Each block gives its weighted centre, so what lies between is linear and no step is taken
    for a certainty. Below the least x nothing was seen, so the line goes to zero there.
    """
    ties: dict[float, list[float]] = {}
    for raw, right in zip(x, y, strict=True):
        ties.setdefault(round(float(raw), 3), []).append(float(right))
    blocks: list[tuple[float, float, int]] = []
    for raw in sorted(ties):
        blocks.append((raw, float(np.mean(ties[raw])), len(ties[raw])))
        while len(blocks) > 1 and blocks[-2][1] >= blocks[-1][1]:
            right_block, left = blocks.pop(), blocks.pop()
            n = left[2] + right_block[2]
            centre, level = (
                (a * left[2] + b * right_block[2]) / n for a, b in zip(left[:2], right_block[:2], strict=True)
            )
            blocks.append((centre, level, n))
    knots = {round(centre, 4): round(level, 4) for centre, level, _ in blocks}
    inner = {raw: level for raw, level in knots.items() if 0.0 < raw < 1.0}
    return ((0.0, 0.0), *sorted(inner.items()), (1.0, max(knots.values())))


def in_use() -> Knots:
    """Return the knots that diagnoses go through now; the identity where none are shipped.

    Raises:
        CatalogError: the shipped file is not one of knots.
    """
    file = resources.files("pdops.diagnose").joinpath("data", "calibration.yaml")
    if not file.is_file():
        return IDENTITY
    try:
        return tuple((float(raw), float(right)) for raw, right in yaml.safe_load(file.read_text("utf-8"))["knots"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise CatalogError("calibration cannot be read", where=file.name, why=why, hint="reinstall pdops") from error


def compose(
    old: Sequence[tuple[float, float]], fitted: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    """Return the knots of one line that does what `old` and then `fitted` do.

    Confidences that were judged have already gone through the line in use, so a fit on them comes after it.
    """
    raw, seen = (np.array(side) for side in zip(*old, strict=True))
    from_, to = (np.array(side) for side in zip(*fitted, strict=True))
    rising = np.concatenate(([True], np.diff(seen) > 0))
    places = sorted({*raw.tolist(), *np.interp(from_, seen[rising], raw[rising]).round(6).tolist()})
    return tuple((x, round(float(np.interp(np.interp(x, raw, seen), from_, to)), 4)) for x in places)


def to_yaml(knots: Sequence[tuple[float, float]], fitted_on: str) -> str:
    """Return the file that a diagnosis reads; `fitted_on` says on what it was fitted."""
    lines = [
        "# How often a hypothesis of a given weight is right: [weight, confidence], both 0-1, not falling, straight",
        "# between knots. Written by `pdops bench diagnosis --split calibrate --fit FILE`.",
        "schema: pdops/calibration/v1",
        f'fitted_on: "{fitted_on}"',
        "knots:",
        *(f"  - [{raw:g}, {fitted:g}]" for raw, fitted in knots),
    ]
    return "\n".join(lines) + "\n"
