"""The router: a bounded queue, a pair for each request, and what the client sees; counts as pdops' router does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pdops.model.cluster import Role
from pdops.sim.engine import World
from pdops.sim.instruments import Instruments
from pdops.sim.records import Outcome, RequestRecord
from pdops.sim.routing import Policy, Seat
from pdops.sim.spec import Zone

SWEEP_S = 1.0
"""How often limits of time are looked at."""
SEEDED_PAIRS, TOLD_PAIRS = 256, 1024
"""Up to the first, all series of pairs are there from the start; beyond the second, time and bytes by pair are not kept, as
on a deployment that drops such labels."""
LATE_S = 6.0
"""A worker that hangs counts as down after two health looks of 2 s and their pauses."""

_Call = Callable[[RequestRecord], None]


class Router:
    """Serves requests.

    Args:
        world: the workers.
        meter: its page.
    """

    def __init__(self, world: World, meter: Instruments) -> None:
        self.world, self.meter = world, meter
        spec = world.spec.router
        self.policy = Policy(spec.policy)
        self.backpressure = spec.backpressure
        self.local_share = 0.0
        self.local_mode = "drop-params"
        self.hops: dict[object, tuple[float, float]] = {}
        self.seats: dict[str, Seat] = {}
        self.records: list[RequestRecord] = []
        self.gap_counts: dict[int, tuple[int, int]] = {}
        self.inflight = 0
        self.waiting: deque[RequestRecord] = deque()
        self._prefills: list[Seat] = []
        self._decodes: list[Seat] = []
        self._open_prefills: list[Seat] = []
        self._open_decodes: list[Seat] = []
        self._in_prefill: dict[int, RequestRecord] = {}
        self._before_first: dict[int, RequestRecord] = {}
        self._zones: dict[str, Zone] = {z.name: z for z in world.spec.zones}
        self._tell_pairs = True
        world.loop.at(SWEEP_S, self._sweep)

    def join(self, name: str, role: Role, zone: str) -> Seat:
        """Take a worker in."""
        seat = self.seats[name] = Seat(name, role, zone)
        (self._prefills if role is Role.PREFILL else self._decodes).append(seat)
        self._reopen()
        pairs = len(self._prefills) * len(self._decodes)
        self._tell_pairs = pairs <= TOLD_PAIRS
        self.meter.set("pdops_router_worker_up", 1.0, worker=name)
        self.meter.set("pdops_router_worker_cordoned", 0.0, worker=name)
        self.meter.set("pdops_router_worker_inflight", 0.0, worker=name)
        if role is Role.PREFILL:
            self.meter.observe("pdops_router_prefill_seconds", 0.0, 0, src=name)
        if pairs <= SEEDED_PAIRS:
            self._seed(seat)
        return seat

    def leave(self, name: str) -> None:
        """Forget a worker."""
        seat = self.seats.pop(name)
        (self._prefills if seat.role is Role.PREFILL else self._decodes).remove(seat)
        self._reopen()
        for label in ("worker", "src", "dst"):
            self.meter.forget(**{label: name})

    def arrive(self, record: RequestRecord) -> None:
        """Take a request."""
        self.inflight += 1
        if self.waiting or not self._grant(record):
            if len(self.waiting) >= self.world.spec.router.queue_limit:
                self._reject(record, "queue_full")
                return
            self.waiting.append(record)

    def client_left(self, record: RequestRecord) -> None:
        """End a request whose client does not wait any longer."""
        if record.outcome is None:
            self.failed(record, Outcome.ABORTED, "client left")

    def pump(self) -> None:
        """Serve those at the head of the queue for whom there is room."""
        while self.waiting:
            # What is granted may end at once and come back here, so it must not stand in the queue meanwhile.
            record = self.waiting.popleft()
            if record.outcome is None and not self._grant(record):
                self.waiting.appendleft(record)
                return

    def mark(self, name: str, *, up: bool) -> None:
        """Take over what a health look found."""
        seat = self.seats.get(name)
        if seat is not None and seat.up is not up:
            seat.up = up
            self._reopen()

    def cordon(self, name: str, *, cordoned: bool) -> None:
        """Keep requests away from a worker, as a person may."""
        if name in self.seats:
            self.seats[name].cordoned = cordoned
            self._reopen()

    def eject(self, name: str, *, ejected: bool) -> None:
        """Take a worker for ill, whatever it is."""
        if name in self.seats:
            self.seats[name].ejected = ejected
            self._reopen()

    def prefilled(self, record: RequestRecord) -> None:
        """Hand a request over to decode."""
        self._after(record.prefill, record.zone, self._handover, record)

    def first_token(self, record: RequestRecord) -> None:
        """Note that output begins."""
        if record.outcome is not None:
            return
        self._before_first.pop(record.id, None)
        meter, at_s = self.meter, record.first_token_s
        meter.observe("pdops_router_ttft_seconds", at_s - record.arrival_s)
        if record.prefill is not None:
            handed_s = at_s - record.prefilled_s
            if self._tell_pairs:
                meter.observe("pdops_router_handoff_seconds", handed_s, src=record.prefill, dst=record.decode or "")
            meter.observe("pdops_router_phase_seconds", handed_s, phase="decode_first_token")
            if self._tell_pairs and not record.local_prefill:
                engine = self.world.spec.engine
                blocks = -(-record.prompt_tokens // engine.block_size_tokens)
                size = blocks * engine.block_size_tokens * engine.kv_bytes_per_token
                meter.inc("pdops_router_pair_kv_bytes", size, src=record.prefill, dst=record.decode or "")

    def gaps(self, seconds: float, count: int) -> None:
        """Note the time between tokens."""
        self.meter.observe("pdops_router_itl_seconds", seconds, count)
        promised, second = self.world.spec.slo.itl_s, int(self.world.loop.now)
        late, all_ = self.gap_counts.get(second, (0, 0))
        is_late = promised is not None and seconds > promised
        self.gap_counts[second] = (late + count if is_late else late, all_ + count)

    def finished(self, record: RequestRecord) -> None:
        """Note that all output is there."""
        if record.outcome is None:
            meter = self.meter
            meter.observe("pdops_router_request_seconds", record.finished_s - record.arrival_s)
            meter.observe("pdops_router_phase_seconds", record.finished_s - record.first_token_s, phase="stream")
            meter.inc("pdops_router_finish", reason="length")
            self._end(record, Outcome.OK, "")

    def failed(self, record: RequestRecord, outcome: Outcome, reason: str) -> None:
        """End a request badly, and leave nothing of it behind that can be reached."""
        if record.outcome is not None:
            return
        prefill = self.world.prefills.get(record.prefill or "")
        decode = self.world.decodes.get(record.decode or "")
        handed = record.decode_arrived_s == record.decode_arrived_s
        if record.decode is None and record in self.waiting:
            self.waiting.remove(record)
        self._end(record, outcome, reason)
        if prefill is not None and not handed:
            if prefill.knows(record):
                self._release(record)
            else:
                prefill.abort(record)
        if decode is not None and handed:
            decode.abort(record)

    def refresh(self) -> None:
        """Bring the gauges up to date."""
        meter = self.meter
        meter.set("pdops_router_inflight_requests", self.inflight)
        meter.set("pdops_router_queue_depth", len(self.waiting))
        for seat in self.seats.values():
            meter.set("pdops_router_worker_up", float(seat.up and not seat.ejected), worker=seat.id)
            meter.set("pdops_router_worker_cordoned", float(seat.cordoned), worker=seat.id)
            meter.set("pdops_router_worker_inflight", float(seat.inflight), worker=seat.id)

    def look(self) -> None:
        """Take the load of all workers as what is decided on."""
        for seat in self.seats.values():
            seat.shown = seat.inflight

    def _reopen(self) -> None:
        """Take over who may get requests."""
        self._open_prefills = [s for s in self._prefills if s.routable]
        self._open_decodes = [s for s in self._decodes if s.routable]
        self.pump()

    def _grant(self, record: RequestRecord) -> bool:
        spec = self.world.spec.router
        room_p = spec.max_inflight_prefill if self.backpressure else 1 << 30
        room_d = spec.max_inflight_decode if self.backpressure else 1 << 30
        decodes = [s for s in self._open_decodes if s.inflight < room_d]
        if not decodes:
            return False
        prefills = [s for s in self._open_prefills if s.inflight < room_p]
        if not prefills:
            return False
        local = bool(self.local_share) and self.world.rng.random() < self.local_share
        alone = local and self.local_mode == "no-prefill"
        prefill, decode = self.policy.pick([] if alone else prefills, decodes, record)
        now = self.world.loop.now
        record.granted_s, record.decode = now, decode.id
        record.local_prefill = local
        decode.inflight += 1
        self.meter.observe("pdops_router_queue_seconds", now - record.arrival_s)
        self.meter.observe("pdops_router_phase_seconds", now - record.arrival_s, phase="queue")
        if prefill is None:
            self.meter.inc("pdops_router_fallback", reason="no_prefill", worker=decode.id)
            record.prefilled_s = now
            self._send(decode.id, record.zone, self._to_decode, record)
            return True
        record.prefill = prefill.id
        prefill.inflight += 1
        self._in_prefill[record.id] = record
        self._send(prefill.id, record.zone, self._to_prefill, record)
        return True

    def _to_prefill(self, record: RequestRecord) -> None:
        if record.outcome is not None:
            return
        prefill = self.world.prefills.get(record.prefill or "")
        if prefill is None or not prefill.accept(record):
            self._refused(record, record.prefill or "")

    def _handover(self, record: RequestRecord) -> None:
        if self._in_prefill.pop(record.id, None) is None:
            # Nobody waits for it any more.
            self._release(record)
            return
        now = self.world.loop.now
        self._place(record.prefill, -1)
        self.meter.observe("pdops_router_prefill_seconds", now - record.granted_s, src=record.prefill or "")
        self.meter.observe("pdops_router_phase_seconds", now - record.granted_s, phase="prefill")
        self._send(record.decode, record.zone, self._to_decode, record)
        self.pump()

    def _to_decode(self, record: RequestRecord) -> None:
        if record.outcome is not None:
            return
        decode = self.world.decodes.get(record.decode or "")
        if decode is None or not decode.accept(record):
            self._refused(record, record.decode or "")
            return
        if record.outcome is None:
            if record.first_token_s != record.first_token_s:
                self._before_first[record.id] = record
            if record.prefill is not None:
                self.meter.observe("pdops_router_phase_seconds", self._rtt_s(record), phase="handoff")

    def _refused(self, record: RequestRecord, worker: str) -> None:
        self.mark(worker, up=False)
        self.failed(record, Outcome.ERROR, f"{worker} refused the connection")

    def _release(self, record: RequestRecord) -> None:
        """Have KV given free that no decode will pull."""
        prefill = self.world.prefills.get(record.prefill or "")
        able = any(d.works for d in self.world.decodes.values())
        self.meter.inc("pdops_router_kv_release", result="sent" if able else "no_decode")
        if able and prefill is not None and prefill.works:
            prefill.release(record)

    def _end(self, record: RequestRecord, outcome: Outcome, reason: str) -> None:
        meter, slo = self.meter, self.world.spec.slo
        record.outcome, record.reason = outcome, reason
        if record.finished_s != record.finished_s:
            record.finished_s = self.world.loop.now
        self.inflight -= 1
        self._before_first.pop(record.id, None)
        if self._in_prefill.pop(record.id, None) is not None:
            self._place(record.prefill, -1)
        self._place(record.decode, -1)
        self.records.append(record)
        meter.inc("pdops_router_requests", outcome=outcome)
        if record.prefill is not None:
            meter.inc("pdops_router_pair_requests", src=record.prefill, dst=record.decode or "", outcome=outcome)
        if outcome is not Outcome.ABORTED and (slo.ttft_s is not None or slo.itl_s is not None):
            self._promises(record)
        self.pump()

    def _promises(self, record: RequestRecord) -> None:
        meter, slo = self.meter, self.world.spec.slo
        met = record.outcome is Outcome.OK
        if record.first_token_s == record.first_token_s:
            if slo.ttft_s is not None:
                in_time = record.ttft_s <= slo.ttft_s
                met = met and in_time
                meter.inc("pdops_router_slo", slo="ttft", met="true" if in_time else "false")
            if slo.itl_s is not None and record.generated_tokens > 1:
                in_time = record.tpot_s <= slo.itl_s
                met = met and in_time
                meter.inc("pdops_router_slo", slo="itl", met="true" if in_time else "false")
        meter.inc("pdops_router_slo", slo="request", met="true" if met else "false")

    def _reject(self, record: RequestRecord, reason: str) -> None:
        self.meter.inc("pdops_router_rejected", reason=reason)
        self.failed(record, Outcome.REJECTED, reason)

    def _place(self, worker: str | None, change: int) -> None:
        seat = self.seats.get(worker or "")
        if seat is not None:
            seat.inflight += change

    def _sweep(self) -> None:
        loop, spec = self.world.loop, self.world.spec.router
        now = loop.now
        loop.at(now + SWEEP_S, self._sweep)
        if spec.deadline_s is not None:
            while self.waiting and now - self.waiting[0].arrival_s > spec.deadline_s:
                record = self.waiting.popleft()
                if record.outcome is None:
                    self._reject(record, self._why_late())
        for record in _older(self._in_prefill, now - spec.prefill_timeout_s):
            self.failed(record, Outcome.TIMEOUT, "prefill took too long")
        for record in _older(self._before_first, now - spec.first_token_timeout_s, decode=True):
            decode = self.world.decodes.get(record.decode or "")
            if decode is not None:
                decode.settle()
            if record.first_token_s != record.first_token_s:
                self.failed(record, Outcome.TIMEOUT, "no first token in time")
        if not self.policy.stale:
            self.look()

    def _why_late(self) -> str:
        for role, seats in (("prefill", self._open_prefills), ("decode", self._open_decodes)):
            if not seats:
                return f"no_{role}"
        return "deadline"

    def _send(self, worker: str | None, zone: str, call: _Call, record: RequestRecord) -> None:
        """Have a request set out for an engine."""
        wait_s = sum(s for ratio, s in self.hops.values() if self.world.rng.random() < ratio)
        if wait_s:
            self.world.loop.at(self.world.loop.now + wait_s, self._after, worker, zone, call, record)
        else:
            self._after(worker, zone, call, record)

    def _after(self, worker: str | None, zone: str, call: _Call, record: RequestRecord) -> None:
        """Call something once a message has passed between the client's zone and a worker; near is at once."""
        seat = self.seats.get(worker or "")
        if seat is None or seat.zone == zone:
            call(record)
            return
        rtt_s = self.world.fabric.rtt_s(self._zones[zone], self._zones[seat.zone])
        self.world.loop.at(self.world.loop.now + rtt_s / 2, call, record)

    def _rtt_s(self, record: RequestRecord) -> float:
        seat = self.seats.get(record.decode or "")
        return self.world.fabric.rtt_s(self._zones[record.zone], self._zones[seat.zone]) if seat is not None else 0.0

    def _seed(self, seat: Seat) -> None:
        others = self._decodes if seat.role is Role.PREFILL else self._prefills
        for other in others:
            src, dst = (seat, other) if seat.role is Role.PREFILL else (other, seat)
            self.meter.observe("pdops_router_handoff_seconds", 0.0, 0, src=src.id, dst=dst.id)
            for outcome in (*Outcome, "empty"):
                self.meter.inc("pdops_router_pair_requests", 0.0, src=src.id, dst=dst.id, outcome=outcome)


def _older(records: dict[int, RequestRecord], limit_s: float, *, decode: bool = False) -> list[RequestRecord]:
    """Return those that began before a time; they stand in order of their beginning."""
    found: list[RequestRecord] = []
    for record in records.values():
        if (record.decode_arrived_s if decode else record.granted_s) > limit_s:
            break
        found.append(record)
    return found
