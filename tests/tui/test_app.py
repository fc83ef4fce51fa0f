"""The app as a person uses it: keys, resize, filter, pages, replay; compared as the text that stands in the cells."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import subprocess
import sys
import weakref

import pytest
from textual.pilot import Pilot
from textual.strip import Strip

from pdops.errors import PdopsError, UnreachableError
from pdops.model.view import View
from pdops_tui import app as app_module
from pdops_tui.app import TopApp, run_top
from pdops_tui.models.text import cells
from pdops_tui.once import render_once
from pdops_tui.shot import Still, screenshot
from pdops_tui.snapshot import Command, Position, Snapshot
from pdops_tui.widgets.grid import GridView
from tests.tui import build as b


class Hand:
    """A feed that gives what the test puts into it, and notes what it is asked for."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self.snapshot = snapshot
        self.commands: list[Command] = []
        self.failure: PdopsError | None = None
        self.running = False

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def latest(self) -> Snapshot | None:
        return self.snapshot

    def control(self, command: Command) -> None:
        self.commands.append(command)

    def put(self, view: View, **more: object) -> None:
        seq = self.snapshot.seq + 1 if self.snapshot else 1
        report = b.fault_report(view)
        self.snapshot = dataclasses.replace(b.snapshot(view, report), seq=seq, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def slow() -> View:
    return b.view(seconds=160, life=b.slow_link(90))


@pytest.fixture(scope="module")
def large() -> View:
    return b.view(b.cluster(4, 60), seconds=20)


@pytest.fixture
def feed(slow: View) -> Hand:
    return Hand(b.snapshot(slow, b.fault_report(slow)))


def drawn(app: TopApp) -> list[str]:
    strips: list[Strip] = app.screen._compositor.render_strips(app.size)
    return [strip.text.rstrip() for strip in strips]


async def settle(pilot: Pilot[None]) -> TopApp:
    app = pilot.app
    assert isinstance(app, TopApp)
    await pilot.pause()
    app._rest_until_s = 0.0
    app.tick()
    await app.settled()
    await pilot.pause()
    return app


async def press(pilot: Pilot[None], *keys: str) -> TopApp:
    await settle(pilot)
    await pilot.press(*keys)
    return await settle(pilot)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 36), (200, 60)])
async def test_the_app_draws_what_once_prints(feed: Hand, slow: View, width: int, height: int) -> None:
    async with TopApp(feed).run_test(size=(width, height)) as pilot:
        lines = drawn(await settle(pilot))
    # The keys take the last line.
    printed = render_once(slow, b.fault_report(slow), width, height - 1, source="built by hand").splitlines()

    def same(line: str) -> str:
        return line.replace("═", "─").replace(" x: full trace ─", "─" * 16).replace(">", " ").rstrip("─ │")

    wanted = [same(line) for line in printed]
    found = [same(line) for line in lines[:-1]]
    assert found[: len(wanted)] == wanted
    assert lines[-1].startswith(" q quit  ? help")
    assert max(cells(line) for line in lines) <= width


async def test_the_cursor_moves_and_stays_on_its_worker_when_rows_move(feed: Hand, slow: View) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab", "down", "right", "right")
        grid = app.focused
        assert isinstance(grid, GridView)
        assert grid.id == "decode"
        assert grid.selected is not None
        assert grid.selected[0].id == "decode-1"
        assert any(line.startswith(">decode-1") for line in drawn(app))
        await press(pilot, "s")
        assert grid.selected[0].id == "decode-1"
        assert grid.table is not None
        assert grid.table.ids == ("decode-0", "decode-1") or grid.table.order.key == "wait"
        await press(pilot, "home", "up", "left", "left", "left", "left")
        assert grid.selected is not None
        assert grid.selected_key == "worker"


async def test_only_one_table_shows_a_cursor(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab")
        assert sum(line.startswith(">") for line in drawn(app)) == 1
        app = await press(pilot, "tab")
        assert sum(line.startswith(">") for line in drawn(app)) == 1


async def test_sort_cycles(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab", "right", "s")
        assert "by RUN down" in "\n".join(drawn(app))
        assert any("RUN▼" in line for line in drawn(app))
        app = await press(pilot, "s")
        assert "by RUN up" in "\n".join(drawn(app))
        app = await press(pilot, "s")
        assert "by RUN" not in "\n".join(drawn(app))


async def test_filter_is_typed_kept_and_cleared(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "slash", *"code-1", "enter")
        text = "\n".join(drawn(app))
        assert "filter 'code-1' shows 1" in text
        assert "\n decode-0 " not in text
        assert isinstance(app.focused, GridView)
        app = await press(pilot, "escape")
        assert "filter" not in "\n".join(drawn(app)[:-1])
        assert "decode-0 " in "\n".join(drawn(app))


async def test_a_search_that_is_broken_off_shows_every_worker_and_says_so(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "slash", *"code-1", "escape")
        assert app.session.filter == ""
        assert not app.board.filter_box.display
        assert " decode-0 " in "\n".join(drawn(app))
        assert drawn(app)[-1].startswith(" filter taken away: every worker is shown")
        app = await press(pilot, "escape")
        assert "filter taken away" not in drawn(app)[-1]


async def test_q_typed_into_the_filter_does_not_quit(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "slash", "q")
        assert app.is_running
        assert "filter 'q' shows 0" in "\n".join(drawn(app))
        await press(pilot, "escape")
        await pilot.press("q")
        await pilot.pause()
        assert not app.is_running


@pytest.mark.parametrize(
    ("key", "title", "said"),
    [
        ("question_mark", "HELP", "KV bytes received per second"),
        ("x", "DIAGNOSIS", "prefill-undersized: queue p95 98 ms equal on both, share 5 %"),
        ("v", "BEHIND THE CELL", "answers, data 0.0s old; no hypothesis names it"),
    ],
)
async def test_pages_open_scroll_and_close(feed: Hand, key: str, title: str, said: str) -> None:
    async with TopApp(feed).run_test(size=(100, 160)) as pilot:
        app = await press(pilot, key)
        text = "\n".join(drawn(app))
        assert title in text
        assert said in text
        await press(pilot, "down", "j", "k")
        app = await press(pilot, "escape")
        assert title not in drawn(app)[0]
        assert "pdops top" in drawn(app)[0]


async def test_the_page_behind_a_worker_hides_what_its_address_gives_away() -> None:
    sound = b.cluster(1, 1, router=False)
    url = "http://h:1/metrics?token=hunter2"
    workers = tuple(dataclasses.replace(w, url=url) for w in sound.workers)
    view = b.view(dataclasses.replace(sound, workers=workers), seconds=20)
    async with TopApp(Hand(b.snapshot(view, None))).run_test(size=(120, 36)) as pilot:
        text = "\n".join(drawn(await press(pilot, "v")))
        assert "http://h:1/metrics?token=[redacted]" in text
        assert "hunter2" not in text


async def test_help_explains_every_column_that_is_drawn(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 160)) as pilot:
        app = await settle(pilot)
        heads = {
            word for line in drawn(app) if line.startswith(" WORKER") for word in line.replace("Q p95", "Q").split()
        }
        app = await press(pilot, "question_mark")
        labels = {line.split()[0] for line in drawn(app) if line.startswith("  ") and line.split()}
        assert heads <= labels


async def test_behind_a_cell_stands_the_raw_number(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab", "down", *["right"] * 4, "v")
        text = "\n".join(drawn(app))
        assert "decode-1  TTFT95" in text
        assert "above 1" in text
        assert "ttft_seconds p95, last 60 s" in text


async def test_the_trace_follows_the_news(feed: Hand, slow: View) -> None:
    async with TopApp(feed).run_test(size=(100, 40)) as pilot:
        await press(pilot, "x")
        feed.snapshot = dataclasses.replace(feed.snapshot, seq=9, report=b.healthy_report(slow))
        app = await settle(pilot)
        assert any("ok HEALTHY" in line for line in drawn(app))


async def test_resize_lays_out_anew(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(80, 24)) as pilot:
        app = await settle(pilot)
        assert "LOCAL%" not in "\n".join(drawn(app))
        for width, height in ((200, 60), (120, 36), (60, 15), (40, 8), (80, 24)):
            await pilot.resize_terminal(width, height)
            app = await settle(pilot)
            lines = drawn(app)
            assert len(lines) == height
            assert max(cells(line) for line in lines) <= width
            assert "[X] FAULT" in lines[1]
        assert "LOCAL%" not in "\n".join(drawn(app))


async def test_a_very_small_terminal_shows_a_worker_of_each_table(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(40, 10)) as pilot:
        app = await press(pilot, "tab", "down")
        lines = drawn(app)
        assert any(line.startswith((" prefill-", ">prefill-")) for line in lines)
        assert any(line.startswith(">decode-1") for line in lines)
        grid = app.focused
        assert isinstance(grid, GridView)
        await pilot.click(grid, offset=(3, 1))
        await settle(pilot)
        assert grid.selected is not None
        assert not grid.selected[0].is_pool


async def test_hold_keeps_the_screen_and_says_so(feed: Hand, slow: View) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        await press(pilot, "p")
        feed.put(b.view(seconds=30))
        app = await settle(pilot)
        assert "PAUSED" in drawn(app)[0]
        assert "11:09:20Z" in drawn(app)[0]
        app = await press(pilot, "p")
        assert "PAUSED" not in drawn(app)[0]
        assert "11:07:10Z" in drawn(app)[0]


async def test_replay_keys_reach_the_feed(feed: Hand, slow: View) -> None:
    feed.put(slow, position=Position(index=161, start_s=b.START_S, at_s=slow.at_s, end_s=slow.at_s + 100))
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "space", "comma", "full_stop", "]", "[", "<", ">", "p")
        assert any("REPLAY" in line for line in drawn(app))
    assert [(c.action, c.value) for c in feed.commands] == [
        ("toggle", 0), ("step", -1), ("step", 1), ("faster", 0), ("slower", 0), ("skip", -60), ("skip", 60), ("toggle", 0),
    ]  # fmt: skip


async def test_on_a_live_feed_replay_keys_do_nothing_and_space_holds(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "comma", "]", "<", "space")
        assert feed.commands == []
        assert "PAUSED" in drawn(app)[0]


async def test_nothing_is_drawn_again_when_nothing_changed(feed: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await settle(pilot)
        built: list[object] = []
        monkeypatch.setattr(app_module, "build", lambda *a: built.append(a))
        for _ in range(5):
            app.tick()
            await pilot.pause()
        assert built == []


async def test_after_a_build_it_rests_but_not_from_what_a_person_asks(feed: Hand, slow: View) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await settle(pilot)
        app._rest_until_s = float("inf")
        feed.put(b.view(seconds=30))
        app.tick()
        await app.settled()
        assert "11:09:20Z" in drawn(app)[0]
        app.action_clear()
        await pilot.press("tab", "s")
        await app.settled()
        await pilot.pause()
        assert "11:07:10Z" in drawn(app)[0]


async def test_only_changed_lines_are_drawn_again(feed: Hand, slow: View, monkeypatch: pytest.MonkeyPatch) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await settle(pilot)
        grid = app.board.grids()[0]
        asked: list[tuple[object, ...]] = []
        monkeypatch.setattr(grid, "refresh", lambda *regions, **_: asked.append(regions))
        feed.put(slow)
        await settle(pilot)
        assert asked == []


async def test_what_is_no_longer_drawn_is_let_go_without_waiting_for_the_garbage_collector() -> None:
    feed = Hand(None)
    kept = []
    gc.disable()
    try:
        async with TopApp(feed).run_test(size=(120, 36)) as pilot:
            for seconds in range(3, 8):
                view = b.view(seconds=seconds)
                kept.append(weakref.ref(view.series))
                feed.put(view)
                del view
                await settle(pilot)
            assert [ref() is not None for ref in kept] == [False, False, False, False, True]
    finally:
        gc.enable()


async def test_a_state_that_cannot_be_drawn_does_not_end_the_session(
    feed: Hand, slow: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        await settle(pilot)

        def broken(*_: object) -> None:
            raise ZeroDivisionError("x")

        monkeypatch.setattr(app_module, "build", broken)
        feed.put(slow)
        app = await settle(pilot)
        assert "this state cannot be drawn: ZeroDivisionError: x" in "\n".join(drawn(app))
        assert "PREFILL 2/2 up" in "\n".join(drawn(app))


async def test_trouble_of_the_feed_stands_under_the_title(feed: Hand) -> None:
    feed.failure = UnreachableError("the source ended")
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await settle(pilot)
        assert drawn(app)[1] == " [!] the source ended"


async def test_before_the_first_data_it_waits() -> None:
    hand = Hand(None)
    async with TopApp(hand).run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        app = pilot.app
        assert isinstance(app, TopApp)
        assert "waiting for the first data" in drawn(app)[0]
        for key in ("x", "escape", "v", "s", "p", "question_mark", "escape", "comma"):
            await pilot.press(key)
        assert app.is_running


async def test_large_tables_scroll_under_head_and_pool(large: View) -> None:
    hand = Hand(b.snapshot(large, b.fault_report(large)))
    async with TopApp(hand).run_test(size=(80, 24)) as pilot:
        app = await press(pilot, "tab", "end", "up")
        text = "\n".join(drawn(app))
        assert ">decode-59" in text
        assert " of 60" in text
        assert sum(line.startswith((" pool", ">pool")) for line in drawn(app)) == 2
        app = await press(pilot, "home")
        assert any(line.startswith(">decode-1 ") for line in drawn(app))
        app = await press(pilot, "pagedown", "pagedown")
        grid = app.focused
        assert isinstance(grid, GridView)
        assert grid.scroll_y > 0


async def test_the_wheel_scrolls_and_a_click_moves_the_cursor(large: View) -> None:
    hand = Hand(b.snapshot(large, b.fault_report(large)))
    async with TopApp(hand).run_test(size=(80, 24)) as pilot:
        app = await settle(pilot)
        grid = app.board.grids()[1]
        grid.scroll_to(y=20, animate=False)
        app = await settle(pilot)
        assert any(line.startswith(" decode-20 ") for line in drawn(app))
        await pilot.click(grid, offset=(3, 3))
        await settle(pilot)
        assert grid.selected is not None
        assert grid.selected[0].id == grid.table.ids[21]  # type: ignore[union-attr]


async def test_ascii_screen_is_ascii(feed: Hand) -> None:
    async with TopApp(feed, ascii=True).run_test(size=(120, 36)) as pilot:
        app = await settle(pilot)
        assert all(line.isascii() for line in drawn(app))
        app = await press(pilot, "question_mark")
        assert all(line.isascii() for line in drawn(app))


@pytest.mark.parametrize("by", ["argument", "environment"])
async def test_no_color(feed: Hand, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "environment":
        monkeypatch.setenv("NO_COLOR", "1")
    app = TopApp(feed, no_color=by == "argument")
    assert app.no_color
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        svg = app.export_screenshot()
    colours = {"#cc555a", "#98a84b", "#d0b344"}
    assert not any(colour in svg.lower() for colour in colours)


async def test_hostile_names_in_the_app(slow: View) -> None:
    bad = "\x1b[2J[bold]節[/]\u202e"
    who = dataclasses.replace(
        slow.cluster, name=bad, workers=tuple(dataclasses.replace(w, id=w.id + bad) for w in slow.cluster.workers)
    )
    view = b.view(who, seconds=10)
    hand = Hand(b.snapshot(view, b.fault_report(view)))
    async with TopApp(hand).run_test(size=(120, 36)) as pilot:
        app = await settle(pilot)
        for key in ("v", "escape", "question_mark", "escape", "x"):
            app = await press(pilot, key)
            text = "\n".join(drawn(app))
            assert "\x1b" not in text
            assert "\u202e" not in text
        assert app.is_running


def test_picture(slow: View) -> None:
    svg = asyncio.run(screenshot(b.snapshot(slow, b.fault_report(slow)), width=100, height=30))
    assert svg.startswith("<svg")
    assert "decode-1" in svg
    assert "font-face" not in svg
    assert "cdn" not in svg


def test_run_top_stops_the_feed_and_raises_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = Hand(None)
    hand.failure = UnreachableError("nobody answers", hint="check the address")
    monkeypatch.setattr(TopApp, "run", lambda self: None)
    with pytest.raises(UnreachableError, match="nobody answers"):
        run_top(hand)
    assert not hand.running


def test_models_and_text_output_need_no_textual() -> None:
    code = "import sys, pdops_tui.once, pdops_tui.feed, pdops_tui.models.screen; print([m for m in sys.modules if m.split('.')[0] in ('textual', 'rich')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert done.stdout.strip() == "[]"


def test_still_is_a_feed(slow: View) -> None:
    still = Still(b.snapshot(slow, None))
    still.start()
    still.control(Command("play"))
    still.stop()
    assert still.latest().seq == 1
    assert still.failure is None
