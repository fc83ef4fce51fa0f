"""The stack of places as a person walks it: Enter goes in, escape goes out, and the cursor stays on what it stands on."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest
from textual.pilot import Pilot

from pdops.actuate.backend import Capabilities
from pdops.errors import ActionError, UnreachableError
from pdops.runbook.make import BackendState, without_backend
from pdops.runbook.plan import Decision, Plan
from pdops_tui import places as at
from pdops_tui import plans
from pdops_tui.app import TopApp
from pdops_tui.desk import Desk
from pdops_tui.places import Place, crumbs
from pdops_tui.shot import Still
from pdops_tui.snapshot import Position
from tests.tui.states import STATES

DEGRADED = STATES["degraded"]


async def settle(pilot: Pilot[None]) -> TopApp:
    app = pilot.app
    assert isinstance(app, TopApp)
    await pilot.pause()
    app.tick()
    await app.settled()
    await pilot.pause()
    return app


async def press(pilot: Pilot[None], *keys: str) -> TopApp:
    await settle(pilot)
    for key in keys:
        await pilot.press(key)
        await settle(pilot)
    app = pilot.app
    assert isinstance(app, TopApp)
    return app


def text(app: TopApp) -> str:
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips(app.size))


def test_breadcrumbs_name_the_way() -> None:
    assert crumbs([]) == "pdops top"
    assert crumbs([Place(at.POOL, "decode"), Place(at.WORKER, "d-0")]) == "pdops top > pool decode > worker d-0"


async def test_enter_goes_from_worker_to_pool_and_escape_back_to_the_main_screen() -> None:
    async with TopApp(Still(DEGRADED())).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab", "down", "enter")
        assert text(app).startswith(" pdops top > worker decode-1 ")
        app = await press(pilot, "enter")
        assert text(app).startswith(" pdops top > worker decode-1 > pool decode ")
        app = await press(pilot, "escape")
        assert text(app).startswith(" pdops top > worker decode-1 ")
        app = await press(pilot, "escape", "escape")
        assert text(app).startswith(" pdops top  prod-eu")
        assert app.places == []


async def test_enter_on_a_pool_row_opens_the_pool() -> None:
    async with TopApp(Still(DEGRADED())).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab", "end", "enter")
        assert app.places == [Place(at.POOL, "decode")]


@pytest.mark.parametrize(
    ("key", "kind"), [("m", at.MATRIX), ("x", at.DIAGNOSIS), ("r", at.FLEET), ("t", at.EVENTS), ("u", at.START)]
)
async def test_a_key_opens_a_place_from_anywhere_and_twice_is_once(key: str, kind: str) -> None:
    async with TopApp(Still(DEGRADED())).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab", "enter", key, key)
        assert [p.kind for p in app.places] == [at.WORKER, kind]


async def test_the_matrix_changes_its_value_and_opens_the_pair_under_the_cursor() -> None:
    async with TopApp(Still(DEGRADED())).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "m", "v")
        assert "p99: time of a transfer" in text(app)
        app = await press(pilot, "a", "s")
        assert "beside the median" in text(app)
        assert app.session.matrix.worst_first
        app = await press(pilot, "down", "enter")
        # The cursor went along when the worst came first.
        assert app.places[-1] == Place(at.PAIR, "prefill-1>decode-0")
        assert "PAIR prefill-1 > decode-0" in text(app)


async def test_copying_takes_the_query_of_the_series_under_the_cursor() -> None:
    copied: list[str] = []

    def copy(query: str) -> str:
        copied.append(query)
        return "copied"

    async with TopApp(Still(DEGRADED()), desk=Desk(copy=copy)).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "tab", "enter", "end")
        top = app.top
        assert top is not None
        assert top.view.here is not None
        assert top.view.here.yank
        app = await press(pilot, "y")
        assert copied == [top.view.here.yank]
        assert "ttft" in copied[0] or "vllm:" in copied[0]


async def test_the_cursor_stays_on_its_spot_when_lines_move() -> None:
    still = Still(DEGRADED())
    async with TopApp(still).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "x", "down", "down")
        top = app.top
        assert top is not None
        before = top.view.here
        snapshot = DEGRADED()
        assert snapshot.report is not None
        longer = dataclasses.replace(snapshot.report, hops=snapshot.report.hops * 4)
        still._snapshot = dataclasses.replace(snapshot, seq=2, report=longer)
        await settle(pilot)
        after = top.view.here
        assert before is not None
        assert after is not None
        assert after.line == before.line + 3
        assert after.key == before.key


async def test_a_click_moves_the_cursor_and_a_second_one_opens() -> None:
    async with TopApp(Still(DEGRADED())).run_test(size=(120, 36)) as pilot:
        app = await press(pilot, "m")
        top = app.top
        assert top is not None
        await pilot.click(top.view, offset=(33, 2))
        app = await settle(pilot)
        assert top.view.here is not None
        assert top.view.here.place == Place(at.PAIR, "prefill-0>decode-1")
        await pilot.click(top.view, offset=(33, 2))
        app = await settle(pilot)
        assert app.places[-1] == Place(at.PAIR, "prefill-0>decode-1")


async def test_resize_lays_a_place_out_anew() -> None:
    async with TopApp(Still(DEGRADED())).run_test(size=(80, 24)) as pilot:
        await press(pilot, "m")
        for width, height in ((200, 60), (40, 8), (120, 36)):
            await pilot.resize_terminal(width, height)
            app = await settle(pilot)
            lines = text(app).splitlines()
            assert max(map(len, lines)) <= width
            assert len(lines) == height


async def test_a_terminal_that_becomes_narrower_than_where_the_cursor_stands_is_drawn() -> None:
    async with TopApp(Still(DEGRADED())).run_test(size=(80, 24)) as pilot:
        app = await press(pilot, "m", "right", "right")
        assert app.top is not None
        assert app.top.view.here is not None
        assert app.top.view.here.start >= 20
        await pilot.resize_terminal(20, 24)
        app = await settle(pilot)
        assert max(map(len, text(app).splitlines())) <= 20


# runbooks


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every guard of every plan pass."""
    made = plans.preview

    def preview(*args: object) -> object:
        plan = made(*args)  # type: ignore[arg-type]
        assert isinstance(plan, Plan)
        return dataclasses.replace(plan, decision=Decision.READY, reasons=())

    monkeypatch.setattr(plans, "preview", preview)


async def to_runbook(pilot: Pilot[None]) -> TopApp:
    app = await settle(pilot)
    app.action_open(at.RUNBOOK, "kv-transfer-relief")
    return await settle(pilot)


async def test_without_a_backend_a_plan_is_shown_with_its_guards_and_nothing_can_be_done() -> None:
    async with TopApp(Still(DEGRADED())).run_test(size=(120, 60)) as pilot:
        app = await to_runbook(pilot)
        shown = text(app)
        assert "no backend is given" in shown
        assert "guards now" in shown
        assert "diagnosis-agrees" in shown
        assert app.top is not None
        assert app.top.view.here is None


@pytest.mark.usefixtures("ready")
async def test_a_plan_is_carried_out_only_from_the_screen_that_confirms_it() -> None:
    done: list[Plan] = []
    said = threading.Event()

    def act(plan: Plan) -> str:
        done.append(plan)
        said.set()
        return "carried out"

    async with TopApp(Still(DEGRADED()), desk=Desk(act=act)).run_test(size=(120, 60)) as pilot:
        app = await to_runbook(pilot)
        app = await press(pilot, "enter")
        assert app.places[-1] == Place(at.CONFIRM, "kv-transfer-relief")
        assert done == []
        shown = text(app)
        assert "this changes the cluster" in shown
        assert "guards now" in shown
        assert app.top is not None
        assert app.top.view.here is not None
        seen = app.top.view.here.yank
        app = await press(pilot, "enter")
        assert said.wait(10)
        assert [plan.id for plan in done] == [seen]


@pytest.mark.usefixtures("ready")
@pytest.mark.parametrize("why", ["readonly", "replay", "nobody"])
async def test_nothing_can_be_carried_out(why: str) -> None:
    snapshot = DEGRADED()
    if why == "replay":
        position = Position(index=1, start_s=snapshot.view.start_s, at_s=snapshot.view.at_s)
        snapshot = dataclasses.replace(snapshot, position=position)
    act = None if why == "nobody" else lambda plan: plan.id
    async with TopApp(Still(snapshot), desk=Desk(act=act, readonly=why == "readonly")).run_test(
        size=(120, 60)
    ) as pilot:
        app = await to_runbook(pilot)
        app.action_open(at.CONFIRM, "kv-transfer-relief")
        app = await settle(pilot)
        assert app.top is not None
        assert app.top.view.here is None
        assert "carry out" not in text(app)


@pytest.mark.usefixtures("ready")
async def test_what_fails_is_said_with_a_hint() -> None:
    def act(plan: Plan) -> str:
        raise ActionError("the router refused", hint="look at its log")

    async with TopApp(Still(DEGRADED()), desk=Desk(act=act)).run_test(size=(120, 60)) as pilot:
        app = await settle(pilot)
        app.action_open(at.CONFIRM, "kv-transfer-relief")
        app = await press(pilot, "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "the router refused; look at its log" in text(app)


async def test_with_a_backend_the_plan_says_what_it_offers() -> None:
    def offers_nothing() -> BackendState:
        return BackendState("double", without_backend(DEGRADED().view).state, Capabilities(frozenset()))

    async with TopApp(Still(DEGRADED()), desk=Desk(backend=offers_nothing)).run_test(size=(120, 60)) as pilot:
        shown = text(await to_runbook(pilot))
        assert "backend double" in shown
        assert "no backend is given" not in shown
        assert "REFUSED" in shown


async def test_a_backend_that_does_not_answer_is_said() -> None:
    def silent() -> BackendState | None:
        raise UnreachableError("the router's admin API does not answer")

    async with TopApp(Still(DEGRADED()), desk=Desk(backend=silent)).run_test(size=(120, 60)) as pilot:
        app = await to_runbook(pilot)
        assert "the backend does not answer: the router's admin API does not answer" in text(app)


async def test_a_start_opens_by_itself_and_needs_no_data() -> None:
    found: dict[str, Any] = {
        "name": "d",
        "phase": "starting",
        "profile": "cpu",
        "stages": [],
        "workers": [],
        "services": [],
    }
    async with TopApp(Still(DEGRADED()), desk=Desk(starting=lambda: found)).run_test(size=(80, 24)) as pilot:
        app = pilot.app
        assert isinstance(app, TopApp)
        await app.workers.wait_for_complete()
        app = await settle(pilot)
        assert app.places == [Place(at.START)]
        assert "START of d" in text(app)
        assert "FAULT" not in text(app).splitlines()[0]
        app = await press(pilot, "escape")
        assert app.places == []
        assert "the deployment is still starting (u shows how far)" in text(app)
        found["phase"] = "up"
        app._ask_start()
        await app.workers.wait_for_complete()
        app.action_clear()
        app._seen = None
        app = await settle(pilot)
        assert "still starting" not in text(app)
        app.action_open(at.START)
        app = await settle(pilot)
        assert "FAULT" in text(app).splitlines()[0]


async def test_a_start_that_cannot_be_read_any_more_is_not_said_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdops_tui.app._START_EVERY_S", 0.01)
    looks = []

    def starting() -> dict[str, Any]:
        looks.append(1)
        if len(looks) > 2:
            raise UnreachableError("its state is not readable", hint="wait a moment")
        return {"name": "d", "phase": "starting", "profile": "cpu", "stages": [], "workers": [], "services": []}

    async with TopApp(Still(DEGRADED()), desk=Desk(starting=starting)).run_test(size=(80, 24)) as pilot:
        app = pilot.app
        assert isinstance(app, TopApp)
        async with asyncio.timeout(60):
            while not app.places or app._starting:
                await pilot.pause(0.02)
        app = await press(pilot, "escape")
        app._seen = None
        app = await settle(pilot)
        assert "still starting" not in text(app)


async def test_a_start_whose_state_cannot_be_read_at_first_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdops_tui.app._START_EVERY_S", 0.01)
    looks = []

    def starting() -> dict[str, Any]:
        looks.append(1)
        if len(looks) < 3:
            raise UnreachableError("it is still being read", hint="wait a moment")
        return {"name": "d", "phase": "starting", "profile": "cpu", "stages": [], "workers": [], "services": []}

    async with TopApp(Still(DEGRADED()), desk=Desk(starting=starting)).run_test(size=(80, 24)) as pilot:
        app = pilot.app
        assert isinstance(app, TopApp)
        async with asyncio.timeout(60):
            while not app.places:
                await pilot.pause(0.02)
        assert app.places == [Place(at.START)]
