"""What keys do beside moving about, pressed as a person presses them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import pytest
from textual.widgets import Input

from pdops.model.cluster import Role, Slo
from pdops.model.view import View
from pdops_tui.app import TopApp
from pdops_tui.snapshot import Command, Landmark, Position, Taping
from pdops_tui.widgets.grid import GridView
from pdops_tui.widgets.paint import THEMES
from tests.tui import build as b
from tests.tui.test_app import Hand, drawn, press, settle


@pytest.fixture(scope="module")
def slow() -> View:
    return b.view(seconds=160, life=b.slow_link(90))


@pytest.fixture
def feed(slow: View, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hand:
    monkeypatch.chdir(tmp_path)
    return Hand(b.snapshot(slow, b.fault_report(slow)))


@pytest.fixture
def played(feed: Hand, slow: View) -> Hand:
    feed.put(slow, position=Position(index=161, start_s=b.START_S, at_s=slow.at_s, end_s=slow.at_s + 140))
    return feed


def last(app: TopApp) -> str:
    return drawn(app)[-1]


async def typed(pilot: object, text: str) -> TopApp:
    app = pilot.app  # type: ignore[attr-defined]
    app.screen.query_one(Input).value = text
    return await press(pilot, "enter")  # type: ignore[arg-type]


async def test_record_offers_a_free_name_and_hands_it_over(feed: Hand, tmp_path: Path) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "R")
        assert any("RECORD TO" in line for line in drawn(app))
        offered = app.screen.query_one(Input).value
        assert offered == str(tmp_path / "prod-eu-20261118T110920Z.pdrec")
        await press(pilot, "enter")
    assert feed.commands == [Command("record", text=offered)]


async def test_a_running_recording_is_on_every_screen_and_r_stops_it(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await settle(pilot)
        feed.snapshot = dataclasses.replace(
            feed.snapshot,  # type: ignore[type-var]
            seq=5,
            taping=Taping(path="/tmp/x.pdrec", from_s=b.START_S, to_s=b.START_S + 41, frames=42),
        )
        app = await settle(pilot)
        assert "REC 41s" in drawn(app)[0]
        assert "recording to /tmp/x.pdrec; R stops it" in last(app)
        assert "REC 41s" in drawn(await press(pilot, "x"))[0]
        await press(pilot, "escape")
        app = await press(pilot, "R")
        assert feed.commands == [Command("stop_recording")]
        feed.snapshot = dataclasses.replace(
            feed.snapshot,  # type: ignore[type-var]
            seq=6,
            taping=Taping(path="/tmp/x.pdrec", frames=42, size_bytes=81_000, running=False),
        )
        app = await settle(pilot)
        assert "recorded 42 frames, 81kB: /tmp/x.pdrec" in last(app)
        assert "REC" not in drawn(app)[0]
        app = await press(pilot, "tab")
        assert "recorded" in last(app)
        app = await press(pilot, "z")
        assert "recorded" not in last(app)


async def test_a_recording_that_failed_says_why(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        await settle(pilot)
        feed.snapshot = dataclasses.replace(feed.snapshot, seq=4, taping=Taping(path="/x"))  # type: ignore[type-var]
        assert "recording to /x" in last(await settle(pilot))
        feed.snapshot = dataclasses.replace(
            feed.snapshot,  # type: ignore[type-var]
            seq=5,
            taping=Taping(path="/x", running=False, trouble="recording cannot be written: /x: no space left on device"),
        )
        app = await settle(pilot)
        assert "REC FAILED" in drawn(app)[0]
        assert drawn(app)[1] == " [!] recording cannot be written: /x: no space left on device"
        assert "recording to" not in last(app)


async def test_a_replay_is_not_recorded(played: Hand) -> None:
    async with TopApp(played).run_test(size=(120, 36)) as pilot:
        await press(pilot, "R")
    assert played.commands == []


async def test_replay_keys_go_to_places(played: Hand) -> None:
    async with TopApp(played).run_test(size=(120, 36)) as pilot:
        await press(pilot, "e", "E", "d", "D", "1", "9", "M", "apostrophe", "quotation_mark")
    assert [(c.action, c.value) for c in played.commands] == [
        ("event", 1), ("event", -1), ("change", 1), ("change", -1), ("fraction", 0.1), ("fraction", 0.9), ("mark", 0),
        ("to_mark", 1), ("to_mark", -1),
    ]  # fmt: skip


async def test_the_bar_of_a_replay_shows_what_was_found_and_how_far_it_was_looked(played: Hand, slow: View) -> None:
    position = Position(
        index=1,
        start_s=b.START_S,
        at_s=b.START_S,
        end_s=b.START_S + 100,
        marks=(b.START_S + 90,),
        searched_to_s=b.START_S + 50,
        landmarks=(
            Landmark(b.START_S + 20, "event", "restart decode-0"),
            Landmark(b.START_S + 40, "change", "fault", b.fault_report(slow).verdict),
        ),
    )
    played.put(slow, position=position)
    async with TopApp(played).run_test(size=(120, 36)) as pilot:
        (line,) = (x for x in drawn(await settle(pilot)) if "REPLAY" in x)
    bar = line[line.index("│") + 1 : line.rindex("│")]
    assert bar.startswith("█─")
    assert bar.endswith("┄┄")
    assert [c for c in bar if c in "▲XM"] == ["▲", "X", "M"]


async def test_what_could_not_be_met_is_said_in_the_last_line(played: Hand, slow: View) -> None:
    assert played.snapshot is not None
    position = dataclasses.replace(played.snapshot.position, said="no event after this")  # type: ignore[type-var]
    played.put(slow, position=position)
    async with TopApp(played).run_test(size=(120, 36)) as pilot:
        assert "no event after this" in last(await settle(pilot))


async def test_go_to_complains_until_it_can_be_met(played: Hand) -> None:
    async with TopApp(played).run_test(size=(120, 36)) as pilot:
        await press(pilot, "colon")
        app = await typed(pilot, "tomorrow")
        assert "'tomorrow' is no moment" in last(app)
        app = await typed(pilot, "9999")
        assert "the recording is 300 s long" in last(app)
        assert played.commands == []
        app = await typed(pilot, "-30")
        assert played.commands == [Command("offset", -30.0)]
        await press(pilot, "colon", "escape")
        assert len(played.commands) == 1


async def test_another_slo_is_typed_and_complained_about(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "o")
        assert app.screen.query_one(Input).value == "ttft=1s itl=50ms p=95 attainment=95%"
        app = await typed(pilot, "ttft=soon")
        assert "'ttft=soon' gives no time" in last(app)
        app = await typed(pilot, "ttft=250ms itl=- p=99")
        wanted = Slo(ttft_s=0.25, itl_s=None, percentile=0.99)
        assert feed.commands == [Command("promise", slo=wanted)]
        assert app.session.slo == wanted
        feed.snapshot = dataclasses.replace(feed.snapshot, seq=9, slo=wanted)  # type: ignore[type-var]
        app = await settle(pilot)
        assert "SLO: yours" in drawn(app)[0]
        await press(pilot, "o")
        await typed(pilot, "")
        assert feed.commands[-1] == Command("promise")


async def test_columns_are_chosen_by_keys_and_by_mouse(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab")
        head = next(line for line in drawn(app) if "WORKER" in line and "FETCH" in line)
        assert "RUN" in head
        app = await press(pilot, "c")
        assert "COLUMNS OF DECODE" in drawn(app)[0]
        assert drawn(app)[1].startswith(">[x] RUN")
        await press(pilot, "space")
        await pilot.click(offset=(3, 3))
        app = await press(pilot, "enter")
        (table,) = (t for t in app._drawn.tables if t.role is Role.DECODE)  # type: ignore[union-attr]
        assert [c.key for c in table.columns][:2] == ["wait", "ttft"]
        text = "\n".join(drawn(app))
        assert "FETCH" not in text
        app = await press(pilot, "c", "a", "escape")
        assert "FETCH" not in "\n".join(drawn(app))
        app = await press(pilot, "c", "a", "enter")
        assert "FETCH" in "\n".join(drawn(app))


@pytest.mark.parametrize("ending", ["csv", "json", "md", "svg", "txt"])
async def test_export_writes_once_says_where_and_replaces_nothing(feed: Hand, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    async with TopApp(feed).run_test(size=(160, 36)) as pilot:
        await press(pilot, "w")
        app = await typed(pilot, str(path))
        assert f"wrote {path}" in last(app)
        text = path.read_text(encoding="utf-8")
        assert "decode-1" in text
        await press(pilot, "w")
        app = await typed(pilot, str(path))
        assert "the file exists" in last(app)
        await press(pilot, "escape")
    assert path.read_text(encoding="utf-8") == text
    if ending == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {r["kind"] for r in rows} == {"worker", "pool"}
        assert all(r["value"] or r["why"] or r["column"] == "state" for r in rows)
    if ending == "json":
        assert json.loads(text)["sources"][0]["diagnosis"]["verdict"] == "fault"
    if ending == "svg":
        assert "EXPORT" not in text
        assert "font-face" not in text


async def test_an_ending_that_means_nothing_is_refused(feed: Hand, tmp_path: Path) -> None:
    async with TopApp(feed).run_test(size=(160, 36)) as pilot:
        await press(pilot, "w")
        app = await typed(pilot, str(tmp_path / "x.xlsx"))
        assert "the file's ending names no form: '.xlsx'" in last(app)
    assert list(tmp_path.iterdir()) == []


async def test_copy_hands_markdown_to_the_terminal(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "Y")
        assert "copied as Markdown by OSC 52" in last(app)
        assert "```text" in app.clipboard
        assert "decode-1" in app.clipboard


async def test_what_is_too_long_for_a_clipboard_becomes_a_file(
    feed: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdops_tui.habits._COPY_MOST", 10)
    async with TopApp(feed).run_test(size=(160, 36)) as pilot:
        app = await press(pilot, "Y")
        (path,) = tmp_path.iterdir()
        assert path.suffix == ".md"
        assert f"too long for the terminal's clipboard: wrote {path}" in last(app)


async def test_every_theme_says_with_characters_what_it_says_in_colour(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await settle(pilot)
        text = "\n".join(drawn(app)[:-1])
        for name in [*list(THEMES)[1:], "terminal"]:
            app = await press(pilot, "z")
            assert f"theme {name}" in last(app)
            assert "\n".join(drawn(app)[:-1]) == text
    assert "[X] FAULT" in text


async def test_the_palette_runs_a_command_by_name(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "ctrl+p")
        await pilot.press(*"columns")
        app = await settle(pilot)
        while "choose the columns" not in "\n".join(drawn(app)):
            app = await settle(pilot)
        await pilot.press("enter")
        while "COLUMNS OF" not in drawn(app)[0]:
            app = await settle(pilot)
        assert "COLUMNS OF PREFILL" in drawn(app)[0]


async def test_prompts_columns_and_palette_are_ascii_where_the_screen_is(feed: Hand) -> None:
    async with TopApp(feed, ascii=True).run_test(size=(120, 36)) as pilot:
        for keys in (("R",), ("escape", "c"), ("escape", "ctrl+p")):
            app = await press(pilot, *keys)
            assert all(line.replace("…", "...").isascii() for line in drawn(app)), "\n".join(drawn(app))


async def test_several_sources_are_switched_and_held_beside_each_other(feed: Hand, slow: View) -> None:
    before = b.view(seconds=60)
    beside = (
        dataclasses.replace(
            b.snapshot(before, b.healthy_report(before), position=_at(before)), source="replay a.pdrec"
        ),
        dataclasses.replace(b.snapshot(slow, b.fault_report(slow), position=_at(slow), number=1), source="after.pdrec"),
    )
    feed.snapshot = dataclasses.replace(beside[1], sources=("a.pdrec", "after.pdrec"), beside=beside, seq=9)
    async with TopApp(feed).run_test(size=(120, 50)) as pilot:
        app = await settle(pilot)
        assert "2/2" in drawn(app)[0]
        app = await press(pilot, "n")
        assert feed.commands == [Command("source", 0)]
        assert "1 of 2: a.pdrec" in last(app)
        app = await press(pilot, "C")
        text = "\n".join(drawn(app))
        heads = next(line for line in drawn(app) if "> after" in line)
        assert " a " in heads
        verdict = next(line for line in drawn(app) if line.startswith(" verdict"))
        assert "ok healthy" in verdict
        assert "[X] fault" in verdict
        assert "worse" in text
        await press(pilot, "L")
        assert feed.commands[-1] == Command("link")


def _at(view: View) -> Position:
    return Position(index=1, start_s=b.START_S, at_s=view.at_s, end_s=view.at_s)


async def test_with_one_source_the_keys_of_several_say_so(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        assert "one source is open" in last(await press(pilot, "n"))
        assert "one source is open" in "\n".join(drawn(await press(pilot, "C")))
    assert feed.commands == []


async def test_nothing_of_this_breaks_before_the_first_data() -> None:
    async with TopApp(Hand(None)).run_test(size=(80, 24)) as pilot:
        for key in ("R", "o", "c", "w", "Y", "z", "n", "C", "escape", "L", "colon", "e"):
            await pilot.press(key)
            await pilot.pause()
        assert pilot.app.is_running


async def test_a_page_or_prompt_over_the_screen_keeps_the_keys_of_the_screen_to_itself(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "o", "R", "q", "w")
        assert app.is_running
        assert app.screen.query_one(Input).value.endswith("Rqw")
        app = await press(pilot, "escape")
        assert isinstance(app.focused, GridView)
        assert feed.commands == []


async def test_a_click_on_a_head_sorts_on_a_row_selects_and_twice_opens(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 50)) as pilot:
        app = await settle(pilot)
        grid = app.board.grids()[1]
        head = next(line for line in drawn(app) if "FETCH" in line)
        await pilot.click(grid, offset=(head.index("KV%") + 1, 1))
        app = await settle(pilot)
        assert "by KV% down" in "\n".join(drawn(app))
        await pilot.click(grid, offset=(head.index("RUN") + 1, 3))
        app = await settle(pilot)
        assert grid.selected_key == "run"
        name = grid.selected[0].id  # type: ignore[index]
        await pilot.click(grid, offset=(2, 3), times=2)
        app = await settle(pilot)
        assert f"pdops top > worker {name}" in drawn(app)[0]


async def test_a_key_in_the_last_line_can_be_clicked(feed: Hand) -> None:
    async with TopApp(feed).run_test(size=(120, 50)) as pilot:
        app = await settle(pilot)
        at = last(app).index("? help") + 3
        await pilot.click("#keys", offset=(at, 0))
        app = await settle(pilot)
        assert "HELP" in drawn(app)[0]
