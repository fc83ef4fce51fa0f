"""A prefill worker: prompts in order of arrival, a token budget a step, and KV that is held until it is pulled."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from pdops.sim import meters
from pdops.sim.engine import Answers, EngineWorker, World
from pdops.sim.instruments import Instruments
from pdops.sim.loop import Factors
from pdops.sim.records import Outcome, RequestRecord
from pdops.sim.spec import Zone

_Chunks = list[tuple[RequestRecord, int]]


class PrefillWorker(EngineWorker):
    """Computes prompts, one token each, and holds their KV under a lease."""

    def __init__(self, world: World, name: str, zone: Zone, blocks: int, meter: Instruments, answers: Answers) -> None:
        super().__init__(world, name, zone, blocks, meter, answers)
        engine = world.spec.engine
        self.lease_s, self.lease_renewed = engine.lease_s, engine.lease_renewed
        self.waiting: deque[RequestRecord] = deque()
        self.fetching: dict[int, RequestRecord] = {}
        self.running: list[RequestRecord] = []
        self.held: dict[int, RequestRecord] = {}
        self.steps = Factors()
        self._busy = False
        self._stopped: tuple[_Chunks, int] | None = None

    def accept(self, record: RequestRecord) -> bool:
        """Take a request; False when nobody listens."""
        if not self.up:
            return False
        record.prefill_arrived_s = self.world.loop.now
        if record.prompt_tokens > self.pool.total * self.pool.block_size:
            self.answers.failed(record, Outcome.ERROR, "prompt longer than the KV cache")
            return True
        store = self.world.store
        if store is not None:
            local = self.pool.cached_tokens(record)
            if record.shared_tokens - local >= self.pool.block_size:
                tokens, wait_s = store.lookup(record, local)
                self.fetching[record.id] = record
                self.world.loop.at(self.world.loop.now + wait_s, self._fetched, record, tokens, self.epoch)
                return True
        self.waiting.append(record)
        self._step()
        return True

    def abort(self, record: RequestRecord) -> None:
        """Drop a request whose client left; one that is being computed ends with its step."""
        record.on_prefill.gone = True
        self.fetching.pop(record.id, None)

    def knows(self, record: RequestRecord) -> bool:
        """Say whether it holds the KV of a request."""
        return record.id in self.held

    def release(self, record: RequestRecord) -> bool:
        """Take a notification that KV was read or is not wanted; False when it is gone already."""
        if self.held.pop(record.id, None) is None:
            return False
        self._free(record)
        self._step()
        return True

    def late(self, record: RequestRecord) -> None:
        """Take a notification of KV whose lease had run out."""
        self.meter.inc("vllm:nixl_num_notifications_after_expiry")
        text = f"Potentially invalid KV blocks for unrecognized request cmpl-{record.id} were retrieved by a decode worker."
        self.world.log(self.name, text)

    def requests(self) -> list[RequestRecord]:
        """Return all requests it works on."""
        return [*self.fetching.values(), *self.waiting, *self.running]

    def forget(self) -> None:
        """Drop all it knows, held KV included."""
        self.waiting.clear()
        self.fetching.clear()
        self.running.clear()
        self.held.clear()
        self._busy, self._stopped = False, None

    def thaw(self) -> None:
        """Go on where it hung."""
        super().thaw()
        if self._stopped is not None:
            chunks, total = self._stopped
            self._stopped = None
            self._done(chunks, total, self.epoch)
        else:
            self._step()

    def start(self, labels: Mapping[str, str] | None = None) -> None:
        """Begin anew, cold."""
        super().start(labels)
        self._step()

    def refresh(self) -> None:
        """Bring the gauges up to date."""
        if not self.works:
            return
        self.tally.flush()
        capacity = sum(not r.on_prefill.gone for r in self.waiting)
        meters.waiting(
            self.meter,
            running=len(self.running),
            capacity=capacity,
            deferred=len(self.fetching),
            usage=self.pool.usage,
        )
        if self.world.spec.engine.plugin:
            self.meter.set("pdops_plugin_kv_held_requests", len(self.held))

    def replan(self) -> None:
        """Look whether there is something to do now."""
        self._step()

    def _fetched(self, record: RequestRecord, tokens: int, epoch: int) -> None:
        if epoch != self.epoch or self.fetching.pop(record.id, None) is None:
            return
        record.stored_tokens = tokens
        self.waiting.append(record)
        self._step()

    def _step(self) -> None:
        if self._busy or not self.works:
            return
        budget = self.max_num_batched_tokens
        chunks: _Chunks = []
        for record in self.running:
            take = min(record.on_prefill.left, budget)
            if take:
                chunks.append((record, take))
                budget -= take
        while self.waiting and budget > 0 and len(self.running) < self.max_num_seqs:
            record = self.waiting[0]
            if record.on_prefill.gone:
                self.waiting.popleft()
                continue
            if not self._schedule(record):
                break
            self.waiting.popleft()
            self.running.append(record)
            take = min(record.on_prefill.left, budget)
            chunks.append((record, take))
            budget -= take
        if not chunks:
            return
        engine, total = self.world.spec.engine, self.max_num_batched_tokens - budget
        step_s = (engine.prefill_step_s * self.steps.value + total / engine.prefill_tokens_per_s) / self.speed.value
        if engine.service_cv2:
            step_s *= self.world.rng.gammavariate(1.0 / engine.service_cv2, engine.service_cv2)
        step_s, self.extra_s = step_s + self.extra_s, 0.0
        self._busy = True
        self.world.loop.at(self.world.loop.now + step_s, self._done, chunks, total, self.epoch)

    def _schedule(self, record: RequestRecord) -> bool:
        work = record.on_prefill
        if not self.pool.take(record, work, record.prompt_tokens):
            return False
        record.cached_tokens = work.hit_blocks * self.pool.block_size
        record.stored_tokens = max(0, record.stored_tokens - record.cached_tokens)
        work.left = max(1, record.prompt_tokens - record.cached_tokens - record.stored_tokens)
        record.prefill_started_s = self.world.loop.now
        meters.scheduled(self.meter, record.prompt_tokens, record.cached_tokens, record.stored_tokens)
        return True

    def _done(self, chunks: _Chunks, total: int, epoch: int) -> None:
        if epoch != self.epoch:
            return
        if self.frozen:
            self._stopped = (chunks, total)
            return
        ended: list[RequestRecord] = []
        for record, tokens in chunks:
            work = record.on_prefill
            work.left -= tokens
            if work.gone:
                self.running.remove(record)
                self._free(record)
                self.meter.inc("vllm:request_success", finished_reason="abort")
            elif work.left <= 0:
                self.running.remove(record)
                ended.append(record)
        self.meter.observe("vllm:iteration_tokens_total", total + len(ended))
        self._busy = False
        for record in ended:
            self._finish(record)
        self._step()

    def _finish(self, record: RequestRecord) -> None:
        now = self.world.loop.now
        record.prefilled_s = now
        self.pool.computed(record, record.on_prefill)
        if self.world.store is not None:
            self.world.store.put(record)
        self._count(record, now)
        self.held[record.id] = record
        record.on_prefill.epoch = self.epoch
        self.world.loop.at(now + self.lease_s, self._lease, record, now, self.lease_s, self.lease_renewed, self.epoch)
        self.answers.prefilled(record)

    def _count(self, record: RequestRecord, now: float) -> None:
        arrived, started = record.prefill_arrived_s, record.prefill_started_s
        cached, stored = record.cached_tokens, record.stored_tokens
        meters.first_token(
            self.meter, now - arrived, record.prompt_tokens, cached, stored, source="external_unspecified"
        )
        meters.prefilled(
            self.tally,
            prompt=record.prompt_tokens,
            computed=record.prompt_tokens - cached,
            queue_s=started - arrived,
            prefill_s=now - started,
            e2e_s=now - arrived,
        )

    def _lease(self, record: RequestRecord, since_s: float, lease_s: float, renewed: bool, epoch: int) -> None:
        if epoch != self.epoch or record.id not in self.held:
            return
        now = self.world.loop.now
        beat_s = self._last_beat_s(record) if renewed else since_s
        if max(beat_s, since_s) + lease_s > now or self.frozen:
            at_s = max(max(beat_s, since_s) + lease_s, now + 1.0 if self.frozen else 0.0)
            self.world.loop.at(at_s, self._lease, record, since_s, lease_s, renewed, epoch)
            return
        del self.held[record.id]
        self._free(record)
        self.meter.inc("vllm:nixl_num_kv_expired_reqs")
        text = f"Releasing expired KV blocks for request cmpl-{record.id} which were retrieved by 0 decode worker(s)"
        self.world.log(self.name, f"{text} within {lease_s:g} seconds.")
        self._step()

    def _last_beat_s(self, record: RequestRecord) -> float:
        """Return when decode last said that it still wants this KV."""
        decode = self.world.decodes.get(record.decode or "")
        if decode is not None and not decode.works:
            return decode.down_s
        if decode is None or record.local_prefill or not decode.knows(record):
            return 0.0
        if not self.world.fabric.reachable(self.name, decode.name):
            return self.world.fabric.unreachable_since_s(self.name, decode.name)
        return self.world.loop.now

    def _free(self, record: RequestRecord) -> None:
        self.pool.release(record, record.on_prefill)
