"""What went wrong on the way in is said for as long as it is not over."""

from __future__ import annotations

import pytest

from pdops.clock import VirtualClock
from pdops.respond.alerts import read_delivery
from pdops.respond.troubles import NOBODY, SAID_S, Troubles
from tests.respond.kit import alert, body
from tests.runbook.engine_kit import T0

GOOD = read_delivery(body(alert()))


def _told(troubles: Troubles, known: object | None = True) -> list[str]:
    return list(troubles.told(lambda _: known))


@pytest.mark.parametrize(("who", "status"), [(NOBODY, 401), ("dashboard", 403)])
def test_who_was_not_let_in_is_said_for_a_while_after_the_last_time(who: str, status: int) -> None:
    clock = VirtualClock(T0)
    troubles = Troubles(clock)
    troubles.refused(who, status, "-")
    clock.advance(SAID_S - 1.0)
    troubles.refused(who, status, "-")
    troubles.taken("alertmanager", GOOD)
    troubles.caught_up(clock.monotonic() + 1.0)
    clock.advance(SAID_S - 1.0)
    assert len(_told(troubles)) == 1
    clock.advance(1.0)
    assert _told(troubles) == []


def test_what_was_refused_does_not_grow_old() -> None:
    clock = VirtualClock(T0)
    troubles = Troubles(clock)
    troubles.refused("alertmanager", 413, "-")
    clock.advance(100.0 * SAID_S)
    assert len(_told(troubles, known=None)) == 1


def test_a_list_that_was_asked_for_before_a_refusal_does_not_end_it() -> None:
    clock = VirtualClock(T0)
    troubles = Troubles(clock)
    asked_s = clock.monotonic()
    clock.advance(1.0)
    troubles.refused("alertmanager", 413, "-")
    troubles.caught_up(asked_s)
    assert len(_told(troubles)) == 1
    troubles.caught_up(clock.monotonic() + 1.0)
    assert _told(troubles) == []
