"""Feeds hand the newest state over without waiting, survive what breaks, and stop cleanly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from pdops.errors import RecordingError, UnreachableError
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.report import Report
from pdops.model.view import Note, Presence, View
from pdops_tui.feed import Command, Frames, LiveFeed, ReplayFeed, Snapshot
from pdops_tui.player import Player
from tests.tui import build as b

WHO = b.cluster(1, 1, router=False)
FRAMES = list(b.frames(WHO, 30))


def wait_for(what: Callable[[], object], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "did not happen"
        time.sleep(0.005)


class Source:
    """Gives frames when it is told to; may break, end or hang."""

    def __init__(self, frames: list[Frame], error: Exception | None = None, *, ends: bool = False) -> None:
        self.cluster: Cluster = WHO
        self.interval_s = 0.01
        self.closed = 0
        self.notes: tuple[Note, ...] = ()
        self._frames, self._error, self._ends = frames, error, ends

    async def frames(self) -> AsyncIterator[Frame]:
        for frame in self._frames:
            yield frame
            await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        if not self._ends:
            await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed += 1


@pytest.fixture
def run() -> Iterator[Callable[[LiveFeed | ReplayFeed], LiveFeed | ReplayFeed]]:
    started: list[LiveFeed | ReplayFeed] = []
    before = set(threading.enumerate())

    def start(feed: LiveFeed | ReplayFeed) -> LiveFeed | ReplayFeed:
        started.append(feed)
        feed.start()
        return feed

    yield start
    for feed in started:
        feed.stop()
        feed.stop()
    assert not [t for t in threading.enumerate() if t not in before and t.name.startswith("pdops-")]


Run = Callable[[LiveFeed | ReplayFeed], LiveFeed | ReplayFeed]


def newest(feed: LiveFeed | ReplayFeed) -> Snapshot:
    snapshot = feed.latest()
    assert snapshot is not None
    return snapshot


def reached(feed: LiveFeed | ReplayFeed, at_s: float) -> bool:
    """Whether a page of this time was seen; what a live screen shows before the first page is of the time it is shown."""
    snapshot = feed.latest()
    return snapshot is not None and not snapshot.asking and snapshot.view.at_s >= at_s


# live


def test_live_feed_reads_judges_and_closes(run: Run) -> None:
    source = Source(FRAMES)
    feed = run(LiveFeed(source, b.healthy_report, diagnose_every_s=0.01, label="here"))
    wait_for(lambda: feed.latest() and newest(feed).report and newest(feed).view.at_s >= FRAMES[-1].at_s)
    seen = newest(feed)
    assert (seen.source, seen.position, seen.trouble) == ("here", None, None)
    feed.control(Command("seek", 5.0))
    feed.stop()
    assert source.closed == 1
    assert feed.failure is None


def test_before_the_first_frame_a_live_feed_shows_whom_it_asks(run: Run) -> None:
    feed = LiveFeed(Source([]), b.healthy_report, diagnose_every_s=0.01)
    assert newest(feed).asking
    run(feed)
    time.sleep(0.1)
    seen = newest(feed)
    assert (seen.asking, seen.report) == (True, None)
    assert {h.presence for h in seen.view.health.values()} == {Presence.NEVER}
    heard = run(LiveFeed(Source(FRAMES), b.healthy_report, diagnose_every_s=0.01))
    wait_for(lambda: newest(heard).report)
    assert not newest(heard).asking


def test_a_source_that_breaks_before_its_first_frame_leaves_nothing_to_show(run: Run) -> None:
    feed = run(LiveFeed(Source([], UnreachableError("nobody answers")), b.healthy_report))
    wait_for(lambda: feed.failure)
    wait_for(lambda: feed.latest() is None)


def test_when_the_source_hangs_its_data_ages_on_the_screen(run: Run) -> None:
    feed = run(LiveFeed(Source(FRAMES[:3]), b.healthy_report, diagnose_every_s=5.0))
    wait_for(lambda: feed.latest() and newest(feed).view.health["decode-0"].presence is Presence.STALE)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnreachableError("nobody answers", where="x"), "nobody answers: x"),
        (KeyError("q"), "the source stopped: KeyError: 'q'"),
        (None, "the source ended"),
    ],
)
def test_a_source_that_breaks_is_said_beside_its_last_data(run: Run, error: Exception | None, said: str) -> None:
    feed = run(LiveFeed(Source(FRAMES[:3], error, ends=True), b.healthy_report))
    wait_for(lambda: feed.latest() and newest(feed).trouble)
    assert said in (newest(feed).trouble or "")
    assert feed.failure is not None
    assert feed.failure.hint or isinstance(error, UnreachableError)


def test_a_source_that_breaks_at_once_leaves_nothing_but_the_failure(run: Run) -> None:
    feed = run(LiveFeed(Source([], UnreachableError("nobody answers")), b.healthy_report))
    wait_for(lambda: feed.failure)
    assert feed.latest() is None


def test_a_judge_that_fails_leaves_the_numbers(run: Run) -> None:
    def broken(view: View) -> Report:
        raise ZeroDivisionError("x")

    feed = run(LiveFeed(Source(FRAMES), broken, diagnose_every_s=0.01))
    wait_for(lambda: feed.latest() and newest(feed).trouble)
    assert newest(feed).report is None
    assert newest(feed).trouble == "the diagnosis failed: ZeroDivisionError: x"


def test_a_slow_judge_does_not_hold_up_reading(run: Run) -> None:
    free = threading.Event()

    def slow(view: View) -> Report:
        free.wait(10)
        return b.healthy_report(view)

    feed = run(LiveFeed(Source(FRAMES), slow))
    wait_for(lambda: reached(feed, FRAMES[-1].at_s))
    assert newest(feed).report is None
    free.set()
    wait_for(lambda: newest(feed).report)


def test_stopping_a_feed_that_never_started_does_nothing() -> None:
    LiveFeed(Source(FRAMES), b.healthy_report).stop()
    ReplayFeed(Frames(WHO, FRAMES), b.healthy_report).stop()


# the player


def test_player_walks_and_rebuilds() -> None:
    player = Player(Frames(WHO, FRAMES))
    player.go_to(20)
    forward = player.view()
    assert (player.index, player.at_s, player.ended) == (20, b.START_S + 19, False)
    player.go_to(1000)
    assert (player.index, player.total, player.ended, player.wait_s) == (31, 31, True, 0.0)
    assert not player.forward()
    player.go_to(20)
    again = player.view()
    assert (again.at_s, again.health, set(again.series)) == (forward.at_s, forward.health, set(forward.series))
    player.go_to(-5)
    assert player.index == 1


@pytest.mark.parametrize(("at", "index"), [(-100, 1), (0, 1), (0.5, 1), (7, 8), (7.9, 8), (1e9, 31)])
def test_player_seeks_to_the_last_frame_not_after_a_moment(at: float, index: int) -> None:
    for start in (1, 15, 31):
        player = Player(Frames(WHO, FRAMES))
        player.go_to(start)
        player.seek(b.START_S + at)
        assert player.index == index


def test_player_says_how_long_nothing_was_recorded() -> None:
    player = Player(Frames(WHO, [*FRAMES[:5], *FRAMES[20:]]))
    player.go_to(5)
    assert player.gap_s is None
    player.forward()
    assert player.gap_s == 16.0
    player.forward()
    assert player.gap_s is None


# replay


def replay(**more: object) -> ReplayFeed:
    return ReplayFeed(Frames(WHO, FRAMES), b.healthy_report, label="x.pdrec", **more)  # type: ignore[arg-type]


def at(feed: LiveFeed | ReplayFeed) -> int:
    snapshot = feed.latest()
    return snapshot.position.index if snapshot and snapshot.position and not snapshot.position.seeking else 0


def test_replay_plays_to_the_end_and_starts_anew(run: Run) -> None:
    feed = run(replay(speed=64.0))
    wait_for(lambda: at(feed) == 31)
    position = newest(feed).position
    assert position is not None
    assert (position.ended, position.total, position.paused, position.end_s) == (True, 31, False, b.START_S + 30)
    assert newest(feed).report is not None
    feed.control(Command("pause"))
    feed.control(Command("play"))
    wait_for(lambda: 0 < at(feed) < 31)


def test_replay_steps_seeks_and_judges_every_stop(run: Run) -> None:
    feed = run(replay(paused=True))
    wait_for(lambda: at(feed) == 1)
    feed.control(Command("step", 1))
    wait_for(lambda: at(feed) == 2)
    for _ in range(3):
        feed.control(Command("step", 1))
    wait_for(lambda: at(feed) == 5)
    feed.control(Command("step", -1))
    wait_for(lambda: at(feed) == 4)
    feed.control(Command("seek", b.START_S + 20))
    wait_for(lambda: at(feed) == 21)
    feed.control(Command("skip", -10))
    wait_for(lambda: at(feed) == 11)
    seen = newest(feed)
    assert seen.report is not None
    assert seen.report.at_s == seen.view.at_s == b.START_S + 10


def test_replay_speed_stays_in_its_limits(run: Run) -> None:
    feed = run(replay(paused=True))
    wait_for(lambda: at(feed))

    def speed() -> float:
        position = newest(feed).position
        assert position is not None
        return position.speed

    for command, wanted in (
        (Command("faster"), 2.0), (Command("slower"), 1.0), (Command("speed", 1000.0), 64.0), (Command("speed", 0.01), 0.25)
    ):  # fmt: skip
        feed.control(command)
        wait_for(lambda wanted=wanted: speed() == wanted)


def test_replay_toggles(run: Run) -> None:
    feed = run(replay(paused=True))
    wait_for(lambda: at(feed))
    feed.control(Command("toggle"))
    wait_for(lambda: newest(feed).position and not newest(feed).position.paused)  # type: ignore[union-attr]
    feed.control(Command("toggle"))
    wait_for(lambda: newest(feed).position and newest(feed).position.paused)  # type: ignore[union-attr]


def test_replay_may_start_in_the_middle_under_another_slo(run: Run) -> None:
    other = Cluster(name="other", workers=WHO.workers)
    feed = run(replay(paused=True, start_s=b.START_S + 12.5, cluster=other))
    wait_for(lambda: at(feed) == 13)
    assert newest(feed).view.cluster.name == "other"


def test_an_empty_recording_is_a_failure(run: Run) -> None:
    feed = run(ReplayFeed(Frames(WHO, []), b.healthy_report))
    wait_for(lambda: feed.failure)
    assert "nothing to play" in str(feed.failure)


def test_a_recording_that_breaks_keeps_what_was_shown(run: Run) -> None:
    class Cut(Frames):
        def iter_frames(self) -> Iterator[Frame]:
            yield from FRAMES[:3]
            raise RecordingError("recording cannot be read", why="damaged")

    feed = run(ReplayFeed(Cut(WHO, FRAMES), b.healthy_report, speed=64.0))
    wait_for(lambda: feed.failure)
    wait_for(lambda: newest(feed).trouble)
    assert "damaged" in (newest(feed).trouble or "")
