"""What a backend makes of a router that can only remove: nothing that could not be taken back is called a cordon."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from pdops.actuate.backend import Fence
from pdops.actuate.router_admin import PdopsRouter, RouterBackend, VllmRouter
from pdops.clock import VirtualClock
from pdops.errors import ActionError
from pdops.reference import pages

P, D = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
WORKERS = {"prefill-0": ("prefill", P), "decode-0": ("decode", D)}


class DoubleVllmRouter(http.server.ThreadingHTTPServer):
    """Lists workers and removes them, as vllm-router does in its static prefill/decode mode; it adds none."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.urls = {P: "prefill", D: "decode"}
        self.cuts_off = False


class _Handler(http.server.BaseHTTPRequestHandler):
    server: DoubleVllmRouter

    def do_GET(self) -> None:
        workers = [{"url": u, "role": r, "is_healthy": True, "load": 0} for u, r in self.server.urls.items()]
        self._say(200, {"workers": workers} if self.path == "/workers" else {})

    def do_DELETE(self) -> None:
        from urllib.parse import unquote

        self.server.urls.pop(unquote(self.path.removeprefix("/workers/")), None)
        self._say(200, {})

    def _say(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) + (100 if self.server.cuts_off else 0)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def router() -> Iterator[DoubleVllmRouter]:
    double = DoubleVllmRouter()
    thread = threading.Thread(target=double.serve_forever, daemon=True)
    thread.start()
    yield double
    double.shutdown()
    double.server_close()
    thread.join()


def _backend(router: DoubleVllmRouter) -> RouterBackend:
    url = f"http://127.0.0.1:{router.server_address[1]}"
    return RouterBackend(VllmRouter(url, {P: "prefill-0", D: "decode-0"}), WORKERS, VirtualClock())


def test_vllm_router_offers_removal_and_says_why_it_has_no_cordon(router: DoubleVllmRouter) -> None:
    offers = _backend(router).capabilities()
    assert offers.refusal("router.remove") is None
    for action in ("worker.cordon", "worker.uncordon", "router.add"):
        assert "cannot take a worker back" in (offers.refusal(action) or "")
    assert "cannot change it" in (offers.refusal("router.policy") or "")


def test_vllm_router_removes_once_and_it_is_seen(router: DoubleVllmRouter) -> None:
    backend = _backend(router)
    asked, fence = {"worker": "decode-0"}, Fence("run", 1)
    assert backend.observe().get("worker/decode-0/routed").value is True
    assert backend.apply("router.remove", asked, fence).changed
    assert not backend.apply("router.remove", asked, fence).changed
    assert backend.observe().get("worker/decode-0/routed").value is False
    with pytest.raises(ActionError, match=r"worker\.cordon is not offered"):
        backend.apply("worker.cordon", {"worker": "prefill-0"}, fence)


def test_what_no_router_answers_is_unknown_not_absent() -> None:
    backend = RouterBackend(PdopsRouter("http://127.0.0.1:9", None), WORKERS, VirtualClock())
    seen = backend.observe().get("worker/decode-0/routed")
    assert (seen.known, "does not answer" in seen.why) == (False, True)
    assert "does not answer" in (backend.capabilities().refusal("worker.cordon") or "")


def test_a_worker_that_the_inventory_does_not_name_is_refused(router: DoubleVllmRouter) -> None:
    with pytest.raises(ActionError, match="no such worker"):
        _backend(router).apply("router.remove", {"worker": "somebody"}, Fence("run", 1))


def test_an_answer_that_is_cut_off_is_unknown_not_a_traceback(router: DoubleVllmRouter) -> None:
    router.cuts_off = True
    backend = _backend(router)
    seen = backend.observe().get("worker/decode-0/routed")
    assert (seen.known, "does not answer" in seen.why) == (False, True)
    with pytest.raises(OSError, match="100 more"):
        pages.get(f"http://127.0.0.1:{router.server_address[1]}/workers", 2.0)
