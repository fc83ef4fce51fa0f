"""Logs and facts beside a source that only knows metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import Frame
from pdops.model.view import Note
from pdops.sources.beside import Beside


class MetricsDouble:
    """A source of two frames that knows nothing but time."""

    interval_s = 1.0
    notes = (Note(worker="prometheus", code="slow", why="slow"),)

    def __init__(self, cluster: Cluster, between: Path) -> None:
        self.cluster = cluster
        self.closed = 0
        self._between = between

    async def frames(self) -> AsyncIterator[Frame]:
        yield Frame(at_s=1.0, facts={"d": {"version": "1"}})
        with self._between.open("a") as file:
            file.write("ERROR new\n")
        yield Frame(at_s=2.0)

    async def aclose(self) -> None:
        self.closed += 1


async def test_frames_carry_the_lines_of_the_inventory_and_notes_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR old\n")
    here = Worker(id="d", role=Role.DECODE, pool="d", logs=({"file": str(log)}, {"file": str(tmp_path / "none")}))
    source = MetricsDouble(Cluster(name="of the server", workers=()), log)
    beside = Beside(source, Cluster(name="c", workers=(here,)))
    frames = [frame async for frame in beside.frames()]
    assert [[(n.worker, n.line) for n in frame.logs] for frame in frames] == [[], [("d", "ERROR new")]]
    assert frames[0].facts["d"]["version"] == "1"
    assert (beside.cluster.name, beside.interval_s) == ("of the server", 1.0)
    assert [(n.worker, n.code) for n in beside.notes][:2] == [("prometheus", "slow"), ("d", "logs/1")]
    assert any(n.code.startswith("facts/") for n in beside.notes)
    await beside.aclose()
    assert source.closed == 1
