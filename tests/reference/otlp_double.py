"""A double of an OpenTelemetry Collector: takes OTLP over HTTP and writes each export as a line of OTLP/JSON.

It stands for the receiver `otlp` and the exporter `file`, and checks nothing.
"""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(eq=False)
class CollectorDouble:
    """Where to export to, the file that grows, and the paths that were asked."""

    url: str
    file: Path
    paths: list[str] = field(default_factory=list)


@contextlib.contextmanager
def collecting(file: Path) -> Iterator[CollectorDouble]:
    """Serve on a loopback port the system gives out."""
    file.touch()
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            double.paths.append(self.path)
            if self.path == "/v1/traces":
                line = json.dumps(MessageToDict(ExportTraceServiceRequest.FromString(body)))
                with lock, file.open("a", encoding="utf-8") as out:
                    out.write(line + "\n")
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    double = CollectorDouble(f"http://127.0.0.1:{server.server_address[1]}", file)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
