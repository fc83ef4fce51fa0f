"""sglang-router, stores and engines: what their own APIs let anybody change, and what is refused with which reason."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from pdops.actuate.admin_http import AdminHttp
from pdops.actuate.engine_admin import DEVELOPER_ONLY, EngineAdmin
from pdops.actuate.engine_page import EnginePage
from pdops.actuate.sglang_router import SETTLE_S, SglangRouter
from pdops.actuate.stores import LmcacheBypass, MooncakeMaster
from pdops.clock import VirtualClock
from pdops.errors import ActionError
from tests.actuate import api_doubles as apis


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


class _Routed:
    """A sglang-router with one prefill and one decode worker."""

    def __init__(self, stack: ExitStack, **more: Any) -> None:
        self.engines = {w: stack.enter_context(apis.serving(apis.EngineDouble())) for w in ("prefill-0", "decode-0")}
        self.urls = {w: e.url for w, e in self.engines.items()}
        self.double = apis.SglangRouterDouble({w: (w.partition("-")[0], u) for w, u in self.urls.items()}, **more)
        stack.enter_context(apis.serving(self.double))
        self.clock = VirtualClock()
        ids = {u: w for w, u in self.urls.items()}
        self.router = SglangRouter(self.double.url, ids, self.clock, self.clock.advance)

    def set(self, action: str, worker: str) -> bool:
        return self.router.set(action, worker, worker.partition("-")[0], self.urls[worker]).changed


def test_what_is_cordoned_is_put_back_when_the_router_has_done_its_jobs(stack: ExitStack) -> None:
    routed = _Routed(stack, late=3)
    assert routed.set("worker.cordon", "decode-0")
    assert set(routed.router.workers()) == {"prefill-0"}
    assert routed.set("worker.uncordon", "decode-0")
    assert (set(routed.router.workers()), routed.set("worker.uncordon", "decode-0")) == (
        {"prefill-0", "decode-0"},
        False,
    )


def test_a_job_that_is_never_done_is_an_error_in_bounded_time(stack: ExitStack) -> None:
    routed = _Routed(stack)
    routed.set("worker.cordon", "decode-0")
    routed.double.takes = False
    with pytest.raises(ActionError, match="did not take decode-0"):
        routed.set("worker.uncordon", "decode-0")
    assert SETTLE_S <= routed.clock.monotonic() < SETTLE_S + 2


def test_a_prefill_worker_is_put_back_with_the_bootstrap_port_its_engine_tells(stack: ExitStack) -> None:
    routed = _Routed(stack, port=9001)
    routed.engines["prefill-0"].answers["GET /get_server_info"] = (200, {"disaggregation_bootstrap_port": 9001})
    routed.set("worker.cordon", "prefill-0")
    routed.set("worker.uncordon", "prefill-0")
    (entry,) = [w for w in routed.double.listed.values() if w["worker_type"] == "prefill"]
    assert entry["bootstrap_port"] == 9001


@pytest.mark.parametrize("told", [None, {"disaggregation_bootstrap_port": 8998}, {"x": 1}])
def test_a_prefill_worker_that_could_not_be_put_back_is_not_cordoned(stack: ExitStack, told: dict | None) -> None:
    routed = _Routed(stack, port=9001)
    if told is not None:
        routed.engines["prefill-0"].answers["GET /get_server_info"] = (200, told)
    with pytest.raises(ActionError, match="could not be put back"):
        routed.set("worker.cordon", "prefill-0")
    assert routed.double.changes == []
    assert routed.set("router.remove", "prefill-0")


def test_another_router_is_not_taken_for_a_sglang_router(stack: ExitStack) -> None:
    other = stack.enter_context(apis.serving(apis.VllmRouterDouble({"decode-0": ("decode", "http://10.0.0.1:1")})))
    clock = VirtualClock()
    offers = SglangRouter(other.url, {}, clock, clock.advance).capabilities()
    assert offers.offered == frozenset()
    assert "makes no sense" in (offers.refusal("worker.cordon") or "")


def _lmcache(stack: ExitStack, *doubles: apis.LmcacheDouble) -> LmcacheBypass:
    return LmcacheBypass("store-0", [stack.enter_context(apis.serving(d)).url for d in doubles])


def test_every_engine_process_leaves_the_store_out_and_uses_it_again(stack: ExitStack) -> None:
    doubles = [apis.LmcacheDouble() for _ in range(3)]
    store = _lmcache(stack, *doubles)
    store.apply("store.bypass", {"store": "store-0"})
    assert [d.bypassed for d in doubles] == [{"RemoteBackend"}] * 3
    store.apply("store.use", {"store": "store-0"})
    assert (store.values()["store/store-0/bypassed"].value, doubles[0].bypassed) == (False, set())


def test_a_bypass_that_failed_half_way_is_neither_on_nor_off_and_is_completed_later(stack: ExitStack) -> None:
    good, bad = apis.LmcacheDouble(), apis.LmcacheDouble()
    bad.fails = 1
    store = _lmcache(stack, good, bad)
    with pytest.raises(ActionError, match="says 500"):
        store.apply("store.bypass", {"store": "store-0"})
    assert store.values()["store/store-0/bypassed"].value == "partly"
    assert store.apply("store.bypass", {"store": "store-0"}).changed
    assert (store.values()["store/store-0/bypassed"].value, len(good.changes)) == (True, 1)


def test_an_engine_without_that_backend_is_said_with_those_it_has(stack: ExitStack) -> None:
    store = _lmcache(stack, apis.LmcacheDouble("LocalCPUBackend", "NixlStorageBackend"))
    why = store.capabilities().refusal("store.bypass") or ""
    assert ("no backend RemoteBackend" in why, "NixlStorageBackend" in why) == (True, True)


def test_mooncake_offers_nothing_says_why_and_is_asked_whether_it_is_well(stack: ExitStack) -> None:
    double = apis.ApiDouble()
    double.answers = {"GET /health": (200, "OK")}
    stack.enter_context(apis.serving(double))
    store = MooncakeMaster("store-0", double.url)
    assert store.values()["store/store-0/serving"].value is True
    assert "no switch" in (store.capabilities().refusal("store.bypass") or "")
    double.answers = {}
    assert store.values()["store/store-0/serving"].value is False
    with pytest.raises(ActionError, match="is not offered"):
        store.apply("store.bypass", {"store": "store-0"})


def _engine(stack: ExitStack, *paths: str) -> apis.EngineDouble:
    double = apis.EngineDouble()
    double.answers["GET /openapi.json"] = (200, {"paths": {p: {} for p in ("/v1/models", *paths)}})
    double.answers["POST /flush_cache"] = (200, "flushed")
    stack.enter_context(apis.serving(double))
    return double


@pytest.mark.parametrize("path", DEVELOPER_ONLY)
def test_switches_of_developer_mode_are_never_used(stack: ExitStack, path: str) -> None:
    double = _engine(stack, path)
    admin = EngineAdmin({"decode-0": double.url})
    assert "developer mode" in (admin.capabilities().refusal("worker.drop-cache") or "")
    with pytest.raises(ActionError, match="is not offered"):
        admin.apply("worker.drop-cache", {"worker": "decode-0"})
    assert double.changes == []


def test_a_cache_is_dropped_where_the_engine_offers_it_and_only_there(stack: ExitStack) -> None:
    sglang, vllm = _engine(stack, "/flush_cache"), _engine(stack)
    admin = EngineAdmin({"prefill-0": sglang.url, "decode-0": vllm.url})
    assert admin.capabilities().refusal("worker.drop-cache") is None
    assert admin.apply("worker.drop-cache", {"worker": "prefill-0"}).changed
    assert sglang.changes == [("POST", "/flush_cache")]
    with pytest.raises(ActionError, match="is not offered"):
        admin.apply("worker.drop-cache", {"worker": "decode-0"})


def test_a_busy_engine_that_drops_nothing_is_an_error(stack: ExitStack) -> None:
    double = _engine(stack, "/flush_cache")
    double.answers["POST /flush_cache"] = (400, "requests are running")
    with pytest.raises(ActionError, match="says 400"):
        EngineAdmin({"prefill-0": double.url}).apply("worker.drop-cache", {"worker": "prefill-0"})


def test_an_engine_that_does_not_tell_what_it_offers_offers_nothing() -> None:
    why = EngineAdmin({"decode-0": "http://127.0.0.1:9"}).capabilities().refusal("worker.drop-cache") or ""
    assert "cannot be read" in why


def test_a_page_that_is_too_large_counts_nothing(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning would say that fewer requests are in the engine than are."""
    monkeypatch.setattr("pdops.actuate.admin_http._LIMIT", 200)
    double = stack.enter_context(apis.serving(apis.EngineDouble(inflight=3)))
    assert EnginePage(double.url).look().inflight == 3
    status, page = double.answers["GET /metrics"]
    double.answers["GET /metrics"] = (status, page + 'vllm:num_requests_running{engine="1"} 5\n' * 9)
    said = EnginePage(double.url).look()
    assert (said.serving, said.inflight) == (True, None)
    assert "answers too much" in said.why


def test_an_answer_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdops.actuate.admin_http.WHOLE_S", 0.2)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        over = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                taken, _ = listener.accept()
                with taken:
                    taken.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    while not over.wait(0.05):
                        taken.sendall(b"1\r\nx\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(ActionError, match="timed out"):
                AdminHttp(f"http://127.0.0.1:{listener.getsockname()[1]}").ask("GET", "/")
        finally:
            over.set()
            thread.join()
