"""Which backend an inventory with `operate:` gives, and what it is told about addresses and mistakes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pdops.actuate.kubernetes import KubernetesBackend
from pdops.cli import main
from pdops.cli.backend_kubernetes import address
from pdops.cli.backends import backend_for
from pdops.cli.inputs import Inputs
from pdops.errors import ActionError, InventoryError, UsageError
from pdops.reference.render import Settings, render
from pdops.sources.inventory import load_inventory, parse_inventory
from tests.actuate.kubernetes_kit import RULES, Kit
from tests.reference.render.plans import plan

PAGES = {role: f"vllm-0.32.0-nixl/{role}-idle.prom" for role in ("prefill", "decode")}
WORKERS = """
version: 1
cluster: demo
workers:
  - {id: prefill-0, role: prefill, url: "http://prefill-0.prefill:8000", engine: vllm}
  - {id: decode-0, role: decode, url: "http://10.0.0.2:8000", engine: vllm}
"""
OPERATE = """
operate:
  kubernetes:
    kubeconfig: kubeconfig
    pools: {prefill: StatefulSet/prefill, decode: StatefulSet/decode}
    max_replicas: {prefill: 3}
"""


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    with Kit(tmp_path, RULES) as made:
        made.pools()
        made.api()
        yield made


def inputs(path: Path, text: str) -> Inputs:
    file = path / "pdops.yaml"
    file.write_text(text)
    return Inputs(
        configs=(file,), targets=(), prometheus=None, selector="{}", role_label="role", replay=None, case=None, interval_s=1.0
    )  # fmt: skip


def test_an_inventory_that_says_so_is_operated_on_kubernetes(kit: Kit, tmp_path: Path) -> None:
    backend = backend_for(inputs(tmp_path, WORKERS + OPERATE))
    assert isinstance(backend, KubernetesBackend)
    assert backend.name == f"kubernetes {kit.url} pd"
    state = backend.observe()
    assert state.get("pool/prefill/replicas").value == 2
    assert state.get("pool/prefill/free").value == 1
    assert "max_replicas for decode" in state.get("pool/decode/free").why
    assert "no router" in backend.capabilities().missing["router.add"]


def test_without_operate_nothing_of_kubernetes_is_touched(tmp_path: Path) -> None:
    assert backend_for(inputs(tmp_path, WORKERS)) is None


def test_a_context_that_does_not_exist_is_a_usage_error(kit: Kit, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be found") as caught:
        backend_for(inputs(tmp_path, WORKERS + OPERATE + "    context: other\n"))
    assert "kubectl" in caught.value.hint


def test_a_store_needs_one_kvstore_worker(kit: Kit, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which store"):
        backend_for(inputs(tmp_path, WORKERS + OPERATE + "    store: Deployment/store\n"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("pools: {prefill: DaemonSet/x}", "pattern|match"),
        ("pools: {router: Deployment/x}", "prefill"),
        ("pools: {prefill: StatefulSet/a, decode: StatefulSet/a}", "same workload"),
        ("pools: {prefill: StatefulSet/a}, max_replicas: {decode: 2}", "no pool"),
        ("pools: {prefill: StatefulSet/a}, max_replicas: {prefill: 0}", "1"),
        ("pools: {prefill: 'StatefulSet/a/../b'}", "pattern|match"),
        ("pools: {prefill: StatefulSet/a}, autoscalers: fight", "leave"),
        ("pools: {prefill: StatefulSet/a}, namespace: 'a b'", "pattern|match"),
        ("pools: {}", "at least one"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(wrong: str, says: str) -> None:
    with pytest.raises(InventoryError, match=says) as caught:
        parse_inventory(f"{WORKERS}operate: {{kubernetes: {{{wrong}}}}}\n")
    assert "pdops.yaml:" in str(caught.value)


def test_a_new_worker_is_where_its_pool_is_by_name() -> None:
    cluster = parse_inventory(WORKERS).cluster
    assert address(cluster, "prefill-7") == "http://prefill-7.prefill:8000"
    assert address(cluster, "decode-0") == "http://10.0.0.2:8000"
    with pytest.raises(ActionError, match="where it serves is not known"):
        address(cluster, "decode-1")


def test_the_rendered_inventory_says_how_it_is_operated(tmp_path: Path) -> None:
    files = render(plan(2, 2, store=True), "kubernetes", Settings())
    file = tmp_path / "pdops.yaml"
    file.write_text(files["base/files/pdops.yaml"])
    found = load_inventory(file)
    assert found.operate is not None
    assert found.operate.pools == {"prefill": "StatefulSet/prefill", "decode": "StatefulSet/decode"}
    assert found.operate.store == "Deployment/store"
    assert [a.url for a in found.admin.values()] == ["http://router:8080"]
    assert address(found.cluster, "decode-5") == "http://decode-5.decode:8000"


@contextmanager
def page_of(text: bytes) -> Iterator[str]:
    """Serve one metrics page, as a double of an engine."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_plan_of_the_command_names_pods_and_sizes(
    kit: Kit, tmp_path: Path, page: Callable[[str], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    workers = [f"{role}-{n}" for role in ("prefill", "decode") for n in range(2)]
    with ExitStack() as open_:
        urls = {w: open_.enter_context(page_of(page(PAGES[w.rpartition("-")[0]]))) for w in workers}
        lines = "\n".join(
            f"  - {{id: {w}, role: {w.rpartition('-')[0]}, url: '{url}', engine: vllm}}" for w, url in urls.items()
        )
        file = tmp_path / "pdops.yaml"
        file.write_text(f"version: 1\ncluster: demo\nworkers:\n{lines}\n{OPERATE}")
        words = [
            "runbook",
            "plan",
            "restart-worker",
            "--set",
            "worker=decode-0",
            "-c",
            str(file),
            "--for",
            "2",
            "--json",
        ]
        with pytest.raises(SystemExit) as ended:
            main(words)
    plan = json.loads(capsys.readouterr().out)
    assert ended.value.code == 6
    assert plan["backend"] == f"kubernetes {kit.url} pd"
    steps = {s["id"]: s for s in plan["steps"]}
    assert (steps["restart"]["subject"], steps["restart"]["before"], steps["restart"]["target"]) == (
        "worker/decode-0/starts",
        1,
        2,
    )
    assert any("cordon: not offered: worker.cordon: the account may not list services" in r for r in plan["reasons"])
    assert not [c for c in kit.double.calls if c[0] in ("create", "update", "patch", "delete")]
