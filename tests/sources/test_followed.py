"""A source that follows its inventory file: who is added is read, who is taken out is not, and half a file changes nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

from pdops.model.cluster import Cluster
from pdops.model.frame import EventKind, Frame
from pdops.model.view import Note
from pdops.sources.followed import Followed
from pdops.sources.inventory import load_inventory

HEAD = "version: 1\ncluster: c\nworkers:\n"
ONE = '  - {id: prefill-0, role: prefill, pool: prefill, url: "http://127.0.0.1:1", engine: vllm}\n'
TWO = ONE + '  - {id: prefill-1, role: prefill, pool: prefill, url: "http://127.0.0.1:2", engine: vllm}\n'


class DoubleSource:
    """Gives an empty frame a second for a cluster, on a clock that all doubles of a test share."""

    interval_s = 1.0
    notes: tuple[Note, ...] = ()

    def __init__(self, cluster: Cluster, clock: list[float]) -> None:
        self.cluster, self._clock, self.closed = cluster, clock, False

    async def frames(self) -> AsyncIterator[Frame]:
        while not self.closed:
            self._clock[0] += 1.0
            yield Frame(at_s=self._clock[0], scrapes=())

    async def aclose(self) -> None:
        self.closed = True


class Bench:
    """A file, what follows it, and every source it opened."""

    def __init__(self, folder: Path) -> None:
        self.path, self.opened, self.writes = folder / "pdops.yaml", [], 0
        self.write(HEAD + ONE)
        self.clock = clock = [0.0]

        def open_(cluster: Cluster) -> DoubleSource:
            self.opened.append(DoubleSource(cluster, clock))
            return self.opened[-1]

        self.source = Followed(self.path, self._load(), self._load, open_)
        self.frames = self.source.frames()

    def write(self, text: str) -> None:
        """Write the file, seen to be newer than before whatever the file system's clock can tell apart."""
        self.path.write_text(text)
        self.writes += 1
        os.utime(self.path, (self.writes, self.writes))

    def _load(self) -> Cluster:
        return load_inventory(self.path).cluster

    async def ids(self) -> list[str]:
        """Take a frame, and return who is there."""
        await anext(self.frames)
        return [w.id for w in self.source.cluster.workers]


async def test_a_worker_that_is_added_is_read_from_the_next_frame_on_with_an_event(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert await bench.ids() == ["prefill-0"]
    bench.write(HEAD + TWO)
    frame = await anext(bench.frames)
    assert [w.id for w in bench.source.cluster.workers] == ["prefill-0", "prefill-1"]
    assert [(e.kind, e.worker, e.pool, e.t_s) for e in frame.events] == [
        (EventKind.SCALE_OUT, "prefill-1", "prefill", frame.at_s)
    ]
    assert (await anext(bench.frames)).events == ()
    assert [s.closed for s in bench.opened] == [True, False]
    await bench.source.aclose()


async def test_a_worker_that_is_taken_out_is_gone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.write(HEAD + TWO)
    await bench.ids()
    assert await bench.ids() == ["prefill-0", "prefill-1"]
    bench.write(HEAD + ONE)
    frame = await anext(bench.frames)
    assert [(e.kind, e.worker) for e in frame.events] == [(EventKind.SCALE_IN, "prefill-1")]
    await bench.source.aclose()


async def test_a_file_that_is_gone_or_half_written_changes_nothing_until_it_is_whole(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.ids()
    bench.write(HEAD + TWO[:-30])
    assert await bench.ids() == ["prefill-0"]
    bench.path.unlink()
    assert await bench.ids() == ["prefill-0"]
    bench.write(HEAD)
    assert await bench.ids() == ["prefill-0"]
    assert len(bench.opened) == 1
    bench.write(HEAD + TWO)
    await bench.ids()
    assert await bench.ids() == ["prefill-0", "prefill-1"]
    await bench.source.aclose()


async def test_a_file_that_is_touched_and_says_the_same_opens_nothing_anew(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.ids()
    bench.write(HEAD + ONE)
    await bench.ids()
    await bench.ids()
    assert len(bench.opened) == 1
    await bench.source.aclose()


async def test_a_clock_that_was_set_back_when_the_file_changed_loses_no_frame(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.clock[0] = 1_000.0
    assert (await anext(bench.frames)).at_s == 1_001.0
    bench.write(HEAD + TWO)
    bench.clock[0] = 500.0
    frame = await anext(bench.frames)
    assert frame.at_s == 501.0
    frame = await anext(bench.frames)
    assert (frame.at_s, len(bench.source.cluster.workers)) == (502.0, 2)
