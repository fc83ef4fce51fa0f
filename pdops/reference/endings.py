"""What ends long work from outside, and how its putting back is kept from being cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end it the way Ctrl-C does; the second comes when its terminal is closed."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let whatever ends us end the work the way Ctrl-C does, so that everything is put back."""
    with _handled(_ENDINGS, _as_interrupt):
        yield


@contextlib.contextmanager
def _handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # Only the main thread may say what signals do, and only it receives them.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def unhurried(say: Callable[[str], None]) -> Iterator[None]:
    """Let nobody interrupt the putting back, which is bounded; who tried is heard afterwards."""
    asked = threading.Event()

    def patience(_number: int, _frame: FrameType | None) -> None:
        asked.set()
        say("           putting everything back first; please wait")

    with _handled((signal.SIGINT, *_ENDINGS), patience):
        yield
    if asked.is_set():
        raise KeyboardInterrupt
