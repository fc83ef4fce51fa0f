"""Fit how often a stated confidence is right, on the split kept for that."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import numpy as np
import yaml

from pdops.bench.outcome import Outcome
from pdops.bench.scores import PDOPS, stated
from pdops.errors import CatalogError

Knots = tuple[tuple[float, float], ...]

LEAST = 30
"""With fewer answers than this the identity is kept."""
IDENTITY = ((0.0, 0.0), (1.0, 1.0))


def fit(outcomes: Sequence[Outcome]) -> tuple[tuple[float, float], ...]:
    """Return isotonic knots (stated, right) from the first answers of pdops; the identity when there are too few."""
    pairs = stated(outcomes, PDOPS)
    if len(pairs) < LEAST:
        return IDENTITY
    return isotonic([c for c, _ in pairs], [float(ok) for _, ok in pairs])


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
