"""Doubles of admin APIs on loopback: routers, LMCache's internal API, Mooncake's master, engines.

Bodies have the keys that the real programs were seen to answer with: sglang-router 0.3.2, vllm-router 0.1.17; those of LMCache
0.5.6 are taken from its source.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(eq=False)
class ApiDouble:
    """What it answers with, and the calls that came: method and path."""

    url: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    fails: int = 0

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return status and content."""
        return self.answers.get(f"{method} {urlsplit(path).path}", (404, {"error": "not found"}))

    @property
    def changes(self) -> list[tuple[str, str]]:
        """Calls that change something."""
        return [c for c in self.calls if c[0] != "GET"]


class EngineDouble(ApiDouble):
    """An engine that serves and counts requests in it."""

    def __init__(self, inflight: int = 0) -> None:
        super().__init__()
        self.answers = {
            "GET /v1/models": (200, {"data": [{"id": "m"}]}),
            "GET /metrics": (200, f"vllm:num_requests_running {inflight}\nvllm:num_requests_waiting 0\n"),
            "GET /openapi.json": (200, {"paths": {"/v1/models": {}}}),
        }


class PdopsRouterDouble(ApiDouble):
    """The admin API of `pdops router`."""

    def __init__(self, workers: dict[str, tuple[str, str]]) -> None:
        super().__init__()
        self.listed = {
            w: {"id": w, "role": r, "url": u, "cordoned": False, "up": True, "inflight": 0}
            for w, (r, u) in workers.items()
        }

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = path.split("/")
        if method == "GET":
            return 200, {"workers": list(self.listed.values())}
        if method == "POST" and len(parts) == 3:
            self.listed[body["id"]] = {**body, "cordoned": False, "up": True, "inflight": 0}
            return 201, {}
        if parts[3] not in self.listed:
            return 404, {}
        if method == "DELETE":
            del self.listed[parts[3]]
        else:
            self.listed[parts[3]]["cordoned"] = parts[4] == "cordon"
        return 200, {}


class VllmRouterDouble(ApiDouble):
    """vllm-router in its static prefill/decode mode: it lists addresses, removes, and adds none."""

    def __init__(self, workers: dict[str, tuple[str, str]]) -> None:
        super().__init__()
        self.listed = {url: role for role, url in workers.values()}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "GET":
            return 200, {
                "workers": [{"url": u, "role": r, "is_healthy": True, "load": 0} for u, r in self.listed.items()]
            }
        if method == "DELETE":
            self.listed.pop(unquote(path.removeprefix("/workers/")), None)
            return 200, {}
        return 400, {"error": "PD router requires specific add_prefill_server or add_decode_server methods"}


class SglangRouterDouble(ApiDouble):
    """sglang-router: ids of its own; additions and removals are jobs, done `late` looks later."""

    def __init__(self, workers: dict[str, tuple[str, str]], *, late: int = 0, port: int | None = None) -> None:
        super().__init__()
        self.late, self.takes = late, True
        self.listed = {
            str(uuid.uuid4()): self._entry(u, r, port if r == "prefill" else None) for r, u in workers.values()
        }
        self.jobs: list[list[Any]] = []

    @staticmethod
    def _entry(url: str, role: str, port: int | None) -> dict[str, Any]:
        more = {} if port is None else {"bootstrap_port": port}
        return {"url": url, "model_id": "m", "worker_type": role, "is_healthy": True, "load": 0, **more}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "GET":
            for job in list(self.jobs):
                job[0] -= 1
                if job[0] < 0:
                    self.jobs.remove(job)
                    job[1]()
            listed = [{"id": i, **w} for i, w in self.listed.items()]
            return 200, {"workers": listed, "total": len(listed), "stats": {"prefill_count": 0, "decode_count": 0}}
        fresh = str(uuid.uuid4())
        if method == "POST":
            entry = self._entry(body["url"], body["worker_type"], body.get("bootstrap_port"))
            if self.takes:
                self.jobs.append([self.late, lambda: self.listed.update({fresh: entry})])
            return 202, {"status": "accepted", "worker_id": fresh}
        gone = path.removeprefix("/workers/")
        if gone not in self.listed:
            return 404, {"code": "WORKER_NOT_FOUND"}
        self.jobs.append([self.late, lambda: self.listed.pop(gone)])
        return 202, {"status": "accepted", "worker_id": gone}


class LmcacheDouble(ApiDouble):
    """LMCache's internal API of one engine process."""

    def __init__(self, *backends: str) -> None:
        super().__init__()
        self.backends, self.bypassed = backends or ("LocalCPUBackend", "RemoteBackend"), set[str]()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(path)
        if method == "PUT":
            if self.fails:
                self.fails -= 1
                return 500, {"error": "told to fail"}
            name = parse_qs(parts.query)["backend_name"][0]
            if name not in self.backends:
                return 400, {"error": "Unknown backend"}
            (self.bypassed.add if parts.path == "/bypass/add" else self.bypassed.discard)(name)
        return 200, {
            "status": "success",
            "bypassed_backends": sorted(self.bypassed),
            "all_backends": list(self.backends),
        }


@contextlib.contextmanager
def serving(double: ApiDouble) -> Iterator[ApiDouble]:
    """Serve a double on a port the system gives out."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            double.calls.append((self.command, self.path))
            status, content = double.answer(self.command, self.path, body)
            raw = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815  names of http.server

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    double.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
