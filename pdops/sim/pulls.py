"""What a decode worker does to get KV: meet the peer, pull, tell it, and fail as vLLM with NIXL fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdops.sim.nic import Transfer
from pdops.sim.records import RequestRecord

if TYPE_CHECKING:
    from pdops.sim.decode import DecodeWorker

HANDSHAKE_TIMEOUT_S = 5.05
"""A first contact that nobody answers fails after this long: measured on vLLM 0.32, whose side channel waits 5 s."""
POST_BASE_S, POST_S = 0.0002, 5e-7
"""Seconds to post a transfer, and for each of its descriptors."""


class Puller:
    """The pulls of one decode worker."""

    def __init__(self, decode: DecodeWorker) -> None:
        self._decode = decode
        self._pulls: dict[int, tuple[RequestRecord, Transfer | None]] = {}
        self.limits: dict[object, float] = {}

    @property
    def count(self) -> int:
        """Pulls in progress."""
        return len(self._pulls)

    def records(self) -> list[RequestRecord]:
        """Return the requests whose KV is on its way."""
        return [record for record, _ in self._pulls.values()]

    def begin(self, record: RequestRecord) -> None:
        """Begin to pull what a request lacks; what is here whole needs no pull."""
        decode, now = self._decode, self._decode.world.loop.now
        world, src = decode.world, record.prefill
        assert src is not None
        record.pull_started_s = now
        blocks = -(-record.prompt_tokens // decode.pool.block_size) - record.on_decode.hit_blocks
        link = world.fabric.link(src, decode.name)
        if link.refuses and not link.met:
            self._pulls[record.id] = (record, None)
            world.loop.at(now + HANDSHAKE_TIMEOUT_S, self._refused, record, decode.epoch)
            return
        prefill = world.prefills.get(src)
        if prefill is None or not prefill.up or prefill.epoch != record.on_prefill.epoch:
            self._pulls[record.id] = (record, None)
            world.loop.at(now + 0.02, self._peer_gone, record, decode.epoch)
            return
        if blocks <= 0:
            record.pulled_s = now
            self._tell(record)
            decode.pulled(record)
            return
        if any(blocks * decode.pool.block_size > tokens for tokens in self.limits.values()):
            self._pulls[record.id] = (record, None)
            world.loop.at(now + POST_BASE_S, self._too_large, record, decode.epoch)
            return
        size = blocks * decode.pool.block_size * world.spec.engine.kv_bytes_per_token
        descriptors = world.fabric.descriptors(decode.name, blocks)
        met = link.met
        transfer = world.fabric.pull(src, decode.name, size, descriptors, lambda: self._done(record, size, descriptors))
        if not met and world.spec.engine.plugin:
            seconds = world.fabric.handshake_s(link)
            decode.meter.observe("pdops_plugin_kv_handshake_seconds", seconds, src=src, dst=decode.name, result="ok")
        self._pulls[record.id] = (record, transfer)

    def drop(self, record: RequestRecord) -> bool:
        """End the pull of a request, if there is one."""
        found = self._pulls.pop(record.id, None)
        if found is None:
            return False
        if found[1] is not None:
            self._decode.world.fabric.cancel(found[1])
        self._decode.pool.release(record, record.on_decode)
        return True

    def clear(self) -> None:
        """End all pulls without a word."""
        for _, transfer in self._pulls.values():
            if transfer is not None:
                self._decode.world.fabric.cancel(transfer)
        self._pulls.clear()

    def peer_died(self, src: str) -> None:
        """Fail what was being pulled from a worker that ended."""
        decode = self._decode
        for record, transfer in list(self._pulls.values()):
            if record.prefill == src and transfer is not None:
                decode.world.fabric.cancel(transfer)
                self._fail(record, "transfer_failed", "NIXL_ERR_REMOTE_DISCONNECT", "prefill ended during the pull")

    def not_wanted(self, record: RequestRecord) -> None:
        """Tell prefill that KV will not be pulled."""
        self._tell(record, read=False)

    def _done(self, record: RequestRecord, size: float, descriptors: int) -> None:
        decode = self._decode
        if self._pulls.pop(record.id, None) is None:
            return
        now, meter = decode.world.loop.now, decode.meter
        record.pulled_s = now
        record.moved_bytes += size
        took_s = now - record.pull_started_s
        meter.observe("vllm:nixl_xfer_time_seconds", took_s)
        meter.observe("vllm:nixl_post_time_seconds", POST_BASE_S + POST_S * descriptors)
        meter.observe("vllm:nixl_bytes_transferred", size)
        meter.observe("vllm:nixl_num_descriptors", descriptors)
        if decode.world.spec.engine.plugin:
            src = record.prefill or ""
            meter.observe("pdops_plugin_kv_transfer_seconds", took_s, src=src, dst=decode.name)
            meter.inc("pdops_plugin_kv_transfer_bytes", size, src=src, dst=decode.name)
        self._tell(record)
        decode.pulled(record)

    def _tell(self, record: RequestRecord, *, read: bool = True) -> None:
        """Notify prefill; one that freed the KV already has handed out something else."""
        world = self._decode.world
        prefill = world.prefills.get(record.prefill or "")
        if prefill is None or not prefill.up or not world.fabric.reachable(prefill.name, self._decode.name):
            return
        if not prefill.release(record) and read:
            record.stale = True
            prefill.late(record)

    def _refused(self, record: RequestRecord, epoch: int) -> None:
        if epoch == self._decode.epoch and record.id in self._pulls:
            meter, src, dst = self._decode.meter, record.prefill or "", self._decode.name
            if self._decode.world.spec.engine.plugin:
                meter.observe(
                    "pdops_plugin_kv_handshake_seconds", HANDSHAKE_TIMEOUT_S, src=src, dst=dst, result="failed"
                )
            self._fail(record, "handshake_failed", "zmq.error.Again: Resource temporarily unavailable", "no handshake")

    def _peer_gone(self, record: RequestRecord, epoch: int) -> None:
        if epoch == self._decode.epoch and record.id in self._pulls:
            self._decode.meter.inc("vllm:nixl_num_failed_notifications")
            self._fail(record, "transfer_failed", "NIXL_ERR_REMOTE_DISCONNECT", "prefill is gone")

    def _too_large(self, record: RequestRecord, epoch: int) -> None:
        if epoch == self._decode.epoch and record.id in self._pulls:
            self._fail(record, "transfer_setup_failed", "NIXL_ERR_INVALID_PARAM", "transfer could not be set up")

    def _fail(self, record: RequestRecord, kind: str, error: str, reason: str) -> None:
        decode = self._decode
        del self._pulls[record.id]
        decode.meter.inc("vllm:nixl_num_failed_transfers")
        if decode.world.spec.engine.plugin:
            decode.meter.inc("pdops_plugin_kv_transfer_failures", src=record.prefill or "", dst=decode.name)
        text = f"NIXL transfer failure: {kind} | remote_engine={record.prefill} request=cmpl-{record.id}: {error}"
        decode.world.log(decode.name, text)
        decode.load_failed(record, reason)
