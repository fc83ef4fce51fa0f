"""Whoever acts is shown what is so now: a reader that ended or is stuck is an error, never the last thing it saw."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import pytest

from pdops.cli import looker
from pdops.cli.inputs import Inputs
from pdops.cli.looker import Looker
from pdops.errors import UnreachableError
from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import Frame

LIVE = Inputs((), ("prefill=http://127.0.0.1:9",), None, "{}", "role", None, None, 1.0)
CLUSTER = Cluster(name="c", workers=(Worker(id="prefill-0", role=Role.PREFILL, pool="prefill"),))


class DoubleSource:
    """A double of a live source: two frames three seconds apart, and then it ends, is stuck or goes on."""

    cluster, interval_s, notes = CLUSTER, 1.0, ()

    def __init__(self, then: Literal["ends", "sticks", "goes on"]) -> None:
        self._then = then

    async def frames(self) -> AsyncIterator[Frame]:
        for at_s in (100.0, 103.0):
            yield Frame(at_s=at_s, scrapes=())
        while self._then == "sticks":
            await asyncio.sleep(0.01)
            if self.stop.is_set():
                return
        at_s = 104.0
        while self._then == "goes on":
            await asyncio.sleep(0.001)
            yield Frame(at_s=at_s, scrapes=())
            at_s += 1.0

    async def aclose(self) -> None:
        pass


def _looker(monkeypatch: pytest.MonkeyPatch, then: Literal["ends", "sticks", "goes on"]) -> Looker:
    source = DoubleSource(then)
    monkeypatch.setattr(looker, "live_source", lambda _, follow: source if follow else None)
    monkeypatch.setattr(looker, "_PATIENCE_S", 0.2)
    made = Looker(LIVE, 2.0)
    source.stop = made._stop
    return made


def test_what_is_seen_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with _looker(monkeypatch, "goes on") as looks:
        first = looks.look()[0].at_s
        while looks.look()[0].at_s == first:
            pass


def test_a_source_that_ended_shows_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with _looker(monkeypatch, "ends") as looks:
        looks._thread.join()
        with pytest.raises(UnreachableError, match="not read any more"):
            looks.look()


def test_a_source_that_is_stuck_shows_nothing_once_its_last_look_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looker, "_LATE_INTERVALS", 0.0)
    monkeypatch.setattr(looker, "_LATE_LEAST_S", 0.0)
    with _looker(monkeypatch, "sticks") as looks, pytest.raises(UnreachableError, match="not read any more"):
        looks.look()


def test_answering_alerts_begins_to_look_anew_where_looking_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from pdops.cli import respond

    class EndsAtOnce:
        """A double of a looker whose source has ended."""

        made = 0
        ended = True

        def __init__(self, *_: object) -> None:
            EndsAtOnce.made += 1

        def __enter__(self) -> EndsAtOnce:
            return self

        def __exit__(self, *_: object) -> None:
            EndsAtOnce.made += 0

        def look(self) -> object:
            raise UnreachableError("targets are not read any more", hint="-")

    monkeypatch.setattr("pdops.cli.looker.Looker", EndsAtOnce)
    with respond._Looking(None, 2.0) as looking:  # type: ignore[arg-type]
        assert EndsAtOnce.made == 1, "targets are read before anybody asks"
        for _ in range(3):
            with pytest.raises(UnreachableError):
                looking.look()
    assert EndsAtOnce.made == 3
