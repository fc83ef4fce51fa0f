"""A target that hangs makes nobody wait: not the other targets, not the clock, not the keys."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pdops.diagnose.engine import diagnose
from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import Frame
from pdops.model.view import Note, Presence
from pdops.sources.scrape import ScrapeSource
from pdops_tui.app import TopApp
from pdops_tui.feed import LiveFeed
from pdops_tui.snapshot import Snapshot
from tests.sources.test_scrape import DECODE, EngineDouble, serving
from tests.tui import build as b
from tests.tui.test_app import drawn, press, settle

PAGE = Path(__file__).parents[2] / "fixtures" / "expositions" / DECODE
NEVER_S = 600.0


async def until(feed: LiveFeed, wanted: Callable[[Snapshot], object]) -> Snapshot:
    """Wait until the newest snapshot is as wanted."""
    async with asyncio.timeout(60):
        while (snapshot := feed.latest()) is None or not wanted(snapshot):
            await asyncio.sleep(0.005)
    return snapshot


async def reached(feed: LiveFeed, frames: int) -> Snapshot:
    """Wait until so many different frames were seen."""
    seen: set[float] = set()
    async with asyncio.timeout(60):
        while len(seen) < frames:
            snapshot = feed.latest()
            if snapshot is not None:
                seen.add(snapshot.view.at_s)
            await asyncio.sleep(0.005)
    newest = feed.latest()
    assert newest is not None
    return newest


@pytest.fixture
async def hanging() -> AsyncIterator[tuple[LiveFeed, EngineDouble]]:
    async with AsyncExitStack() as stack:
        doubles = [await stack.enter_async_context(serving(EngineDouble(PAGE.read_bytes()))) for _ in range(3)]
        doubles[2].gate.clear()
        roles = (Role.PREFILL, Role.DECODE, Role.DECODE)
        names = ("prefill-0", "decode-0", "decode-1")
        workers = tuple(
            Worker(id=name, role=role, pool=role.value, url=double.url, engine="vllm")
            for name, role, double in zip(names, roles, doubles, strict=True)
        )
        source = ScrapeSource(Cluster(name="c", workers=workers), interval_s=0.05, timeout_s=NEVER_S)
        feed = LiveFeed(source, diagnose, diagnose_every_s=0.05)
        feed.start()
        try:
            yield feed, doubles[2]
        finally:
            doubles[2].gate.set()
            await asyncio.to_thread(feed.stop)


async def test_the_others_are_read_on_while_one_target_keeps_its_first_request(
    hanging: tuple[LiveFeed, EngineDouble],
) -> None:
    feed, stuck = hanging
    snapshot = await reached(feed, 12)
    assert stuck.asked
    assert not stuck.gate.is_set()
    health = {worker: h.presence for worker, h in snapshot.view.health.items()}
    assert health == {"prefill-0": Presence.UP, "decode-0": Presence.UP, "decode-1": Presence.NEVER}
    assert feed.failure is None


async def test_the_screen_is_drawn_and_takes_keys_while_one_target_hangs(
    hanging: tuple[LiveFeed, EngineDouble],
) -> None:
    feed, stuck = hanging
    await reached(feed, 3)
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab", "s", "question_mark")
        assert any("HELP" in line for line in drawn(app))
        app = await press(pilot, "escape")
        text = "\n".join(drawn(app))
        assert "up 2/3" in text
        assert "decode-1 NEVER" in text
        assert not stuck.gate.is_set()


class Stuck:
    """A source that blocks its whole thread in its first look, as a call that never returns would."""

    def __init__(self) -> None:
        self.cluster, self.interval_s = b.cluster(1, 1, router=False), 1.0
        self.notes: tuple[Note, ...] = ()
        self.entered, self.go = threading.Event(), threading.Event()

    async def frames(self) -> AsyncIterator[Frame]:
        for frame in b.frames(self.cluster, 3):
            yield frame
        self.entered.set()
        self.go.wait(60)

    async def aclose(self) -> None:
        self.go.set()


async def test_keys_work_and_data_is_paused_and_dropped_while_the_source_itself_is_stuck() -> None:
    source = Stuck()
    feed = LiveFeed(source, b.healthy_report)
    feed.start()
    try:
        await asyncio.to_thread(source.entered.wait, 60)
        async with TopApp(feed).run_test(size=(120, 36)) as pilot:
            app = await settle(pilot)
            assert "PREFILL 1/1 up" in "\n".join(drawn(app))
            app = await press(pilot, "x", "escape", "p")
            assert "PAUSED" in drawn(app)[0]
            app = await press(pilot, "p", "z")
            assert "PAUSED" not in drawn(app)[0]
            assert not source.go.is_set()
    finally:
        source.go.set()
        await asyncio.to_thread(feed.stop)


async def test_history_and_recording_go_on_while_the_screen_is_held(
    hanging: tuple[LiveFeed, EngineDouble], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pdops.sources.recording import open_recording

    monkeypatch.chdir(tmp_path)
    feed, _ = hanging
    await reached(feed, 3)
    async with TopApp(feed).run_test(size=(160, 36)) as pilot:
        await press(pilot, "R", "enter")
        app = await press(pilot, "p")
        held = drawn(app)[0].split()[-1]
        begun = await until(feed, lambda s: s.taping and s.taping.frames)
        now = await until(feed, lambda s: s.taping and begun.taping and s.taping.frames > begun.taping.frames + 5)
        assert now.view.at_s > begun.view.at_s
        app = await settle(pilot)
        assert drawn(app)[0].split()[-1] == held
    await asyncio.to_thread(feed.stop)
    (path,) = tmp_path.iterdir()
    kept = [f.at_s for f in open_recording(path).iter_frames()]
    # Between frames a View ages, so the tape says which frames there were.
    assert begun.taping is not None
    assert now.taping is not None
    assert begun.taping.to_s in kept
    assert now.taping.to_s in kept
