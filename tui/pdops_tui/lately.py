"""Something slow, read in a thread of its own and asked for its last answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pdops.clock import Clock, WallClock
from pdops.errors import PdopsError, UnreachableError

T = TypeVar("T")
EVERY_S = 1.0
_PATIENCE_S = 0.5


class Lately(Generic[T]):
    """Read again whenever it is asked and the last answer is old, without keeping the asker for long.

    Args:
        read: may take long, and raise.
        every_s: seconds for which an answer is new.
        patience_s: how long the very first answer is waited for.
        clock: where durations are read.
    """

    def __init__(
        self,
        read: Callable[[], T],
        *,
        every_s: float = EVERY_S,
        patience_s: float = _PATIENCE_S,
        clock: Clock | None = None,
    ) -> None:
        self._read = read
        self._every_s, self._patience_s = every_s, patience_s
        self._clock = clock or WallClock()
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._answer: tuple[T] | None = None
        self._error: PdopsError | None = None
        self._reading = False
        self._due_s = float("-inf")

    def __call__(self) -> T:
        """Return the last answer.

        Raises:
            PdopsError: there is none yet, or the last look failed.
        """
        with self._lock:
            if not self._reading and self._clock.monotonic() >= self._due_s:
                self._reading = True
                threading.Thread(target=self._look, name="pdops-lately", daemon=True).start()
        self._answered.wait(self._patience_s)
        if self._error is not None:
            raise self._error
        if self._answer is None:
            raise UnreachableError("it is still being read", hint="wait a moment")
        return self._answer[0]

    def _look(self) -> None:
        try:
            self._answer, self._error = (self._read(),), None
        except PdopsError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001  whatever breaks must be said to the asker, who is in another thread
            self._error = UnreachableError(
                "it cannot be read", why=f"{type(error).__name__}: {error}", hint="try again"
            )
        finally:
            self._due_s = self._clock.monotonic() + self._every_s
            self._answered.set()
            self._reading = False
