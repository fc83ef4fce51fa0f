"""The rendered trees: as written down, and true to what a drain and a start need."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdops.diagnose.checks import CHECKS
from pdops.errors import UsageError
from pdops.model.cluster import Role
from pdops.reference import engines
from pdops.reference.render import KINDS, Kind, Settings, alerts, dashboards, parts, render, rules
from pdops.reference.render.settings import SHUTDOWN_S
from pdops.reference.spec import DeploymentSpec, Profile, RouterSpec
from pdops.router.cli import command
from pdops.sources.inventory import load_inventory
from tests.reference.render.plans import PLANS, plan

GOLDENS = Path(__file__).parent / "goldens"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PLANS)
def test_trees_are_as_written_down(name: str, kind: Kind) -> None:
    files = dict(render(PLANS[name][0], kind, PLANS[name][1]))
    # A copy of a program that is linted where it is would be one more to keep.
    programs = [path for path in files if path.endswith("gate.py")]
    assert {files.pop(path) for path in programs} == {parts.gate_text()}
    # Nor one of rules that are made elsewhere.
    if PLANS[name][1].exporter:
        made = [path for path in files if "rules" in Path(path).name]
        texts = [files.pop(path) for path in made]
        assert texts == list(rules.shipped().values()) if kind == "compose" else len(texts) == 1
    shown = {
        Path(path).name: files.pop(path) for path in list(files) if "/dashboards/" in path and path.endswith(".json")
    }
    assert shown == (dashboards.files() if PLANS[name][1].exporter else {})
    root = GOLDENS / name / kind
    if os.environ.get("PDOPS_UPDATE"):
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
    found = {str(p.relative_to(root)): p.read_text(encoding="utf-8") for p in root.rglob("*") if p.is_file()}
    assert files == found


@pytest.mark.parametrize("kind", KINDS)
def test_same_plan_same_text(kind: Kind) -> None:
    assert render(plan(2, 2), kind) == render(plan(2, 2), kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: replace(s, profile=Profile.CPU), "cpu profile cannot be rendered"),
        (lambda s: replace(s, router=RouterSpec(port=1, kind="vllm-router")), "vllm-router cannot be rendered"),
        (lambda s: replace(s, engines=(*s.engines[:-1], replace(s.engines[-1], blocks=7))), "no replicas"),
        (lambda s: replace(s, engines=s.engines[1:]), "at least one engine of each role"),
        (lambda s: replace(s, engines=(replace(s.engines[0], id="p"), *s.engines[1:])), "must be called prefill-0"),
    ],
)
def test_what_would_never_start_is_refused(kind: Kind, spoil: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        render(spoil(plan(1, 2)), kind)
    assert caught.value.hint


def test_the_engine_of_a_container_is_the_one_up_starts() -> None:
    spec = plan(tp=2)
    engine = spec.engines[0]
    here, there = engines.command(spec, engine, Path("python3")), parts.engine_words(spec, engine)
    differ = {w.partition("=")[0] for w in set(here) ^ set(there)}
    assert differ == {"--host", "--port", "--kv-transfer-config"}
    config = json.loads(next(w for w in there if "kv-transfer" in w).partition("=")[2])
    assert config == {k: v for k, v in engines.kv_transfer(spec, engine).items() if k != "engine_id"}


def test_a_new_engine_id_at_each_start_with_a_store_too() -> None:
    spec = plan(store=True)
    assert "engine_id" not in json.dumps(parts.engine_words(spec, spec.engines[0]))


def test_the_router_understands_its_command_line() -> None:
    words = parts.router_words(replace(plan(2, 3), kv_bytes_per_token=1024, otlp_endpoint="http://o:4318"), lambda w: w)
    assert words[:3] == ["python3", "-m", "pdops.router"]
    context = command.make_context("pdops router", words[3:])
    assert context.params["prefills"] == ("prefill-0=http://prefill-0:8000", "prefill-1=http://prefill-1:8000")
    assert len(context.params["decodes"]) == 3
    assert not context.params["allow_drills"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_secret_no_root_no_privilege(kind: Kind) -> None:
    for path, text in render(*_args("2p3d-tp2-store", kind)).items():
        assert "privileged: true" not in text, path
        assert "hostNetwork" not in text, path
    pods = list(_pods()) if kind == "kubernetes" else []
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod.get("initContainers", []), *pod["containers"]):
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["readOnlyRootFilesystem"]


def test_compose_publishes_on_loopback_only() -> None:
    services = _compose()["services"]
    ports = [p for s in services.values() for p in s.get("ports", [])]
    assert len(ports) == 4
    assert all(p.startswith("127.0.0.1:") for p in ports)
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["read_only"], name
        assert "no-new-privileges:true" in service["security_opt"], name


def test_compose_starts_in_cold_start_order() -> None:
    services = _compose()["services"]
    healthy = {
        name: {k for k, v in service.get("depends_on", {}).items() if v["condition"] == "service_healthy"}
        for name, service in services.items()
    }
    assert healthy["prefill-1"] == {"store-0"}
    assert healthy["decode-2"] == {"store-0", "prefill-0", "prefill-1"}
    assert healthy["router-0"] == {"prefill-0", "prefill-1", "decode-0", "decode-1", "decode-2"}
    waited_for = set().union(*healthy.values())
    assert all("healthcheck" in services[name] for name in waited_for)


def test_gpus_of_a_host_are_given_once() -> None:
    services = _compose()["services"]
    given = [
        gpu
        for service in services.values()
        for device in service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        for gpu in device["device_ids"]
    ]
    assert sorted(given, key=int) == [str(n) for n in range(10)]


@pytest.mark.parametrize("lease_s", [30, 120])
def test_grace_covers_the_drain(lease_s: int) -> None:
    spec = replace(plan(1, 1), lease_s=lease_s)
    files = render(spec, "kubernetes")
    for role in (Role.PREFILL, Role.DECODE):
        pod = yaml.safe_load(files[f"base/{role.value}.yaml"])["spec"]["template"]["spec"]
        hook = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
        idle_s, linger_s = parts.drain_s(spec, role)
        assert f'"--deadline={idle_s}" "--linger={linger_s}"' in hook
        assert pod["terminationGracePeriodSeconds"] == idle_s + linger_s + SHUTDOWN_S
        assert linger_s == (lease_s * 3 // 2 if role is Role.PREFILL else 0)
    services = yaml.safe_load(render(spec, "compose")["docker-compose.yml"])["services"]
    assert services["prefill-0"]["stop_grace_period"] == f"{60 + lease_s * 3 // 2 + SHUTDOWN_S}s"


def test_a_local_model_is_mounted_where_it_is_named() -> None:
    spec = replace(plan(), model="/models/qwen$3")
    services = yaml.safe_load(render(spec, "compose")["docker-compose.yml"])["services"]
    assert "/models/qwen$$3:/models/qwen$$3:ro" in services["decode-0"]["volumes"]
    assert "--model=/models/qwen$$3" in services["decode-0"]["command"]
    pod = yaml.safe_load(render(spec, "kubernetes")["base/decode.yaml"])["spec"]["template"]["spec"]
    assert {"name": "model", "mountPath": "/models/qwen$3", "readOnly": True} in pod["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PLANS)
def test_the_inventory_is_one_that_pdops_reads(name: str, kind: Kind, tmp_path: Path) -> None:
    files = render(*_args(name, kind))
    path = tmp_path / "pdops.yaml"
    path.write_text(files["pdops.yaml" if kind == "compose" else "base/files/pdops.yaml"])
    cluster = load_inventory(path).cluster
    assert {w.id for w in cluster.workers} == set(PLANS[name][0].ids())
    assert cluster.slo.ttft_s == 1.0


def test_alerts_are_those_that_checks_name() -> None:
    spec = plan(store=True)
    found = [*alerts.engine_alerts(spec), *alerts.router_alerts(spec), *alerts.meta_alerts(spec)]
    by_check = {c.meta.id: c.meta.alert for c in CHECKS}
    for alert in found:
        if alert.check is not None:
            assert by_check[alert.check] == alert.name
    assert len({a.name for a in found}) == len(found)
    without = {a.name for a in found if a.check is None}
    assert without == {"PDRequestsFailing", "PDTtftHigh", "PDWatchdog"}


def test_each_dashboard_has_a_config_map_that_kubectl_can_apply() -> None:
    files = render(*_args("2p3d-tp2-store", "kubernetes"))
    generators = yaml.safe_load(files["base/kustomization.yaml"])["configMapGenerator"][1:]
    assert len(generators) == 6
    for generator in generators:
        (path,) = generator["files"]
        # kubectl keeps the applied object in an annotation, and annotations end at 256 KiB.
        assert len(json.dumps(files[f"base/{path}"])) < 200 * 1024
        assert generator["options"]["labels"] == {"grafana_dashboard": "1"}


def test_without_a_router_nothing_asks_for_one() -> None:
    spec = replace(plan(), router=None)
    for kind in KINDS:
        for path, text in render(spec, kind, Settings(exporter=False)).items():
            if not path.endswith(("README.md", "gate.py", "Dockerfile")):
                assert "router" not in text.replace("pdops explain router/", ""), (kind, path)


def _args(name: str, kind: Kind) -> tuple[DeploymentSpec, Kind, Settings]:
    spec, settings = PLANS[name]
    return spec, kind, settings


def _compose() -> Any:
    return yaml.safe_load(render(*_args("2p3d-tp2-store", "compose"))["docker-compose.yml"])


def _pods() -> Iterator[Any]:
    for path, text in render(*_args("2p3d-tp2-store", "kubernetes")).items():
        if path.startswith("base/") and path.endswith(".yaml") and "files/" not in path:
            for found in yaml.safe_load_all(text):
                if found["kind"] in ("StatefulSet", "Deployment"):
                    yield found["spec"]["template"]["spec"]
