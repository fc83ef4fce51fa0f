"""The engine plugin on doubles of the classes it stands on; the real ones are met in tests/real."""

from __future__ import annotations

import logging
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from pdops_exporters import vllm_plugin as plugin

from .conftest import samples


class StatsDouble:
    """The engine's statistics: lists of plain values."""

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        self.data = data or {}
        self.__post_init__()

    def __post_init__(self) -> None:
        if not self.data:
            self.reset()

    def reset(self) -> None:
        self.data = {"transfer_duration": [], "bytes_transferred": []}

    def is_empty(self) -> bool:
        return not self.data["transfer_duration"]

    def record_transfer(self, res: Any) -> None:
        self.data["transfer_duration"].append(res[0])
        self.data["bytes_transferred"].append(res[1])

    def clone_and_reset(self) -> Any:
        old = type(self)(data=self.data)
        self.reset()
        return old

    def aggregate(self, other: Any) -> Any:
        for key, values in other.data.items():
            self.data[key].extend(values)
        return self


class WorkerDouble:
    """A pull worker: transfers end when their handle is in `done`, fail when it is in `broken`."""

    def __init__(self, vllm_config: Any, engine_id: str, kv_cache_config: Any) -> None:
        self.engine_id = engine_id
        self._recving_metadata: dict[str, Any] = {}
        self.done: dict[int, tuple[float, int]] = {}
        self.broken: set[int] = set()

    def _pop_done_transfers(self, transfers: dict[str, list[int]]) -> tuple[set[str], set[str]]:
        done, failed = set(), set()
        for req_id, handles in list(transfers.items()):
            left = []
            for handle in handles:
                if handle in self.done:
                    self.xfer_stats.record_transfer(self.done[handle])
                elif handle in self.broken:
                    self._handle_failed_transfer(req_id, handle, failed)
                else:
                    left.append(handle)
            if left:
                transfers[req_id] = left
            else:
                done.add(req_id)
                del transfers[req_id]
        return done, failed

    def _handle_failed_transfer(
        self, req_id: str, handle: Any, failed_req_ids: Any = None, record_failed_transfer: bool = True
    ) -> bool:
        if failed_req_ids is not None:
            failed_req_ids.add(req_id)
        return True

    def _nixl_handshake(self, host: str, port: int, remote_tp_size: int, expected_engine_id: str) -> str:
        if port == 0:
            raise ConnectionError("refused")
        return "agent"

    def get_kv_connector_stats(self) -> Any:
        return None if self.xfer_stats.is_empty() else self.xfer_stats.clone_and_reset()

    xfer_stats: Any


class SchedulerDouble:
    def __init__(self, vllm_config: Any, engine_id: str, kv_cache_config: Any) -> None:
        pass

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return request.hold, None

    def update_connector_output(self, connector_output: Any) -> None:
        pass


class PromDouble:
    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: Any, per_engine_labelvalues: Any) -> None:
        self.per_engine_labelvalues = per_engine_labelvalues
        self._histogram_cls, self._counter_cls, self._gauge_cls = metric_types

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        pass


PARTS: dict[str, Any] = {
    "worker": WorkerDouble,
    "scheduler": SchedulerDouble,
    "stats": StatsDouble,
    "prom": PromDouble,
}
CACHE = SimpleNamespace(num_blocks=10, kv_cache_tensors=[SimpleNamespace(size=4000), SimpleNamespace(size=6000)])


def worker() -> Any:
    made = plugin.make_worker(WorkerDouble, plugin.make_stats(StatsDouble))(None, "decode-0", None)
    for number in range(2):
        remote = SimpleNamespace(engine_id=f"prefill-{number}.3")
        made._recving_metadata[f"r{number}"] = SimpleNamespace(remote=remote)
    return made


def scheduler() -> Any:
    return plugin.make_scheduler(SchedulerDouble, plugin.make_stats(StatsDouble))(None, "prefill-0", CACHE)


def page_of(*stats: Any) -> dict[str, float]:
    registry = CollectorRegistry()

    def made(kind: Any) -> Any:
        return lambda **options: kind(**options, registry=registry)

    types = (made(Histogram), made(Counter), made(Gauge))
    prom = plugin.make_prom(PromDouble)(None, types, ["model_name", "engine"], {0: ["m", "0"]})
    for one in stats:
        prom.observe(one.data)
    found = {}
    for (name, labels), value in samples(generate_latest(registry).decode()).items():
        have = dict(labels)
        pair = f"{have['src']}>{have['dst']}" if "src" in have else ""
        key = " ".join(x for x in (name, pair, have.get("result"), have.get("part"), have.get("le")) if x)
        found[key] = value
    return found


def test_every_transfer_is_counted_for_its_own_peer() -> None:
    half = worker()
    half.done = {1: (0.25, 1000), 3: (0.5, 2000)}
    transfers = {"r0": [1, 2], "r1": [3]}
    assert half._pop_done_transfers(transfers) == ({"r1"}, set())
    assert transfers == {"r0": [2]}
    page = page_of(half.get_kv_connector_stats())
    assert page["pdops_plugin_kv_transfer_bytes_total prefill-0>decode-0"] == 1000
    assert page["pdops_plugin_kv_transfer_seconds_sum prefill-1>decode-0"] == 0.5
    assert page["pdops_plugin_kv_transfer_seconds_bucket prefill-1>decode-0 0.2"] == 0
    assert page["pdops_plugin_kv_transfer_seconds_bucket prefill-1>decode-0 0.5"] == 1


def test_a_failed_transfer_names_its_peer() -> None:
    half = worker()
    half.broken = {7}
    assert half._pop_done_transfers({"r1": [7]}) == ({"r1"}, {"r1"})
    assert page_of(half.get_kv_connector_stats())["pdops_plugin_kv_transfer_failures_total prefill-1>decode-0"] == 1


def test_handshakes_are_timed_by_result() -> None:
    half = worker()
    half._nixl_handshake("h", 1, 1, "prefill-0")
    with pytest.raises(ConnectionError):
        half._nixl_handshake("h", 0, 1, expected_engine_id="ghost")
    page = page_of(half.get_kv_connector_stats())
    assert page["pdops_plugin_kv_handshake_seconds_count prefill-0>decode-0 ok"] == 1
    assert page["pdops_plugin_kv_handshake_seconds_count ghost>decode-0 failed"] == 1


def test_kv_is_held_until_it_was_sent() -> None:
    half = scheduler()
    half.get_kv_connector_stats()
    for name, hold in (("a", True), ("b", True), ("c", False)):
        half.request_finished(SimpleNamespace(request_id=name, hold=hold), ([1, 2], [3]))
    held = half.get_kv_connector_stats()
    assert half.get_kv_connector_stats() is None, "nothing new is nothing to publish"
    page = page_of(held)
    assert page["pdops_plugin_kv_held_requests"] == 2
    assert page["pdops_plugin_kv_held_blocks"] == 6
    assert page["pdops_plugin_kv_held_oldest_timestamp_seconds"] > 1e9
    assert page["pdops_plugin_kv_produced_bytes_total"] == 6 * 1000
    half.update_connector_output(SimpleNamespace(finished_sending={"a", "b", "unknown"}))
    page = page_of(half.get_kv_connector_stats())
    assert page["pdops_plugin_kv_held_requests"] == 0
    assert page["pdops_plugin_kv_held_oldest_timestamp_seconds"] == 0


def test_halves_add_up_whichever_comes_first() -> None:
    half = worker()
    half.done = {1: (0.25, 1000)}
    half._pop_done_transfers({"r0": [1]})
    moved, held = half.get_kv_connector_stats(), scheduler().get_kv_connector_stats()
    for first, second in ((moved, held), (held, moved)):
        copy = plugin.make_stats(StatsDouble)(data={k: list(v) for k, v in first.data.items()})
        both = copy.aggregate(second)
        assert both.data[plugin.XFER] == [["prefill-0", "decode-0", 0.25, 1000.0]]
        assert len(both.data[plugin.HELD]) == 1


def test_statistics_of_a_stock_peer_are_taken_in() -> None:
    mine = plugin.make_stats(StatsDouble)()
    stock = StatsDouble(data={"transfer_duration": [1.0], "bytes_transferred": [5]})
    assert not mine.aggregate(stock).is_empty()


def test_an_error_in_a_counter_turns_counters_off_and_never_the_transfer(caplog: pytest.LogCaptureFixture) -> None:
    half = worker()
    half.done = {1: (0.25, 1000), 2: (0.25, 1000)}
    half._recving_metadata = None
    with caplog.at_level(logging.WARNING):
        assert half._pop_done_transfers({"r0": [1]}) == ({"r0"}, set())
        assert half._pop_done_transfers({"r0": [2]}) == ({"r0"}, set())
    assert caplog.text.count("are off after an error") == 1


def test_statistics_that_are_kept_elsewhere_turn_counters_off_and_never_the_transfer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    half = worker()
    half.xfer_stats.data = {}
    with caplog.at_level(logging.WARNING):
        assert half._pop_done_transfers({"r0": [1]}) == (set(), set())
    assert caplog.text.count("are off after an error") == 1


def test_the_cost_is_told_by_part() -> None:
    half = worker()
    half.done = {1: (0.25, 1000)}
    half._pop_done_transfers({"r0": [1]})
    page = page_of(half.get_kv_connector_stats(), scheduler().get_kv_connector_stats())
    for part in ("worker", "scheduler"):
        assert page[f"pdops_plugin_cpu_seconds_total {part}"] > 0


@pytest.mark.parametrize(
    ("engine_id", "label"),
    [
        ("prefill-0", "prefill-0"),
        ("prefill-0.2", "prefill-0"),
        ("prefill-0.2_dp1", "prefill-0_dp1"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
def test_a_restart_makes_no_new_series(engine_id: str, label: str) -> None:
    assert plugin.peer(engine_id) == label


def test_internals_that_differ_are_named() -> None:
    class Other(WorkerDouble):
        def _nixl_handshake(self, address: str) -> str:  # type: ignore[override]
            return address

    class Less:
        def __init__(self, vllm_config: Any, engine_id: str, kv_cache_config: Any) -> None:
            pass

    assert plugin.differences(PARTS) == []
    assert plugin.differences({**PARTS, "worker": Other}) == ["Other._nixl_handshake takes (address)"]
    assert "Less has no request_finished" in plugin.differences({**PARTS, "scheduler": Less})


def test_without_the_engine_loading_says_so_and_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        plugin.register()
    assert "could not be registered" in caplog.text
    with pytest.raises(AttributeError):
        _ = plugin.Nothing


class BaseDouble:
    """What the stock connector stands on."""


class StockDouble(BaseDouble):
    """The stock connector."""


def test_statistics_travel_between_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_built", {})
    plugin._built[plugin.NAME] = plugin.make_connector(StockDouble, PARTS)
    stats = getattr(plugin, plugin.STATS)()
    stats.data[plugin.FAIL].append(["prefill-0", "decode-0"])
    assert pickle.loads(pickle.dumps(stats)).data == stats.data


def test_statistics_that_could_not_travel_are_found_before_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(StatsDouble):
        def __reduce__(self) -> Any:
            raise TypeError("cannot be sent")

    monkeypatch.setattr(plugin, "_built", {})
    with pytest.raises(TypeError, match="cannot be sent"):
        plugin.make_connector(StockDouble, {**PARTS, "stats": Stuck})
