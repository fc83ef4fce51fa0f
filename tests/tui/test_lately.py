"""What is slow is read in a thread of its own; the asker gets the last answer, or why there is none."""

from __future__ import annotations

import threading

import pytest

from pdops.errors import DeploymentError, UnreachableError
from pdops_tui.lately import Lately


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> float:
        return self.at_s

    def monotonic(self) -> float:
        return self.at_s


def test_a_reader_that_hangs_keeps_nobody() -> None:
    release = threading.Event()
    lately = Lately(lambda: release.wait(30), patience_s=0.0)
    with pytest.raises(UnreachableError, match="still being read"):
        lately()
    release.set()


def test_the_answer_is_kept_until_it_is_old() -> None:
    clock, asked = Hand(), []
    lately: Lately[int] = Lately(lambda: asked.append(0) or len(asked), patience_s=10.0, clock=clock)
    assert lately() == 1
    assert lately() == 1
    again = threading.Event()
    lately._answered = again
    clock.at_s = 2.0
    lately()
    assert again.is_set()
    assert lately() == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [(DeploymentError("no state"), "no state"), (ZeroDivisionError("x"), "it cannot be read: ZeroDivisionError: x")],
)
def test_what_breaks_is_raised_to_the_asker(error: Exception, said: str) -> None:
    def broken() -> None:
        raise error

    with pytest.raises((DeploymentError, UnreachableError), match=said):
        Lately(broken, patience_s=10.0)()
