"""The sequences that a decode worker steps together, and the arithmetic of many steps at once."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from pdops.sim.records import RequestRecord


class Batch:
    """Sequences in the order in which they joined.

    `kv_tokens` are the tokens whose KV a step reads; `step` counts steps.

    Args:
        block_size: tokens in a block of KV.
    """

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self.running: dict[int, RequestRecord] = {}
        self.kv_tokens = 0
        self.step = 0
        self._ends: list[tuple[int, int, RequestRecord]] = []
        # How many sequences begin a block at steps that leave this rest.
        self._phases = [0] * block_size

    def __len__(self) -> int:
        return len(self.running)

    def join(self, record: RequestRecord) -> None:
        """Take a sequence in."""
        work = record.on_decode
        work.joined_step = self.step
        self.running[record.id] = record
        self.kv_tokens += work.tokens
        self._phases[(self.step - work.tokens) % self._size] += 1
        heapq.heappush(self._ends, (self._end_of(record), record.id, record))

    def leave(self, record: RequestRecord) -> None:
        """Take a sequence out; its tokens and blocks are those it has by now."""
        work = record.on_decode
        done = self.step - work.joined_step
        del self.running[record.id]
        self.kv_tokens -= work.tokens + done
        self._phases[(work.joined_step - work.tokens) % self._size] -= 1
        record.generated_tokens += done
        work.own_blocks += -(-(work.tokens + done) // self._size) - -(-work.tokens // self._size)

    def youngest(self) -> RequestRecord:
        """Return the one that joined last."""
        return self.running[next(reversed(self.running))]

    def ended(self) -> Iterator[RequestRecord]:
        """Yield those that have made all their tokens."""
        ends = self._ends
        while ends and ends[0][0] <= self.step:
            end, number, record = heapq.heappop(ends)
            if self._holds(end, number, record):
                yield record

    def need(self, steps: int) -> int:
        """Return the blocks that so many more steps of all sequences take."""
        size = self._size
        rest = sum(self._phases[(self.step + i) % size] for i in range(steps % size))
        return steps // size * len(self.running) + rest

    def longest(self, free: int) -> int:
        """Return how many steps can be done until a sequence ends or `free` blocks are taken, at least one."""
        ends, size, batch = self._ends, self._size, len(self.running)
        while not self._holds(*ends[0]):
            heapq.heappop(ends)
        steps = ends[0][0] - self.step
        if steps // size * batch + batch <= free or self.need(steps) <= free:
            return steps
        steps = min(steps, max(0, free) // batch * size)
        need = self.need(steps)
        while True:
            need += self._phases[(self.step + steps) % size]
            if need > free:
                return max(1, steps)
            steps += 1

    def clear(self) -> None:
        """Forget all sequences."""
        self.running.clear()
        self._ends.clear()
        self._phases = [0] * self._size
        self.kv_tokens = 0

    def _holds(self, end: int, number: int, record: RequestRecord) -> bool:
        """Say whether an entry is still true: a sequence that was preempted ends at another step."""
        return self.running.get(number) is record and self._end_of(record) == end

    def _end_of(self, record: RequestRecord) -> int:
        return record.on_decode.joined_step + record.output_tokens - record.generated_tokens


class Jump:
    """Steps that follow each other with nothing between: the first takes `first_s`, each next one `growth_s` more."""

    __slots__ = ("begin_s", "first_s", "growth_s", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.begin_s = self.first_s = self.growth_s = 0.0

    def span_s(self, steps: int) -> float:
        """Return what so many steps take in seconds."""
        return steps * self.first_s + self.growth_s * steps * (steps - 1) / 2

    def over(self, now_s: float) -> int:
        """Return how many of its steps are over at a time."""
        passed, half = now_s - self.begin_s, self.growth_s / 2
        if half * self.steps < 1e-12:
            steps = int(passed / self.first_s)
        else:
            b = self.first_s - half
            steps = int((math.sqrt(b * b + 4 * half * passed) - b) / (2 * half))
        steps = min(max(steps, 0), self.steps)
        while steps and self.span_s(steps) > passed:
            steps -= 1
        return steps

    def pass_by(self, steps: int) -> None:
        """Leave so many steps behind."""
        self.begin_s += self.span_s(steps)
        self.first_s += self.growth_s * steps
        self.steps -= steps
