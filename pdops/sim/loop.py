"""Virtual time: callbacks in order of time, ties in the order they were asked for."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

_Entry = tuple[float, int, Callable[..., None], tuple[Any, ...]]


class Loop:
    """The event queue; `now` is virtual seconds from the start of the run."""

    __slots__ = ("_heap", "_seq", "events", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._heap: list[_Entry] = []
        self._seq = 0

    def at(self, t_s: float, call: Callable[..., None], *args: Any) -> None:
        """Have something called at `t_s`; what lies in the past is called next."""
        self._seq += 1
        heapq.heappush(self._heap, (t_s if t_s > self.now else self.now, self._seq, call, args))

    def run(self, to_s: float) -> None:
        """Do all that is due up to `to_s`, and stand there."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= to_s:
            self.now, _, call, args = pop(heap)
            self.events += 1
            call(*args)
        self.now = max(self.now, to_s)


class Factors:
    """A product of named factors, each of which can be taken out again."""

    __slots__ = ("_by_key", "value")

    def __init__(self) -> None:
        self._by_key: dict[object, float] = {}
        self.value = 1.0

    def set(self, key: object, factor: float) -> None:
        """Put a factor in, or change it."""
        self._by_key[key] = factor
        self._multiply()

    def clear(self, key: object) -> None:
        """Take a factor out, if it is in."""
        self._by_key.pop(key, None)
        self._multiply()

    def _multiply(self) -> None:
        self.value = 1.0
        for factor in self._by_key.values():
            self.value *= factor
