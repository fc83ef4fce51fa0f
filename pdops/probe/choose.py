"""Which pairs are asked, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from pdops.errors import UsageError
from pdops.model.cluster import Cluster, Pair


def chosen_pairs(cluster: Cluster, asked: Sequence[str]) -> tuple[Pair, ...]:
    """Return the pairs that texts of the form `P>D` name, or all of the cluster when there is none.

    Raises:
        UsageError: a text is no pair of this cluster, or the cluster has none.
    """
    every = cluster.pairs()
    if not every:
        raise UsageError(
            "no pair to ask",
            where=cluster.name,
            why="a pair needs a prefill and a decode worker",
            hint="give both, as --target prefill=URL --target decode=URL",
        )
    chosen: dict[Pair, None] = {}
    for text in asked:
        try:
            pair = Pair.parse(text)
        except ValueError as error:
            raise UsageError(
                "not a pair", where=f"--pair {text}", why=str(error), hint="quote it, as --pair 'prefill-0>decode-0'"
            ) from None
        if pair not in every:
            known = ", ".join(map(str, every[:8])) + (", …" if len(every) > 8 else "")
            raise UsageError("no such pair", where=f"--pair {text}", why=f"pairs are {known}", hint="name one of them")
        chosen[pair] = None
    return tuple(chosen) or every


def by_decode(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs of each decode worker, each list begun at another prefill worker, so that all have work."""
    by_decode: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_decode.setdefault(pair.dst, []).append(pair)
    return [mine[shift % len(mine) :] + mine[: shift % len(mine)] for shift, mine in enumerate(by_decode.values())]
