"""A decode worker: pulls KV, then steps all its sequences at once; a jump does many steps between two events.

KV is allocated lazily, a block at a time as sequences grow; when there is none left, the youngest sequence loses its
blocks and is computed anew later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from pdops.sim import meters
from pdops.sim.batch import Batch, Jump
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
        self.chunked: deque[RequestRecord] = deque()
        self.batch = Batch(self.pool.block_size)
        self._jump = Jump()
        self._known: set[int] = set()
        self._fresh: list[RequestRecord] = []
        self._chunk = 0
        self._plan = 0
        self._stopped_s: float | None = None
        self._unfollowed = 0
        self._any_gone = False
        self.rejects: dict[object, float] = {}
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
        if any(self.world.rng.random() < ratio for ratio in self.rejects.values()):
            self.answers.failed(record, Outcome.ERROR, "rejected before admission")
            return True
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
        elif record.id in self.batch.running:
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
        if self._jump.steps == 0:
            self._go()
        elif self._full():
            return
        elif self._jump.steps > 1 and (self.ready or (self.waiting and self._local(self.waiting[0]))):
            self._interrupt()

    def requests(self) -> list[RequestRecord]:
        """Return all requests it knows."""
        return [*self.waiting, *self.puller.records(), *self.ready, *self.chunked, *self.batch.running.values()]

    def forget(self) -> None:
        """Drop all it knows."""
        self.puller.clear()
        self.batch.clear()
        self.waiting.clear()
        self.ready.clear()
        self.chunked.clear()
        self._known.clear()
        self._fresh.clear()
        self._jump.steps = self._chunk = self._unfollowed = 0
        self._plan += 1
        self._stopped_s = None

    def freeze(self) -> None:
        """Hang in the middle of a step."""
        self.settle()
        self._stopped_s = self._jump.begin_s if self._jump.steps else self.world.loop.now
        self._plan += 1
        super().freeze()

    def thaw(self) -> None:
        """Go on; the step that hung took all that time."""
        super().thaw()
        now = self.world.loop.now
        if self._jump.steps and self._stopped_s is not None:
            self.extra_s += now - self._stopped_s
            self._jump.steps = 0
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
            running=len(self.batch) + len(self.chunked),
            capacity=alive + done,
            deferred=pulling,
            usage=self.pool.usage,
        )
        to_pull = sum(not self._local(r) and not r.on_decode.gone for r in self.waiting)
        meter.set("vllm:num_requests_kv_fetch_by_stage", to_pull, stage="waiting_to_start")
        meter.set("vllm:num_requests_kv_fetch_by_stage", pulling, stage="in_progress")
        meter.set("vllm:num_requests_kv_fetch_by_stage", done, stage="completed_waiting")

    def _full(self) -> bool:
        return len(self.batch) + len(self.chunked) >= self.max_num_seqs

    def _local(self, record: RequestRecord) -> bool:
        return record.local_prefill or record.on_decode.resumed

    def _pull(self) -> None:
        """Hold room for those that wait and have their KV pulled, in order of arrival."""
        while self.waiting and not self._full():
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
        if not self.works or self._jump.steps:
            return
        self._admit()
        self._pull()
        batch = len(self.batch)
        if not batch and not self.chunked:
            return
        engine, speed = self.world.spec.engine, self.speed.value
        self._make_room()
        batch = len(self.batch)
        first_s = (
            engine.step_base_s + engine.step_per_seq_s * batch + engine.step_per_kv_token_s * self.batch.kv_tokens
        ) / speed
        self._jump.growth_s = engine.step_per_kv_token_s * batch / speed
        self._chunk = 0
        if self.chunked:
            left = sum(r.on_decode.left for r in self.chunked)
            self._chunk = min(max(1, self.max_num_batched_tokens - batch), left)
            first_s += self._chunk / engine.prefill_tokens_per_s / speed
            steps = 1
        elif batch:
            steps = 1 if self.extra_s else self.batch.longest(self.pool.free)
        else:
            return
        self._jump.first_s, self.extra_s = first_s + self.extra_s, 0.0
        self._jump.steps = steps
        self._jump.begin_s = self.world.loop.now if begin_s is None else begin_s
        self._schedule()

    def _admit(self) -> None:
        """Let those join whose KV is here, and those that have theirs computed here."""
        while not self._full():
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
        self.batch.join(record)

    def _leave(self, record: RequestRecord) -> None:
        """Take a sequence out of the batch and let go of its KV."""
        self.batch.leave(record)
        self.pool.release(record, record.on_decode)

    def _make_room(self) -> None:
        """Preempt the youngest sequences until the rest can do a step."""
        while self.batch.running and self.batch.need(1) > max(0, self.pool.free):
            record = self.batch.youngest()
            if len(self.batch) == 1 and not self.chunked and self.pool.used <= record.on_decode.own_blocks:
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
        self.world.loop.at(self._jump.begin_s + self._jump.span_s(self._jump.steps), self._boundary, self._plan)

    def settle(self) -> None:
        """Count the steps that are over."""
        if self._jump.steps > 1 and self.works:
            done = min(self._jump.over(self.world.loop.now), self._jump.steps - 1)
            if done:
                self._apply(done)

    def _interrupt(self) -> None:
        """Have the jump end with the step it is in."""
        if self._jump.steps > 1 and self.works:
            self.settle()
            if self._jump.steps > 1:
                self._jump.steps = 1
                self._schedule()

    def _apply(self, steps: int) -> None:
        """Count `steps` steps of the jump; the rest of it begins behind them."""
        batch, span_s = len(self.batch), self._jump.span_s(steps)
        made = batch * steps
        if batch:
            self.pool.grow(self.batch.need(steps))
        if self._fresh:
            self._first_tokens(self._jump.begin_s + self._jump.first_s)
        meter = self.meter
        gaps = made - self._unfollowed
        self._unfollowed = 0
        if gaps:
            meter.observe("vllm:inter_token_latency_seconds", span_s / steps, gaps)
            self.answers.gaps(span_s / steps, gaps)
        if made:
            meter.inc("vllm:generation_tokens", made)
        meter.observe("vllm:iteration_tokens_total", batch + self._chunk, steps)
        self.batch.step += steps
        self.batch.kv_tokens += made
        self._jump.pass_by(steps)

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
        self._apply(self._jump.steps)
        if self._chunk:
            self._compute(self._chunk)
        now = self.world.loop.now
        for record in self.batch.ended():
            self._leave(record)
            self._finish(record, now)
        for record in [r for r in self.batch.running.values() if r.on_decode.gone] if self._any_gone else ():
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

    def _finish(self, record: RequestRecord, now: float) -> None:
        self._known.discard(record.id)
        record.finished_s = now
        started, first = record.decode_started_s, record.first_token_s
        meters.finished(
            self.tally,
            "length",
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
