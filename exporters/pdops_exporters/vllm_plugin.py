"""A vLLM KV connector that also tells which peer every transfer was with: the stock NIXL pull connector, and counters.

Loaded by the engine, not by pdops: with `kv_connector: NixlPdopsConnector` and `kv_connector_module_path` naming this
module, or by that name alone once `register` has run (entry point `vllm.general_plugins`; MultiConnector needs it).
Imports nothing but the standard library until the engine asks for the connector.

On the engine's own page it adds, with the engine's labels and `src`, `dst` (readable engine ids):

- `pdops_plugin_kv_transfer_seconds`, `pdops_plugin_kv_transfer_bytes_total`, `pdops_plugin_kv_transfer_failures_total`
- `pdops_plugin_kv_handshake_seconds` with `result`
- on prefill `pdops_plugin_kv_held_requests`, `_blocks`, `_oldest_timestamp_seconds` and
  `pdops_plugin_kv_produced_bytes_total`
- `pdops_plugin_cpu_seconds_total`, what all this costs by `part`

Where the engine's internals are not the ones this was written for (vLLM 0.32), the stock connector is used and a warning
says so; an error inside a counter turns the counters off, never the transfer.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import pickle
import queue
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

NAME = "NixlPdopsConnector"
STATS = "PdopsNixlStats"
"""Statistics go from process to process by this name."""
OFF = "PDOPS_PLUGIN_OFF"
"""Set to 1 in the engine's environment to use the stock connector under our name."""

EDGES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Bucket edges in seconds. The engine's own end at 5 s, where a slow link begins to hurt."""

XFER, FAIL, SHAKE, HELD, MADE, COST = (f"pdops_{key}" for key in ("xfer", "fail", "shake", "held", "made", "cost"))
_KEYS = (XFER, FAIL, SHAKE, HELD, MADE, COST)
_RESTART = re.compile(r"^(?P<name>.+?)(?:\.\d+)?(?P<rank>_dp\d+)?$")
_MAX_PEERS = 4096
"""Pairs that get series of their own in one engine; further ones are counted under `other`."""

_log = logging.getLogger("vllm.pdops_plugin")
_built: dict[str, type] = {}


def register() -> None:
    """Make the connector known by its name in this process; entry point of `vllm.general_plugins`."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

        if NAME not in KVConnectorFactory._registry:
            KVConnectorFactory.register_connector(NAME, __name__, NAME)
    except Exception as error:  # noqa: BLE001  an engine must start without us
        _log.warning("pdops: the connector could not be registered: %s", error)


def __getattr__(name: str) -> Any:
    """Build the connector class when the engine asks for it, or its statistics when they come from another process."""
    if name in (NAME, STATS):
        if name not in _built and NAME not in _built:
            _built[NAME] = _connector()
        if name in _built:
            return _built[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def peer(engine_id: str) -> str:
    """Return an engine id as a label: without the number a restart adds, so that it makes no new series."""
    found = _RESTART.match(engine_id)
    # An address ends in a number of its own.
    if found is None or not re.search("[a-z]", found["name"], re.IGNORECASE):
        return engine_id
    return found["name"] + (found["rank"] or "")


class Switch:
    """Counts as long as nothing goes wrong, and measures its own CPU time.

    `cpu_s` is thread CPU time in seconds since it was last taken.
    """

    def __init__(self) -> None:
        self.on = True
        self.cpu_s = 0.0

    def run(self, what: Callable[..., Any], *args: Any) -> Any:
        """Return what a counter returns; its first error turns all counters of this part off."""
        if not self.on:
            return None
        begin = time.thread_time()
        try:
            return what(*args)
        except Exception as error:  # noqa: BLE001  whatever it is, the engine goes on
            self.on = False
            _log.warning("pdops: per-peer KV metrics are off after an error: %s: %s", type(error).__name__, error)
            return None
        finally:
            self.cpu_s += time.thread_time() - begin

    def take(self) -> float:
        """Return the CPU time since the last call, in seconds."""
        spent, self.cpu_s = self.cpu_s, 0.0
        return spent


_WANTED: dict[str, dict[str, tuple[str, ...]]] = {
    "worker": {
        "__init__": ("vllm_config", "engine_id", "kv_cache_config"),
        "_pop_done_transfers": ("transfers",),
        "_handle_failed_transfer": ("req_id", "handle", "failed_req_ids", "record_failed_transfer"),
        "_nixl_handshake": ("host", "port", "remote_tp_size", "expected_engine_id"),
        "get_kv_connector_stats": (),
    },
    "scheduler": {
        "__init__": ("vllm_config", "engine_id", "kv_cache_config"),
        "request_finished": ("request", "block_ids"),
        "update_connector_output": ("connector_output",),
    },
    "stats": {"reset": (), "is_empty": (), "record_transfer": ("res",), "clone_and_reset": ()},
    "prom": {
        "__init__": ("vllm_config", "metric_types", "labelnames", "per_engine_labelvalues"),
        "observe": ("transfer_stats_data", "engine_idx"),
    },
}
"""Methods this file stands on, with the parameters they must begin with."""


def differences(parts: dict[str, type]) -> list[str]:
    """Return what the engine's classes lack of what this was written for, in words."""
    found = []
    for part, methods in _WANTED.items():
        for method, names in methods.items():
            function = getattr(parts[part], method, None)
            if function is None:
                found.append(f"{parts[part].__name__} has no {method}")
                continue
            have = tuple(inspect.signature(function).parameters)[1:]
            if have[: len(names)] != names:
                found.append(f"{parts[part].__name__}.{method} takes ({', '.join(have)})")
    return found


def _connector() -> type:
    """Return our connector class, or the stock one where the engine is another than expected."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector

    if os.environ.get(OFF) == "1":
        return _named(NixlPullConnector)
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import NixlPullConnectorScheduler
        from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
        from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats, NixlPromMetrics

        parts = {
            "worker": NixlPullConnectorWorker,
            "scheduler": NixlPullConnectorScheduler,
            "stats": NixlKVConnectorStats,
            "prom": NixlPromMetrics,
        }
        wrong = differences(parts)
        if not wrong:
            return make_connector(NixlPullConnector, parts)
        why = "; ".join(wrong)
    except Exception as error:  # noqa: BLE001  an engine must start without us
        why = f"{type(error).__name__}: {error}"
    _log.warning("pdops: per-peer KV metrics are off, this engine is not the one they are made for: %s", why)
    return _named(NixlPullConnector)


def _named(stock: type) -> type:
    """Return the stock connector under our name, since the engine looks connectors up by it."""
    return type(NAME, (stock,), {"__module__": __name__})


def make_connector(stock: Any, parts: dict[str, Any]) -> type:
    """Return the connector class built on the engine's own classes."""
    stats, prom = make_stats(parts["stats"]), make_prom(parts["prom"])
    stats.__module__, stats.__qualname__, stats.__name__ = __name__, STATS, STATS
    _built[STATS] = stats
    # What cannot be sent from the worker to the engine's core would end both at the first transfer.
    pickle.loads(pickle.dumps(stats()))  # noqa: S301  our own bytes
    worker, scheduler = make_worker(parts["worker"], stats), make_scheduler(parts["scheduler"], stats)
    base = stock.__mro__[1]

    class NixlPdopsConnector(stock):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
            # The stock constructor would make a second NIXL agent.
            base.__init__(self, vllm_config, role, kv_cache_config)
            self.connector_scheduler: Any = None
            self.connector_worker: Any = None
            if role.name == "SCHEDULER":
                self.connector_scheduler = scheduler(vllm_config, self.engine_id, kv_cache_config)
            else:
                self.connector_worker = worker(vllm_config, self.engine_id, kv_cache_config)

        def start_load_kv(self, *_: Any, **__: Any) -> None:
            self.connector_worker.start_load_kv(self._connector_metadata)

        def get_kv_connector_stats(self) -> Any:
            half = self.connector_worker if self.connector_worker is not None else self.connector_scheduler
            return half.get_kv_connector_stats()

        @classmethod
        def build_kv_connector_stats(cls, data: Any = None) -> Any:
            return stats() if data is None else stats(data=data)

        @classmethod
        def build_prom_metrics(cls, *args: Any, **kwargs: Any) -> Any:
            return prom(*args, **kwargs)

    NixlPdopsConnector.__module__, NixlPdopsConnector.__qualname__ = __name__, NAME
    return NixlPdopsConnector


def make_stats(stock: Any) -> Any:
    """Return the statistics class: the stock lists, and ours of plain values, which travel the same way."""

    class PeerStats(stock):  # type: ignore[misc]
        def __post_init__(self) -> None:
            super().__post_init__()
            for key in _KEYS:
                self.data.setdefault(key, [])

        def reset(self) -> None:
            super().reset()
            self.data.update({key: [] for key in _KEYS})

        def is_empty(self) -> bool:
            return bool(super().is_empty()) and not any(self.data.get(key) for key in _KEYS)

        def aggregate(self, other: Any) -> Any:
            for key in other.data:
                self.data.setdefault(key, [])
            return super().aggregate(other)

    return PeerStats


def make_worker(stock: Any, stats: Any) -> Any:
    """Return the half that moves KV: it knows the peer while a transfer is polled."""

    class PeerWorker(stock):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_id: str, kv_cache_config: Any) -> None:
            super().__init__(vllm_config, engine_id, kv_cache_config)
            self._pdops = Switch()
            self._pdops_shakes: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
            self.xfer_stats = stats()

        def _pdops_peer(self, req_id: str) -> str:
            meta = self._recving_metadata.get(req_id)
            remote = None if meta is None else meta.remote
            return "?" if remote is None else peer(str(remote.engine_id))

        def _pop_done_transfers(self, transfers: dict[str, list[int]]) -> tuple[set[str], set[str]]:
            if not transfers or not self._pdops.on:
                return super()._pop_done_transfers(transfers)  # type: ignore[no-any-return]
            done: set[str] = set()
            failed: set[str] = set()
            for req_id in list(transfers):
                # One request at a time, so that whatever is recorded meanwhile is of its peer.
                one = {req_id: transfers[req_id]}
                before = self._pdops.run(self._pdops_recorded)
                src = self._pdops.run(self._pdops_peer, req_id)
                ended, broken = super()._pop_done_transfers(one)
                if req_id in one:
                    transfers[req_id] = one[req_id]
                else:
                    del transfers[req_id]
                done |= ended
                failed |= broken
                self._pdops.run(self._pdops_moved, src, before)
            return done, failed

        def _pdops_recorded(self) -> int:
            return len(self.xfer_stats.data["transfer_duration"])

        def _pdops_moved(self, src: str, before: int) -> None:
            data = self.xfer_stats.data
            dst = peer(str(self.engine_id))
            for seconds, size in zip(
                data["transfer_duration"][before:], data["bytes_transferred"][before:], strict=True
            ):
                data[XFER].append([src, dst, float(seconds), float(size)])

        def _handle_failed_transfer(
            self, req_id: str, handle: Any, failed_req_ids: Any = None, record_failed_transfer: bool = True
        ) -> bool:
            if record_failed_transfer:
                self._pdops.run(self._pdops_failed, req_id)
            return super()._handle_failed_transfer(  # type: ignore[no-any-return]
                req_id, handle, failed_req_ids, record_failed_transfer
            )

        def _pdops_failed(self, req_id: str) -> None:
            self.xfer_stats.data[FAIL].append([self._pdops_peer(req_id), peer(str(self.engine_id))])

        @functools.wraps(stock._nixl_handshake)
        def _nixl_handshake(self, *args: Any, **kwargs: Any) -> Any:
            src = str(kwargs.get("expected_engine_id", args[3] if len(args) > 3 else "?"))
            begin, result = time.perf_counter(), "failed"
            try:
                answer = super()._nixl_handshake(*args, **kwargs)
                result = "ok"
                return answer
            finally:
                # This is another thread than the one that reads the statistics.
                took = time.perf_counter() - begin
                self._pdops_shakes.put([peer(src), peer(str(self.engine_id)), result, took])

        def get_kv_connector_stats(self) -> Any:
            self._pdops.run(self._pdops_collect)
            return super().get_kv_connector_stats()

        def _pdops_collect(self) -> None:
            data = self.xfer_stats.data
            while not self._pdops_shakes.empty():
                data[SHAKE].append(self._pdops_shakes.get_nowait())
            # Cost alone is no reason to publish: it travels with the next thing that is.
            if not self.xfer_stats.is_empty():
                data[COST].append(["worker", self._pdops.take()])

    return PeerWorker


def make_scheduler(stock: Any, stats: Any) -> Any:
    """Return the half that decides: on prefill it knows whose KV waits to be fetched, and since when."""

    class PeerScheduler(stock):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_id: str, kv_cache_config: Any) -> None:
            super().__init__(vllm_config, engine_id, kv_cache_config)
            self._pdops = Switch()
            self._pdops_held: dict[str, tuple[float, int]] = {}
            self._pdops_changed = True
            self._pdops_made = 0.0
            self._pdops_block_bytes = self._pdops.run(block_bytes, kv_cache_config) or 0.0

        def request_finished(self, request: Any, block_ids: Any) -> Any:
            answer = super().request_finished(request, block_ids)
            self._pdops.run(self._pdops_finished, request, block_ids, bool(answer[0]))
            return answer

        def _pdops_finished(self, request: Any, block_ids: Iterable[Any], kept: bool) -> None:
            if not kept:
                return
            blocks = sum(len(group) for group in block_ids)
            self._pdops_held[request.request_id] = (time.time(), blocks)  # noqa: TID251  no clock of pdops in an engine
            self._pdops_made += blocks * self._pdops_block_bytes
            self._pdops_changed = True

        def update_connector_output(self, connector_output: Any) -> None:
            super().update_connector_output(connector_output)
            self._pdops.run(self._pdops_sent, connector_output)

        def _pdops_sent(self, connector_output: Any) -> None:
            for req_id in connector_output.finished_sending or ():
                if self._pdops_held.pop(req_id, None) is not None:
                    self._pdops_changed = True

        def get_kv_connector_stats(self) -> Any:
            return self._pdops.run(self._pdops_publish)

        def _pdops_publish(self) -> Any:
            if not self._pdops_changed:
                return None
            self._pdops_changed = False
            since = [at for at, _ in self._pdops_held.values()]
            blocks = sum(count for _, count in self._pdops_held.values())
            made, self._pdops_made = self._pdops_made, 0.0
            told = stats()
            told.data[HELD].append([float(len(since)), float(blocks), min(since, default=0.0)])
            if made:
                told.data[MADE].append(made)
            told.data[COST].append(["scheduler", self._pdops.take()])
            return told

    return PeerScheduler


def block_bytes(kv_cache_config: Any) -> float:
    """Return the bytes of one KV block over all layers of this rank; 0 when the engine does not say."""
    blocks = int(getattr(kv_cache_config, "num_blocks", 0) or 0)
    total = sum(float(tensor.size) for tensor in getattr(kv_cache_config, "kv_cache_tensors", ()))
    return total / blocks if blocks > 0 else 0.0


def make_prom(stock: Any) -> Any:
    """Return what puts the statistics on the engine's page."""

    class PeerProm(stock):  # type: ignore[misc]
        def __init__(
            self,
            vllm_config: Any,
            metric_types: Any,
            labelnames: list[str],
            per_engine_labelvalues: dict[int, list[Any]],
        ) -> None:
            super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
            self._pdops = Switch()
            self._pdops_pairs: set[tuple[str, str]] = set()
            self._pdops.run(self._pdops_families, list(labelnames))

        def _pdops_families(self, names: list[str]) -> None:
            histogram, counter, gauge = self._histogram_cls, self._counter_cls, self._gauge_cls
            pair = [*names, "src", "dst"]
            self._pdops_seconds = histogram(
                name="pdops_plugin_kv_transfer_seconds",
                documentation="KV transfer time (seconds)",
                labelnames=pair,
                buckets=list(EDGES_S),
            )
            self._pdops_bytes = counter(
                name="pdops_plugin_kv_transfer_bytes", documentation="KV moved (bytes)", labelnames=pair
            )
            self._pdops_failures = counter(
                name="pdops_plugin_kv_transfer_failures", documentation="KV transfers that failed", labelnames=pair
            )
            self._pdops_shakes = histogram(
                name="pdops_plugin_kv_handshake_seconds",
                documentation="first contact of a pair (seconds)",
                labelnames=[*pair, "result"],
                buckets=list(EDGES_S),
            )
            self._pdops_held = [
                gauge(name=f"pdops_plugin_kv_held_{what}", documentation=meaning, labelnames=names)
                for what, meaning in (
                    ("requests", "finished prefills whose KV waits to be fetched"),
                    ("blocks", "KV blocks held for them"),
                    ("oldest_timestamp_seconds", "Unix time since which the oldest waits; 0 when none does"),
                )
            ]
            self._pdops_made = counter(
                name="pdops_plugin_kv_produced_bytes",
                documentation="KV of finished prefills, whole blocks, this rank (bytes)",
                labelnames=names,
            )
            self._pdops_cpu = counter(
                name="pdops_plugin_cpu_seconds",
                documentation="CPU time of the plugin by part (seconds)",
                labelnames=[*names, "part"],
            )

        def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
            super().observe(transfer_stats_data, engine_idx)
            self._pdops.run(self._pdops_observe, transfer_stats_data, self.per_engine_labelvalues[engine_idx])
            if self._pdops.on:
                labels = self.per_engine_labelvalues[engine_idx]
                self._pdops_cpu.labels(*labels, "exporter").inc(self._pdops.take())

        def _pdops_pair(self, src: str, dst: str) -> tuple[str, str]:
            if (src, dst) not in self._pdops_pairs:
                if len(self._pdops_pairs) >= _MAX_PEERS:
                    return "other", dst
                self._pdops_pairs.add((src, dst))
            return src, dst

        def _pdops_observe(self, data: dict[str, Any], labels: list[Any]) -> None:
            for src, dst, seconds, size in data.get(XFER, ()):
                pair = self._pdops_pair(src, dst)
                self._pdops_seconds.labels(*labels, *pair).observe(seconds)
                self._pdops_bytes.labels(*labels, *pair).inc(size)
            for src, dst in data.get(FAIL, ()):
                self._pdops_failures.labels(*labels, *self._pdops_pair(src, dst)).inc()
            for src, dst, result, seconds in data.get(SHAKE, ()):
                self._pdops_shakes.labels(*labels, *self._pdops_pair(src, dst), result).observe(seconds)
            for row in data.get(HELD, ()):
                for family, value in zip(self._pdops_held, row, strict=True):
                    family.labels(*labels).set(value)
            for size in data.get(MADE, ()):
                self._pdops_made.labels(*labels).inc(size)
            for part, seconds in data.get(COST, ()):
                self._pdops_cpu.labels(*labels, part).inc(seconds)

    return PeerProm
