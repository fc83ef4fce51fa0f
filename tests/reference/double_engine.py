"""A double of the engine environment's Python: serves a model's name and a page of metrics, moves no KV.

    double_engine.py -m vllm.entrypoints.openai.api_server --host=… --port=… …

$DOUBLE_SAYS makes it end while starting, with that text in its log; $DOUBLE_RUNNING is the number of requests it reports.
"""

from __future__ import annotations

import http.server
import json
import os
import sys
from pathlib import Path


def option(name: str) -> str:
    """Return an option of the command line."""
    return next(a.partition("=")[2] for a in sys.argv if a.startswith(f"--{name}="))


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers like an engine that has loaded its model."""

    def do_GET(self) -> None:
        running = os.environ.get("DOUBLE_RUNNING", "0")
        pages = {
            "/health": "fine",
            "/v1/models": json.dumps({"data": [{"id": option("served-model-name")}]}),
            "/metrics": "vllm:nixl_bytes_transferred_sum 0\n"
            f"vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n",
        }
        body = pages.get(self.path, "").encode()
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def main() -> None:
    """Be an engine, or what else the deployment runs with that Python."""
    script = Path(sys.argv[1]).name
    if script == "model.py":
        folder = Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("model.safetensors", "config.json"):
            (folder / name).write_text("{}")
    elif script == "transport_check.py":
        print(json.dumps({"ok": True, "state": "DONE", "bytes": 1 << 20, "seconds": 0.01}))
    elif says := os.environ.get("DOUBLE_SAYS"):
        print(says, flush=True)
        sys.exit(1)
    else:
        http.server.ThreadingHTTPServer((option("host"), int(option("port"))), Handler).serve_forever()


if __name__ == "__main__":
    main()
