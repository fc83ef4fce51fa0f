"""Recording from the screen: with what was seen before, never over a file, never in the reader's way."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdops.cli import top
from pdops.errors import RecordingError
from pdops.model.cluster import Slo
from pdops.model.frame import Frame
from pdops.sources.recording import open_recording
from pdops.sources.recording.writer import RecordingWriter
from pdops_tui.desk import Desk
from pdops_tui.feed import Command, LiveFeed, Snapshot
from pdops_tui.habits import became
from pdops_tui.session import Session
from pdops_tui.snapshot import Taping
from pdops_tui.tape import Deck, Past, Tape, offered_name
from tests.tui import build as b
from tests.tui.test_feeds import FRAMES, WHO, Source, newest, reached, wait_for


@pytest.fixture
def live() -> Iterator[Callable[[Source], LiveFeed]]:
    started: list[LiveFeed] = []

    def start(source: Source) -> LiveFeed:
        feed = LiveFeed(source, b.healthy_report, diagnose_every_s=0.01)
        started.append(feed)
        feed.start()
        return feed

    yield start
    for feed in started:
        feed.stop()
    assert not [t for t in threading.enumerate() if t.name.startswith("pdops-")]


def seen_all(feed: LiveFeed) -> Callable[[], object]:
    return lambda: reached(feed, FRAMES[-1].at_s)


def taping(feed: LiveFeed) -> Taping:
    found = newest(feed).taping
    assert found is not None
    return found


def test_a_recording_begins_with_what_was_seen_before_the_key(
    live: Callable[[Source], LiveFeed], tmp_path: Path
) -> None:
    feed = live(Source(FRAMES))
    wait_for(seen_all(feed))
    path = tmp_path / "x.pdrec"
    feed.control(Command("record", text=str(path)))
    wait_for(lambda: newest(feed).taping and taping(feed).running)
    feed.control(Command("stop_recording"))
    wait_for(lambda: not taping(feed).running)
    state = taping(feed)
    assert (state.path, state.frames, state.trouble, state.lost) == (str(path), len(FRAMES), None, 0)
    assert (state.from_s, state.to_s) == (FRAMES[0].at_s, FRAMES[-1].at_s)
    assert state.size_bytes == path.stat().st_size
    assert [f.at_s for f in open_recording(path).iter_frames()] == [f.at_s for f in FRAMES]


def test_configuration_that_was_read_before_is_in_the_recording(tmp_path: Path) -> None:
    tape = Tape(str(tmp_path / "x.pdrec"), WHO, interval_s=1.0, facts={"decode-0": {"block_size": "32"}})
    tape.add(dataclasses.replace(FRAMES[0], facts={"decode-0": {"dtype": "auto"}}))
    tape.stop()
    (frame,) = open_recording(tmp_path / "x.pdrec").iter_frames()
    assert frame.facts == {"decode-0": {"block_size": "32", "dtype": "auto"}}


def test_leaving_the_screen_closes_the_recording(live: Callable[[Source], LiveFeed], tmp_path: Path) -> None:
    feed = live(Source(FRAMES))
    wait_for(seen_all(feed))
    feed.control(Command("record", text=str(tmp_path / "x.pdrec")))
    feed.stop()
    assert len(list(open_recording(tmp_path / "x.pdrec").iter_frames())) == len(FRAMES)
    assert became(taping(feed)).startswith(f"recorded {len(FRAMES)} frames")


def test_a_recording_that_breaks_while_the_screen_closes_is_told(
    live: Callable[[Source], LiveFeed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(self: RecordingWriter) -> None:
        raise RecordingError("recording cannot be written", where=self.path, why="no space left on device")

    monkeypatch.setattr(RecordingWriter, "flush", full)
    feed = live(Source(FRAMES[:2]))
    wait_for(lambda: reached(feed, FRAMES[1].at_s))
    feed.control(Command("record", text=str(tmp_path / "x.pdrec")))
    wait_for(lambda: newest(feed).taping and taping(feed).running)
    monkeypatch.setattr("pdops_tui.app.run_top", lambda feed, **_: feed.stop() or 0)
    assert top._show(lambda: feed, False, Session(), Desk()) == 0
    said = f"recording cannot be written: {tmp_path / 'x.pdrec'}: no space left on device"
    assert capsys.readouterr().err == f"pdops: warning: {said}\n"


def test_a_file_that_exists_is_never_replaced(live: Callable[[Source], LiveFeed], tmp_path: Path) -> None:
    path = tmp_path / "x.pdrec"
    path.write_text("precious")
    feed = live(Source(FRAMES))
    wait_for(seen_all(feed))
    feed.control(Command("record", text=str(path)))
    wait_for(lambda: newest(feed).taping)
    assert not taping(feed).running
    assert taping(feed).trouble == f"recording cannot be written: {path}: the file exists"
    assert path.read_text() == "precious"
    feed.control(Command("record", text=str(tmp_path / "y.pdrec")))
    wait_for(lambda: taping(feed).running)
    assert taping(feed).trouble is None


def test_a_second_wish_to_record_leaves_the_first_recording_alone(
    live: Callable[[Source], LiveFeed], tmp_path: Path
) -> None:
    feed = live(Source(FRAMES))
    wait_for(seen_all(feed))
    for name in ("x", "y"):
        feed.control(Command("record", text=str(tmp_path / f"{name}.pdrec")))
    wait_for(lambda: newest(feed).taping)
    feed.stop()
    assert [p.name for p in tmp_path.iterdir()] == ["x.pdrec"]


def test_a_disk_that_refuses_ends_the_recording_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RecordingWriter, frame: Frame) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(RecordingWriter, "write", full)
    tape = Tape(str(tmp_path / "x.pdrec"), WHO, interval_s=1.0, facts={}, before=tuple(FRAMES))
    wait_for(lambda: not tape.state.running)
    assert tape.state.trouble == "recording cannot be written: OSError: no space left"
    tape.add(FRAMES[0])
    tape.stop()


def test_a_disk_that_hangs_loses_frames_and_counts_them_but_never_makes_the_reader_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    write = RecordingWriter.write

    def slow(self: RecordingWriter, frame: Frame) -> None:
        assert go.wait(60)
        write(self, frame)

    monkeypatch.setattr(RecordingWriter, "write", slow)
    monkeypatch.setattr("pdops_tui.tape._WAITING_MOST", 3)
    tape = Tape(str(tmp_path / "x.pdrec"), WHO, interval_s=1.0, facts={})
    for frame in FRAMES:
        tape.add(frame)
    assert tape.state.lost >= len(FRAMES) - 4
    go.set()
    state = tape.stop()
    assert state.frames + state.lost == len(FRAMES)


async def test_frames_that_come_while_the_file_is_made_are_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deck = Deck()
    deck.add(FRAMES[0])
    made = Tape.__init__

    def late(self: Tape, *args: object, **kwargs: object) -> None:
        deck.add(FRAMES[1])
        made(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Tape, "__init__", late)
    await deck.start(str(tmp_path / "x.pdrec"), WHO, interval_s=1.0, facts={})
    deck.add(FRAMES[2])
    await deck.stop()
    assert [f.at_s for f in open_recording(tmp_path / "x.pdrec").iter_frames()] == [f.at_s for f in FRAMES[:3]]


def test_the_past_is_bounded_in_time_and_in_bytes() -> None:
    by_time, by_bytes = Past(most_s=10.0), Past(most_bytes=1)
    for frame in FRAMES:
        by_time.add(frame)
        by_bytes.add(frame)
    assert [f.at_s for f in by_time.frames()] == [f.at_s for f in FRAMES[-11:]]
    assert by_bytes.frames() == (FRAMES[-1],)


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_the_past_outlives_a_clock_that_is_set(by_s: float) -> None:
    past = Past(most_s=10.0)
    for frame in FRAMES:
        past.add(frame)
    after = [dataclasses.replace(f, at_s=FRAMES[-1].at_s + by_s + n) for n, f in enumerate(FRAMES[:12])]
    past.add(after[0])
    past.add(after[1])
    assert past.frames() == (*FRAMES[-10:], *after[:2])
    for frame in after[2:]:
        past.add(frame)
    assert past.frames() == tuple(after[1:])


def test_an_offered_name_is_free_and_harmless(tmp_path: Path) -> None:
    first = offered_name("../prod eu\x1b", b.START_S, tmp_path)
    assert first.parent == tmp_path
    assert first.name == "prod-eu-20261118T110640Z.pdrec"
    first.touch()
    assert offered_name("../prod eu\x1b", b.START_S, tmp_path).name == "prod-eu-20261118T110640Z-2.pdrec"
    assert offered_name("..", b.START_S, tmp_path, ".svg").name.startswith("cluster-")


def test_another_promise_is_judged_by_at_once_and_taken_back(live: Callable[[Source], LiveFeed]) -> None:
    feed = live(Source(FRAMES))
    wait_for(seen_all(feed))
    feed.control(Command("promise", slo=Slo(ttft_s=9.0)))

    def told() -> Snapshot:
        return newest(feed)

    wait_for(lambda: told().slo == Slo(ttft_s=9.0))
    assert told().view.cluster.slo.ttft_s == 9.0
    feed.control(Command("promise"))
    wait_for(lambda: told().slo is None)
    assert told().view.cluster.slo == WHO.slo
