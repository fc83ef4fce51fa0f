"""A double of whoever takes webhooks: an HTTP server on loopback that records what it is sent and answers as it is told."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class ReceiverDouble:
    """Where it is, what it got, and the statuses it answers with in turn; 200 after them."""

    url: str = ""
    got: list[dict] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    location: str = ""


@contextlib.contextmanager
def receiving() -> Iterator[ReceiverDouble]:
    """Serve on a port the system gives out."""
    double = ReceiverDouble()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            double.paths.append(self.path)
            status = double.statuses.pop(0) if double.statuses else 200
            if status == 200:
                double.got.append(json.loads(body))
            self.send_response(status)
            if double.location:
                self.send_header("Location", double.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

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
