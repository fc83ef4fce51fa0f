"""Find the known log lines a pasted text speaks of, the best first."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from pdops.catalog.log_lines import LineSpec, log_lines, recognise

PREFIX = "log/"
"""Ids of lines carry it wherever checks and causes stand beside them."""
MAX_LINES = 20_000
"""Lines of a pasted text that are looked at."""
_SHORTEST = 5
"""Letters from which a piece of a known text is told from chance."""
_WEIGHT = {"decisive": 3, "strong": 2, "moderate": 1}
_WORD = re.compile(r"[a-z0-9_]{3,}")
_ASKED = 400
"""Characters of a text that nothing matched in which likenesses are looked for; each word costs."""
_NEAR = 0.5
_CLOSE = 0.6

How = Literal["line", "piece"]


@dataclass(frozen=True, slots=True)
class Found:
    """A known line in a text: `times` it occurs, a `sample`, and whether the text is such a line or a piece of one."""

    spec: LineSpec
    how: How
    times: int = 1
    sample: str = ""


def search(text: str) -> tuple[Found, ...]:
    """Return what a text speaks of: whole known lines first, then lines the text is a piece of.

    Of whole lines the one that says most comes first: no consequence, then by weight, then by how much of it is fixed
    text. A text of several lines is read line by line.
    """
    counts: dict[str, Found] = {}
    for line in text.splitlines()[:MAX_LINES]:
        for spec in recognise(line):
            before = counts.get(spec.id)
            counts[spec.id] = (
                Found(spec, "line", 1, line.strip())
                if before is None
                else Found(spec, "line", before.times + 1, before.sample)
            )
    if counts:
        return tuple(sorted(counts.values(), key=_rank))
    return _pieces(text)


def find(line_id: str) -> LineSpec | None:
    """Return a line by id, with or without its prefix, or None."""
    name = line_id.removeprefix(PREFIX)
    return next((spec for spec in log_lines() if spec.id == name), None)


def near(text: str, most: int = 3) -> tuple[str, ...]:
    """Return the ids, with prefix, of known lines that share most with a text; empty when nothing is alike."""
    text = text[:_ASKED]
    words = set(_WORD.findall(text.casefold()))
    scores: dict[str, float] = {}
    for spec in log_lines():
        own = set(_WORD.findall(" ".join((*spec.contains, spec.id.replace("-", " "))).casefold()))
        hits = sum(1.0 for word in words if word in own or difflib.get_close_matches(word, own, n=1, cutoff=0.8))
        score = hits / len(words) if words else 0.0
        if len(text) <= 80:
            score = max(score, max(_alike(text, known) for known in (*spec.contains, spec.id)))
        if score >= _NEAR:
            scores[spec.id] = score
    best = sorted(scores, key=lambda name: (-scores[name], name))
    return tuple(PREFIX + name for name in best[:most])


def _alike(text: str, known: str) -> float:
    ratio = difflib.SequenceMatcher(None, text.casefold(), known.casefold()).ratio()
    return ratio if ratio >= _CLOSE else 0.0


def _pieces(text: str) -> tuple[Found, ...]:
    asked = text.strip().casefold()
    if len(asked) < _SHORTEST:
        return ()
    found = [Found(spec, "piece") for spec in log_lines() if any(asked in known.casefold() for known in spec.contains)]
    return tuple(sorted(found, key=_rank))


def _rank(found: Found) -> tuple[bool, bool, int, int, str]:
    spec = found.spec
    return (spec.consequence, spec.cause is None, -_WEIGHT[spec.weight], -sum(map(len, spec.contains)), spec.id)
