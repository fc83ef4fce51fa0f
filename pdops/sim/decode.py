"""A decode worker: pulls KV, then steps all its sequences at once; a jump does many steps between two events.

KV is allocated lazily, a block at a time as sequences grow; when there is none left, the youngest sequence loses its
blocks and is computed anew later.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping

from pdops.sim import meters
from pdops.sim.engine import Answers, EngineWorker, World
from pdops.sim.instruments import Instruments
from pdops.sim.pulls import Puller
from pdops.sim.records import Outcome, RequestRecord
from pdops.sim.spec import Zone


class DecodeWorker(EngineWorker):
    """Decodes sequences whose KV it pulled, or computes prompts itself where it was given none."""

    def __init__(self, world: World, name: str, zone: Zone, blocks: int, meter: Instruments, answers: Answers) -> None:
        super().__init__(world, name, zone, blocks, meter, answers)
        self.waiting: deque[RequestRecord] = deque()
        self.puller = Puller(self)
        self.ready: deque[RequestRecord] = deque()
        self.running: dict[int, RequestRecord] = {}
        self.chunked: deque[RequestRecord] = deque()
        self._known: set[int] = set()
        self._fresh: list[RequestRecord] = []
        self._ends: list[tuple[int, int, RequestRecord]] = []
        self._phases = [0] * self.pool.block_size
        self._kv_tokens = 0
        self._step_no = 0
        self._begin_s = 0.0
        self._steps = 0
        self._first_s = self._growth_s = 0.0
        self._chunk = 0
        self._plan = 0
        self._stopped_s: float | None = None
        self._unfollowed = 0
        self._any_gone = False
        self.seed()

    def seed(self) -> None:
        """Show the stages of KV fetches, which only a consumer has."""
        for stage in ("waiting_to_start", "in_progress", "completed_waiting"):
            self.meter.set("vllm:num_requests_kv_fetch_by_stage", 0.0, stage=stage)

    def accept(self, record: RequestRecord) -> bool:
        """Take a request; False when nobody listens."""
        if not self.up:
            return False
        record.decode_arrived_s = self.world.loop.now
        longest = record.prompt_tokens + record.output_tokens
        if longest > self.pool.total * self.pool.block_size:
            self.answers.failed(record, Outcome.ERROR, "longer than the KV cache of decode")
            return True
        self._known.add(record.id)
        self.waiting.append(record)
        self.wake()
        return True

    def knows(self, record: RequestRecord) -> bool:
        """Say whether it still wants the KV of a request; nobody can tell while it hangs or is down."""
        return self.works and record.id in self._known

    def abort(self, record: RequestRecord) -> None:
        """Drop a request whose client left or was told that it is too late."""
        if record.id not in self._known:
            return
        record.on_decode.gone = True
        if self.puller.drop(record):
            self._dropped(record)
        elif record.id in self.running:
            self._any_gone = True
            self._interrupt()
        elif record in self.waiting:
            self.waiting.remove(record)
            self._dropped(record)
        self.wake()

    def pulled(self, record: RequestRecord) -> None:
        """Take a request whose KV is here."""
        self.ready.append(record)
        self.wake()

    def load_failed(self, record: RequestRecord, reason: str) -> None:
        """Give up a request whose KV cannot be pulled."""
        now = self.world.loop.now
        self._known.discard(record.id)
        self.pool.release(record, record.on_decode)
        meters.failed_load(
            self.tally,
            now_s=now,
            waited_s=now - record.decode_arrived_s,
            prompt=record.prompt_tokens,
            cached=record.decode_cached_tokens,
            wanted=record.output_tokens,
        )
        self.answers.failed(record, Outcome.ERROR, reason)
        self.wake()

    def wake(self) -> None:
        """Look whether something can begin; a jump in progress ends with its current step."""
        if not self.works:
            return
        self._pull()
        if self._steps == 0:
            self._go()
        elif self._steps > 1 and (self.ready or (self.waiting and self._local(self.waiting[0]))):
            if len(self.running) + len(self.chunked) < self.max_num_seqs:
                self._interrupt()

    def requests(self) -> list[RequestRecord]:
        """Return all requests it knows."""
        return [*self.waiting, *self.puller.records(), *self.ready, *self.chunked, *self.running.values()]

    def forget(self) -> None:
        """Drop all it knows."""
        self.puller.clear()
        for group in (self.waiting, self.ready, self.chunked, self.running, self._known, self._fresh, self._ends):
            group.clear()  # type: ignore[attr-defined]
        self._phases = [0] * self.pool.block_size
        self._kv_tokens = self._steps = self._chunk = 0
        self._plan += 1
        self._stopped_s = None

    def freeze(self) -> None:
        """Hang in the middle of a step."""
        self.settle()
        self._stopped_s = self._begin_s if self._steps else self.world.loop.now
        self._plan += 1
        super().freeze()

    def thaw(self) -> None:
        """Go on; the step that hung took all that time."""
        super().thaw()
        now = self.world.loop.now
        if self._steps and self._stopped_s is not None:
            self.extra_s += now - self._stopped_s
            self._steps = 0
            self._go(begin_s=self._stopped_s)
        self._stopped_s = None
        self.wake()

    def start(self, labels: Mapping[str, str] | None = None) -> None:
        """Begin anew, cold."""
        super().start(labels)
        self.wake()

    def replan(self) -> None:
        """Take over a changed speed or limit as soon as the current step ends."""
        self._interrupt()
        self.wake()

    def refresh(self) -> None:
        """Count the steps done up to now and bring the gauges up to date."""
        if not self.works:
            return
        self.settle()
        self.tally.flush()
        alive = sum(not r.on_decode.gone for r in self.waiting)
        meter, pulling, done = self.meter, self.puller.count, len(self.ready)
        meters.waiting(
            meter,
            running=len(self.running) + len(self.chunked),
            capacity=alive + done,
            deferred=pulling,
            usage=self.pool.usage,
        )
        to_pull = sum(not self._local(r) and not r.on_decode.gone for r in self.waiting)
        meter.set("vllm:num_requests_kv_fetch_by_stage", to_pull, stage="waiting_to_start")
        meter.set("vllm:num_requests_kv_fetch_by_stage", pulling, stage="in_progress")
        meter.set("vllm:num_requests_kv_fetch_by_stage", done, stage="completed_waiting")

    def _local(self, record: RequestRecord) -> bool:
        return record.local_prefill or record.on_decode.resumed

    def _pull(self) -> None:
        """Hold room for those that wait and have their KV pulled, in order of arrival."""
        while self.waiting and len(self.running) + len(self.chunked) < self.max_num_seqs:
            record = self.waiting[0]
            if self._local(record):
                return
            if not self.pool.take(record, record.on_decode, record.prompt_tokens):
                if not self._too_long(record.prompt_tokens):
                    return
                self._give_up(record)
                continue
            self.waiting.popleft()
            record.decode_cached_tokens = record.on_decode.hit_blocks * self.pool.block_size
            self.puller.begin(record)

    def _go(self, begin_s: float | None = None) -> None:
        """Plan the next jump from a step's end."""
        if not self.works or self._steps:
            return
        self._admit()
        self._pull()
        batch = len(self.running)
        if not batch and not self.chunked:
            return
        engine, speed = self.world.spec.engine, self.speed.value
        self._make_room()
        batch = len(self.running)
        first_s = (
            engine.step_base_s + engine.step_per_seq_s * batch + engine.step_per_kv_token_s * self._kv_tokens
        ) / speed
        self._growth_s = engine.step_per_kv_token_s * batch / speed
        self._chunk = 0
        if self.chunked:
            left = sum(r.on_decode.left for r in self.chunked)
            self._chunk = min(max(1, self.max_num_batched_tokens - batch), left)
            first_s += self._chunk / engine.prefill_tokens_per_s / speed
            steps = 1
        elif batch:
            steps = 1 if self.extra_s else self._longest()
        else:
            return
        self._first_s, self.extra_s = first_s + self.extra_s, 0.0
        self._steps = steps
        self._begin_s = self.world.loop.now if begin_s is None else begin_s
        self._schedule()

    def _admit(self) -> None:
        """Let those join whose KV is here, and those that have theirs computed here."""
        while len(self.running) + len(self.chunked) < self.max_num_seqs:
            if self.ready:
                record = self.ready.popleft()
                if record.on_decode.gone:
                    self.pool.release(record, record.on_decode)
                    self._dropped(record)
                    continue
                self.pool.computed(record, record.on_decode)
                self._join(record)
                continue
            if not self.waiting or not self._local(self.waiting[0]):
                return
            record = self.waiting[0]
            work = record.on_decode
            tokens = record.prompt_tokens + record.generated_tokens
            if not self.pool.take(record, work, tokens):
                if not self._too_long(tokens):
                    return
                self._give_up(record)
                continue
            self.waiting.popleft()
            if not work.resumed:
                record.decode_started_s = self.world.loop.now
                record.decode_cached_tokens = work.hit_blocks * self.pool.block_size
                meters.scheduled(self.meter, record.prompt_tokens, record.decode_cached_tokens, 0)
            self.chunked.append(record)

    def _too_long(self, tokens: int) -> bool:
        return -(-tokens // self.pool.block_size) > self.pool.total

    def _give_up(self, record: RequestRecord) -> None:
        """End the first that waits, which can never have room; it would hold up all others for ever."""
        self.waiting.popleft()
        self._known.discard(record.id)
        self.meter.inc("vllm:request_success", finished_reason="error")
        self.answers.failed(record, Outcome.ERROR, "longer than the KV cache of decode")

    def _join(self, record: RequestRecord) -> None:
        work = record.on_decode
        if math.isnan(record.decode_started_s):
            record.decode_started_s = self.world.loop.now
            meters.scheduled(
                self.meter,
                record.prompt_tokens,
                record.decode_cached_tokens,
                record.prompt_tokens - record.decode_cached_tokens,
            )
        if not record.generated_tokens:
            self._fresh.append(record)
        work.joined_step = self._step_no
        self.running[record.id] = record
        self._kv_tokens += work.tokens
        self._phases[(self._step_no - work.tokens) % self.pool.block_size] += 1
        end = self._step_no + record.output_tokens - record.generated_tokens
        heapq.heappush(self._ends, (end, record.id, record))

    def _leave(self, record: RequestRecord) -> None:
        """Take a sequence out of the batch and let go of its KV."""
        work = record.on_decode
        done = self._step_no - work.joined_step
        del self.running[record.id]
        self._kv_tokens -= work.tokens + done
        self._phases[(work.joined_step - work.tokens) % self.pool.block_size] -= 1
        record.generated_tokens += done
        work.own_blocks += self._grown(work.tokens, done)
        self.pool.release(record, work)

    def _grown(self, tokens: int, steps: int) -> int:
        size = self.pool.block_size
        return -(-(tokens + steps) // size) - -(-tokens // size)

    def _need(self, steps: int) -> int:
        """Return the blocks that so many steps of the whole batch need."""
        size = self.pool.block_size
        rest = sum(self._phases[(self._step_no + i) % size] for i in range(steps % size))
        return steps // size * len(self.running) + rest

    def _longest(self) -> int:
        """Return how many steps can be done until a sequence ends or blocks run out."""
        steps = self._next_end() - self._step_no
        free, size, batch = self.pool.free, self.pool.block_size, len(self.running)
        if steps // size * batch + batch <= free or self._need(steps) <= free:
            return steps
        steps = min(steps, max(0, free) // batch * size)
        need = self._need(steps)
        while True:
            need += self._phases[(self._step_no + steps) % size]
            if need > free:
                return max(1, steps)
            steps += 1

    def _next_end(self) -> int:
        ends = self._ends
        while True:
            end, number, record = ends[0]
            if self.running.get(number) is record and self._end_of(record) == end:
                return end
            heapq.heappop(ends)

    def _end_of(self, record: RequestRecord) -> int:
        return record.on_decode.joined_step + record.output_tokens - record.generated_tokens

    def _make_room(self) -> None:
        """Preempt the youngest sequences until the rest can do a step."""
        while self.running and self._need(1) > max(0, self.pool.free):
            record = self.running[next(reversed(self.running))]
            if len(self.running) == 1 and not self.chunked and self.pool.used <= record.on_decode.own_blocks:
                return
            self._leave(record)
            if record in self._fresh:
                self._fresh.remove(record)
            record.preemptions += 1
            record.on_decode.resumed = True
            self.waiting.appendleft(record)
            self.meter.inc("vllm:num_preemptions")

    def _schedule(self) -> None:
        self._plan += 1
        self.world.loop.at(self._begin_s + self._span_s(self._steps), self._boundary, self._plan)

    def _span_s(self, steps: int) -> float:
        return steps * self._first_s + self._growth_s * steps * (steps - 1) / 2

    def _done_at(self, now: float) -> int:
        """Return how many steps of the jump are over at a time."""
        passed, half = now - self._begin_s, self._growth_s / 2
        if half * self._steps < 1e-12:
            steps = int(passed / self._first_s)
        else:
            b = self._first_s - half
            steps = int((math.sqrt(b * b + 4 * half * passed) - b) / (2 * half))
        steps = min(max(steps, 0), self._steps)
        while steps and self._span_s(steps) > passed:
            steps -= 1
        return steps

    def settle(self) -> None:
        """Count the steps that are over."""
        if self._steps > 1 and self.works:
            done = min(self._done_at(self.world.loop.now), self._steps - 1)
            if done:
                self._apply(done)

    def _interrupt(self) -> None:
        """Have the jump end with the step it is in."""
        if self._steps > 1 and self.works:
            self.settle()
            if self._steps > 1:
                self._steps = 1
                self._schedule()

    def _apply(self, steps: int) -> None:
        """Count `steps` steps of the jump; the rest of it begins behind them."""
        batch, span_s = len(self.running), self._span_s(steps)
        made = batch * steps
        if batch:
            self.pool.grow(self._need(steps))
        if self._fresh:
            self._first_tokens(self._begin_s + self._first_s)
        meter = self.meter
        gaps = made - self._unfollowed
        self._unfollowed = 0
        if gaps:
            meter.observe("vllm:inter_token_latency_seconds", span_s / steps, gaps)
            self.answers.gaps(span_s / steps, gaps)
        if made:
            meter.inc("vllm:generation_tokens", made)
        meter.observe("vllm:iteration_tokens_total", batch + self._chunk, steps)
        self._step_no += steps
        self._kv_tokens += made
        self._begin_s += span_s
        self._first_s += self._growth_s * steps
        self._steps -= steps

    def _first_tokens(self, at_s: float) -> None:
        self._unfollowed = len(self._fresh)
        for record in self._fresh:
            record.first_token_s = at_s
            prompt, cached = record.prompt_tokens, record.decode_cached_tokens
            external = 0 if record.local_prefill else prompt - cached
            meters.first_token(self.meter, at_s - record.decode_arrived_s, prompt, cached, external)
            self.answers.first_token(record)
        self._fresh.clear()

    def _boundary(self, plan: int) -> None:
        if plan != self._plan or not self.works:
            return
        self._apply(self._steps)
        if self._chunk:
            self._compute(self._chunk)
        ends, now = self._ends, self.world.loop.now
        while ends and ends[0][0] <= self._step_no:
            end, number, record = heapq.heappop(ends)
            if self.running.get(number) is record and self._end_of(record) == end:
                self._leave(record)
                self._finish(record, "length", now)
        for record in [r for r in self.running.values() if r.on_decode.gone] if self._any_gone else ():
            self._leave(record)
            self._dropped(record)
        self._any_gone = False
        self._go()

    def _compute(self, tokens: int) -> None:
        """Take a chunk of prompts that are computed here."""
        self._chunk = 0
        while tokens > 0 and self.chunked:
            work = self.chunked[0].on_decode
            take = min(tokens, work.left)
            work.left -= take
            tokens -= take
            if work.left:
                return
            record = self.chunked.popleft()
            if work.gone:
                self.pool.release(record, work)
                self._dropped(record)
                continue
            if not work.resumed:
                self.pool.computed(record, work)
            self._join(record)

    def _dropped(self, record: RequestRecord) -> None:
        self._known.discard(record.id)
        if record in self._fresh:
            self._fresh.remove(record)
        self.meter.inc("vllm:request_success", finished_reason="abort")
        if not record.local_prefill and math.isnan(record.pulled_s):
            self.puller.not_wanted(record)

    def _finish(self, record: RequestRecord, reason: str, now: float) -> None:
        self._known.discard(record.id)
        record.finished_s = now
        started, first = record.decode_started_s, record.first_token_s
        meters.finished(
            self.tally,
            reason,
            prompt=record.prompt_tokens,
            computed=record.prompt_tokens - record.decode_cached_tokens,
            tokens=record.generated_tokens,
            wanted=record.output_tokens,
            preemptions=record.preemptions,
            queue_s=started - record.decode_arrived_s,
            prefill_s=first - started,
            decode_s=now - first,
            e2e_s=now - record.decode_arrived_s,
        )
        self.answers.finished(record)
