"""Every screen as the cells of a terminal, text and style, in four states and three sizes. `PDOPS_UPDATE_GOLDEN=1` writes them anew."""

from __future__ import annotations

from typing import Any

import pytest

from pdops.errors import DeploymentError
from pdops_tui import places as at
from pdops_tui.desk import Desk
from pdops_tui.places import Place
from pdops_tui.session import MatrixWish, Session
from tests.tui.grid import drawn, golden
from tests.tui.states import STATES

SMALL, MIDDLE, LARGE = (80, 24), (120, 36), (200, 60)


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TERM", "xterm-256color"), ("LANG", "C.UTF-8"), ("TZ", "UTC"), ("COLORTERM", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("size", [SMALL, MIDDLE, LARGE])
async def test_main(state: str, size: tuple[int, int]) -> None:
    golden(f"main-{state}-{size[0]}x{size[1]}", await drawn(STATES[state](), (), size))


WAYS: dict[str, tuple[Place, ...]] = {
    "pool": (Place(at.POOL, "decode"),),
    "worker": (Place(at.POOL, "decode"), Place(at.WORKER, "decode-1")),
    "matrix": (Place(at.MATRIX),),
    "diagnosis": (Place(at.DIAGNOSIS),),
    "events": (Place(at.EVENTS),),
}
SIZES = {
    "pool": (SMALL, MIDDLE, LARGE, SMALL),
    "worker": (MIDDLE, LARGE, SMALL, SMALL),
    "matrix": (LARGE, SMALL, MIDDLE, SMALL),
    "diagnosis": (SMALL, LARGE, MIDDLE, SMALL),
    "events": (SMALL, MIDDLE, LARGE, SMALL),
}
"""Of each state, so that every screen is seen in every size."""


@pytest.mark.parametrize("screen", WAYS)
@pytest.mark.parametrize("state", STATES)
async def test_places(screen: str, state: str) -> None:
    size = SIZES[screen][list(STATES).index(state)]
    golden(f"{screen}-{state}-{size[0]}x{size[1]}", await drawn(STATES[state](), WAYS[screen], size))


@pytest.mark.parametrize(("state", "size"), [("healthy", MIDDLE), ("degraded", LARGE), ("unknown", SMALL)])
async def test_fleet(state: str, size: tuple[int, int]) -> None:
    golden(f"fleet-{state}-{size[0]}x{size[1]}", await drawn(STATES[state](), (Place(at.FLEET),), size))


async def test_matrix_beside_its_median_worst_first() -> None:
    session = Session(matrix=MatrixWish(value="p99", relative=True, worst_first=True))
    found = await drawn(STATES["degraded"](), (Place(at.MATRIX),), MIDDLE, session=session)
    golden("matrix-relative-120x36", found)


async def test_pair() -> None:
    way = (Place(at.MATRIX), Place(at.PAIR, "prefill-0>decode-1"))
    golden("pair-120x36", await drawn(STATES["degraded"](), way, MIDDLE))


STARTING: dict[str, Any] = {
    "name": "default", "profile": "cpu", "phase": "starting",
    "stages": [
        {"id": "model", "state": "ready", "for_s": 41.0, "detail": "two layers, random weights"},
        {"id": "prefill", "state": "running", "for_s": 12.4, "detail": "waits for /health of 1 of 1"},
        {"id": "decode", "state": "failed", "for_s": 3.0, "detail": "port 8200 is taken"},
        {"id": "router", "state": "waiting", "for_s": 12.4, "detail": "waits for prefill, decode"},
    ],
    "workers": [
        {"id": "prefill-0", "state": "not-ready", "why": "connection refused", "url": "http://127.0.0.1:8100", "up_s": 12.4},
        {"id": "decode-0", "state": "never-started", "why": None, "url": "http://127.0.0.1:8200", "up_s": None},
    ],
    "services": [],
}  # fmt: skip


@pytest.mark.parametrize(("name", "size"), [("starting", MIDDLE), ("unreadable", SMALL), ("none", LARGE)])
async def test_start(name: str, size: tuple[int, int]) -> None:
    def unreadable() -> None:
        raise DeploymentError("its state is not readable", where="state.json", hint="pdops down")

    desk = {"starting": Desk(starting=lambda: STARTING), "unreadable": Desk(starting=unreadable), "none": Desk()}[name]
    golden(f"start-{name}-{size[0]}x{size[1]}", await drawn(STATES["healthy"](), (Place(at.START),), size, desk=desk))
