"""Outcomes and tables made by hand."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np

from pdops.bench.episodes import Episode
from pdops.bench.outcome import Expected, Outcome, Said
from pdops.bench.table import Row, Table
from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.report import Scope


def cluster(prefill: int = 2, decode: int = 4) -> Cluster:
    workers = [Worker(id=f"prefill-{i}", role=Role.PREFILL, pool="prefill", zone="zone-0") for i in range(prefill)]
    workers += [Worker(id=f"decode-{i}", role=Role.DECODE, pool="decode", zone=f"zone-{i % 2}") for i in range(decode)]
    return Cluster(name="made", workers=tuple(workers))


def said(*causes: str, confidence: float = 0.8, alarm: bool = True, abstained: bool = False, faults=None) -> Said:
    return Said(
        alarm=alarm,
        abstained=abstained,
        verdict="fault" if alarm else "healthy",
        causes=causes,
        confidences=tuple(confidence for _ in causes),
        faults=tuple(faults or [1] * len(causes)),
        layer="prefill",
        scopes=tuple((Scope("worker", "prefill-0"),) for _ in causes),
    )


def outcome(number: int, answer: Said, *, truth=(("prefill-down",),), state="fault", **given) -> Outcome:
    kinds = given.pop("kinds", tuple(t[0] for t in truth))
    return Outcome(
        name=f"made/{number}",
        number=number,
        split=given.pop("split", "develop"),
        kinds=kinds,
        severity="clear",
        workload="chat",
        topology="2P6D",
        unseen=given.pop("unseen", False),
        missing_ratio=given.pop("missing_ratio", 0.0),
        state=state,
        expected=tuple(
            Expected(kind=c[0], causes=c, layers_ok=("prefill",), scopes=(Scope("worker", "prefill-0"),)) for c in truth
        )
        if state == "fault"
        else (),
        impact_s=None,
        asked_s=400.0,
        said={"pdops": answer},
        right={"pdops": given.pop("scope_right", True)},
        **given,
    )


def dies(episode: Episode, **_: object) -> Outcome:
    """Play nothing: the process of the second episode is killed, the others answer."""
    if episode.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(outcome(episode.number, said("prefill-down"), healthy_s=300.0), name=episode.name)


def table(lines: dict[tuple[str, str, str], np.ndarray], interval_s: float = 5.0) -> Table:
    """Make a table of {(entity, group, metric): values} that begins at 0."""
    length = max(len(v) for v in lines.values())
    return Table(
        tuple(Row(*key) for key in lines),
        np.arange(length) * interval_s,
        np.vstack([np.asarray(v) for v in lines.values()]),
    )
