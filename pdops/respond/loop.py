"""Threads that go round: one step after another until they are told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from pdops.errors import PdopsError


class Stopped(BaseException):
    """The process ends: what is going on is left as it is, to be resumed; nothing of ours may catch it."""


class Worker(Protocol):
    """What a loop goes round with."""

    def step(self) -> None:
        """Do what is due.

        Raises:
            PdopsError: it could not be done, and is tried again.
        """
        ...


class Loop(threading.Thread):
    """One thread.

    Args:
        name: what it is called in messages.
        make: gives its worker, inside the thread; an open journal belongs to the thread that opened it.
        every_s: seconds between two steps when nobody wakes it.
    """

    def __init__(self, name: str, make: Callable[[], AbstractContextManager[Worker]], every_s: float) -> None:
        super().__init__(name=f"pdops-{name}", daemon=True)
        self._make, self._every_s = make, every_s
        self._end, self._woken = threading.Event(), threading.Event()
        self.trouble: str | None = None
        """Why its last step could not be done."""
        self.error: Exception | None = None
        """What ended it."""

    def run(self) -> None:
        """Go round."""
        try:
            with self._make() as worker:
                while not self._end.is_set():
                    self._step(worker)
                    self._woken.wait(self._every_s)
                    self._woken.clear()
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001  raised again by whoever waits for this thread
            self.error = error

    def _step(self, worker: Worker) -> None:
        try:
            worker.step()
            self.trouble = None
        except PdopsError as error:
            self.trouble = str(error)

    def wake(self) -> None:
        """Let it go round now."""
        self._woken.set()

    def sleep(self, seconds: float) -> None:
        """Wait inside a step.

        Raises:
            Stopped: the process ends.
        """
        if self._end.wait(max(0.0, seconds)):
            raise Stopped

    def stop(self) -> None:
        """Ask it to end after this step, or in its next wait."""
        self._end.set()
        self._woken.set()
