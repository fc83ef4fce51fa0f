"""Record what Debian's Prometheus and Alertmanager send: `python tests/respond/record.py fixtures/alertmanager/DATE`.

Two or three minutes; loopback only, ports from the system. Each body is kept as it came.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pdops.reference.profiles import free_ports

PATIENCE_S = 120.0
HOSTILE = "$(reboot); {{ .Labels }} '\"\\\n{0.__class__} ../../etc ☃"
Body = dict[str, Any]
ALERTMANAGER = {
    "route": {
        "receiver": "pdops",
        "group_by": ["alertname", "cluster"],
        "group_wait": "1s",
        "group_interval": "2s",
        "repeat_interval": "4s",
        "routes": [{"receiver": "few", "matchers": ['alertname="PDKvTransferFailing"']}],
    },
    "inhibit_rules": [
        {
            "source_matchers": ['alertname="PDPrefillWorkerDown"'],
            "target_matchers": ['severity="warning"'],
            "equal": ["cluster"],
        }
    ],
}
RULES = {
    "PDPrefillQueueing": "warning",
    "PDPrefillWorkerDown": "critical",
    "PDKvTransferFailing": "warning",
    "PDLoadSkew": "warning",
}


class Lab(ThreadingHTTPServer):
    """The page that is scraped, and the webhook; `values` are series by alert and worker, `status` is what is answered."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.values: dict[tuple[str, str], float] = {}
        self.status = 200
        self.got: list[tuple[int, bytes]] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def page(self) -> bytes:
        lines = []
        for (alert, worker), value in self.values.items():
            escaped = worker.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            lines.append(f'lab{{alert="{alert}",cluster="lab",worker="{escaped}"}} {value}\n')
        return "".join(lines).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Lab

    def do_GET(self) -> None:
        body = self.server.page()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.server.status, body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def free_port() -> int:
    return free_ports(1)[0]


@contextmanager
def program(folder: Path, name: str, port: int, *words: str) -> Iterator[None]:
    """Run a program until the block ends."""
    with (folder / f"{Path(name).name}.log").open("ab") as out:
        process = subprocess.Popen([name, *words], stdout=out, stderr=out, start_new_session=True)
    try:
        wait(lambda: _ready(port), f"{name} to be ready")
        yield
    finally:
        process.terminate()
        process.wait(20)


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait(condition: Callable[[], Any], what: str) -> Any:
    """Wait until something is so, and return it."""
    end = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.1)
    return found


class Recorder:
    """Plays scenes and keeps what is sent."""

    def __init__(self, lab: Lab, manager: int, out: Path) -> None:
        self.lab, self.manager, self.out = lab, manager, out

    def keep(self, name: str, wanted: Callable[[Body], bool], *, answered: int = 200) -> None:
        """Wait for a body that came from now on, and keep it."""
        begin = len(self.lab.got)

        def found() -> bytes | None:
            return next(
                (b for s, b in self.lab.got[begin:] if s == answered and wanted(json.loads(b))),
                None,
            )

        self.write(name, json.loads(wait(found, name)))

    def write(self, name: str, content: Any) -> None:
        (self.out / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        print(name, flush=True)

    def listed(self) -> list[Body]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.manager}/api/v2/alerts", timeout=10) as answer:
            found: list[Body] = json.loads(answer.read())
            return found

    def keep_list(self, name: str, wanted: Callable[[list[Body]], bool]) -> None:
        def found() -> list[Body] | None:
            listed = self.listed()
            return listed if wanted(listed) else None

        self.write(name, wait(found, name))

    def set(self, alert: str, worker: str, value: float) -> None:
        self.lab.values[alert, worker] = value

    def silence(self, alert: str) -> str:
        now = time.time()
        body = {
            "matchers": [{"name": "alertname", "value": alert, "isRegex": False, "isEqual": True}],
            "startsAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "endsAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 600)),
            "createdBy": "ada",
            "comment": "maintenance",
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.manager}/api/v2/silences",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.loads(answer.read())["silenceID"])

    def end_silence(self, silence: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{self.manager}/api/v2/silence/{silence}", method="DELETE")
        urllib.request.urlopen(request, timeout=10).close()


def alerts_of(body: Body, name: str) -> dict[str, str]:
    """Return worker to status of a body's alerts of one name."""
    return {a["labels"].get("worker", ""): a["status"] for a in body["alerts"] if a["labels"]["alertname"] == name}


def before_restart(r: Recorder) -> None:
    """Play everything that one Alertmanager sees."""
    queue = "PDPrefillQueueing"
    r.keep("watchdog", lambda b: "Watchdog" in str(b["groupLabels"]))
    r.set(queue, "prefill-0", 1)
    r.keep("fires", lambda b: alerts_of(b, queue) == {"prefill-0": "firing"})
    r.keep("repeats", lambda b: alerts_of(b, queue) == {"prefill-0": "firing"})
    r.set(queue, "prefill-1", 1)
    r.keep("group-grows", lambda b: len(alerts_of(b, queue)) == 2)
    r.set(queue, "prefill-0", 0)
    r.keep("one-resolved-one-fires", lambda b: alerts_of(b, queue) == {"prefill-0": "resolved", "prefill-1": "firing"})
    r.keep("group-shrinks", lambda b: alerts_of(b, queue) == {"prefill-1": "firing"})
    r.set(queue, "prefill-1", 0)
    r.keep("group-resolved", lambda b: alerts_of(b, queue) == {"prefill-1": "resolved"})
    r.set(queue, "prefill-0", 1)
    r.keep("fires-again", lambda b: alerts_of(b, queue) == {"prefill-0": "firing"})
    r.lab.status = 503
    r.keep("refused-first", lambda b: alerts_of(b, queue) == {"prefill-0": "firing"}, answered=503)
    r.keep("refused-again", lambda b: alerts_of(b, queue) == {"prefill-0": "firing"}, answered=503)
    # While nothing is taken, one alert fires and is resolved, and the other is resolved.
    r.set(queue, "prefill-1", 1)
    r.keep("fires-unheard", lambda b: alerts_of(b, queue).get("prefill-1") == "firing", answered=503)
    r.set(queue, "prefill-1", 0)
    r.keep("resolved-unheard", lambda b: alerts_of(b, queue).get("prefill-1") == "resolved", answered=503)
    r.set(queue, "prefill-0", 0)
    resolved = {"prefill-0": "resolved", "prefill-1": "resolved"}
    r.keep("all-resolved-unheard", lambda b: alerts_of(b, queue) == resolved, answered=503)
    r.lab.status = 200
    r.keep("resolved-while-down", lambda b: set(alerts_of(b, queue).values()) == {"resolved"})
    r.set(queue, "prefill-0", 1)
    r.keep("fires-once-more", lambda b: alerts_of(b, queue) == {"prefill-0": "firing"})
    silence = r.silence(queue)
    r.keep_list("api-silenced", lambda found: any(a["status"]["silencedBy"] for a in found))
    r.end_silence(silence)
    r.keep("fires-after-silence", lambda b: alerts_of(b, queue) == {"prefill-0": "firing"})
    for worker in ("decode-0", "decode-1", "decode-2"):
        r.set("PDKvTransferFailing", worker, 1)
    r.keep("truncated", lambda b: b["truncatedAlerts"] == 2)
    r.set("PDPrefillWorkerDown", "prefill-0", 1)
    r.keep("critical", lambda b: alerts_of(b, "PDPrefillWorkerDown") == {"prefill-0": "firing"})
    r.keep_list("api-inhibited", lambda found: any(a["status"]["inhibitedBy"] for a in found))
    r.set("PDPrefillWorkerDown", "prefill-0", 0)
    r.set("PDLoadSkew", HOSTILE, 1)
    r.keep("hostile-labels", lambda b: HOSTILE in alerts_of(b, "PDLoadSkew"))


def after_restart(r: Recorder) -> None:
    """Play what an Alertmanager does that was started anew."""
    queue = "PDPrefillQueueing"
    r.keep_list("api-after-restart", lambda found: any(a["labels"]["alertname"] == queue for a in found))
    r.keep("fires-after-restart", lambda b: alerts_of(b, queue) == {"prefill-0": "firing"})


def main() -> None:
    """Record all scenes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    lab = Lab()
    threading.Thread(target=lab.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        folder, manager, server = Path(name), free_port(), free_port()
        hook = f"http://127.0.0.1:{lab.port}/alerts"
        receivers = [
            {"name": "pdops", "webhook_configs": [{"url": hook, "send_resolved": True, "max_alerts": 0}]},
            {"name": "few", "webhook_configs": [{"url": hook, "send_resolved": True, "max_alerts": 1}]},
        ]
        (folder / "alertmanager.yml").write_text(json.dumps({**ALERTMANAGER, "receivers": receivers}))
        rules = [
            {
                "alert": alert,
                "expr": f'max by (cluster, worker) (lab{{alert="{alert}"}}) > 0',
                "labels": {"severity": severity},
                "annotations": {"summary": "{{ $labels.worker }} is at {{ $value }}"},
            }
            for alert, severity in RULES.items()
        ]
        rules.append({"alert": "Watchdog", "expr": "vector(1)", "labels": {"severity": "none"}})
        (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "lab", "rules": rules}]}))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{manager}"]}]}]},
            "scrape_configs": [{"job_name": "lab", "static_configs": [{"targets": [f"127.0.0.1:{lab.port}"]}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        alerting = [
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/alerts",
            f"--web.listen-address=127.0.0.1:{manager}",
            "--web.external-url=http://alertmanager:9093",
            "--web.route-prefix=/",
            "--cluster.listen-address=",
        ]
        measuring = [
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{server}",
            "--web.external-url=http://prometheus:9090",
            "--web.route-prefix=/",
        ]
        recorder = Recorder(lab, manager, out)
        with program(folder, "prometheus", server, *measuring):
            with program(folder, "prometheus-alertmanager", manager, *alerting):
                before_restart(recorder)
            with program(folder, "prometheus-alertmanager", manager, *alerting):
                after_restart(recorder)
    lab.shutdown()


if __name__ == "__main__":
    main()
