"""Rendered trees through the programs that read them: no cluster, no Docker daemon, no Prometheus server is needed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from pdops.reference.render import render, write
from tests.reference.render import plans

pytestmark = pytest.mark.real
SCHEMAS = Path(plans.__file__).parent / "schemas"
OVERLAYS = ("base", "overlays/example", "overlays/rdma")
OPERATOR = ("PodMonitor", "PrometheusRule")


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; .ci/install-services.sh does")
    return found


def run(*words: str, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(params=plans.PLANS)
def compose(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    spec, settings = plans.PLANS[request.param]
    write(render(spec, "compose", settings), tmp_path)
    return tmp_path


@pytest.fixture(params=plans.PLANS)
def kubernetes(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    spec, settings = plans.PLANS[request.param]
    write(render(spec, "kubernetes", settings), tmp_path)
    return tmp_path


def test_compose_reads_its_file(compose: Path) -> None:
    docker_compose = program("docker-compose")
    read = yaml.safe_load(run(docker_compose, "config", cwd=compose))
    given = yaml.safe_load((compose / "docker-compose.yml").read_text())
    assert set(read["services"]) == set(given["services"])
    # What it takes away while reading, such as a doubled dollar or a folded line, must not have changed a command.
    words = read["services"]["prefill-0"]["command"]
    config = next(w for w in words if w.startswith("--kv-transfer-config="))
    assert json.loads(config.partition("=")[2])["kv_role"] == "kv_producer"


def test_prometheus_and_alertmanager_read_theirs(compose: Path) -> None:
    said = run(program("promtool"), "check", "config", "prometheus/prometheus.yml", cwd=compose)
    assert "rules found" in said
    rules = [str(path) for path in sorted((compose / "prometheus/rules").iterdir())]
    run(program("promtool"), "check", "rules", *rules, cwd=compose)
    run(program("amtool"), "check-config", "alertmanager/alertmanager.yml", cwd=compose)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_builds_what_the_api_takes(kubernetes: Path, overlay: str) -> None:
    built = build(kubernetes, overlay)
    kinds = set()
    for found in built:
        kinds.add(found["kind"])
        if found["kind"] in OPERATOR:
            jsonschema.validate(found, json.loads((SCHEMAS / f"{found['kind']}.json").read_text()))
        else:
            kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)
    assert set(OPERATOR) | {"StatefulSet", "Deployment", "PodDisruptionBudget", "NetworkPolicy", "Role"} <= kinds


@pytest.mark.parametrize("overlay", OVERLAYS[1:])
def test_an_overlay_reaches_everything(kubernetes: Path, overlay: str) -> None:
    built = build(kubernetes, overlay)
    room = {f["metadata"].get("namespace") for f in built if f["kind"] != "Namespace"}
    assert room == {"pdops-demo"}
    pods = {f["metadata"]["name"]: f["spec"]["template"]["spec"] for f in built if f["kind"] == "StatefulSet"}
    assert set(pods) == {"prefill", "decode"}
    for pod in pods.values():
        assert pod["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
        limits = pod["containers"][0]["resources"]["limits"]
        assert limits.get("rdma/hca") == (1 if overlay.endswith("rdma") else None)
        assert "nvidia.com/gpu" in limits
    images = {
        c["image"] for f in built if f["kind"] == "Deployment" for c in f["spec"]["template"]["spec"]["containers"]
    }
    assert all(image.startswith("registry.example/") for image in images)


def test_files_of_pods_carry_their_hash(kubernetes: Path) -> None:
    built = build(kubernetes, "base")
    maps = {f["metadata"]["name"].partition("-")[2].partition("-")[0]: f for f in built if f["kind"] == "ConfigMap"}
    files = maps["files"]
    assert re.fullmatch(r"pdops-files-[a-z0-9]+", files["metadata"]["name"])
    for found in built:
        if found["kind"] == "StatefulSet":
            volumes = {v["name"]: v for v in found["spec"]["template"]["spec"]["volumes"]}
            assert volumes["files"]["configMap"]["name"] == files["metadata"]["name"]


@pytest.mark.parametrize("exporter", [True, False])
def test_alerts_of_both_kinds_are_the_same(exporter: bool) -> None:
    spec, settings = plans.PLANS["2p3d-tp2-store"]
    settings = replace(settings, exporter=exporter)
    compose = {p: t for p, t in render(spec, "compose", settings).items() if p.startswith("prometheus/rules/")}
    groups = [group for text in compose.values() for group in yaml.safe_load(text)["groups"]]
    found = yaml.safe_load(render(spec, "kubernetes", settings)["base/rules.yaml"])
    assert found["kind"] == "PrometheusRule"
    assert found["spec"] == {"groups": groups}


def test_alerts_on_engines_alone_fire_and_stay_silent(tmp_path: Path) -> None:
    spec, settings = plans.PLANS["2p3d-tp2-store"]
    files = render(spec, "compose", replace(settings, exporter=False))
    (tmp_path / "rules.yaml").write_text(files["prometheus/rules/pdops.yaml"])
    cases = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": [well(), *(c for c in broken())]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(cases))
    run(program("promtool"), "test", "rules", "test.yaml", cwd=tmp_path)


WORKERS = {"prefill": 2, "decode": 3, "router": 1, "kvstore": 1}
ROUTER = 'cluster="demo",role="router"'


def series(changes: dict[str, str]) -> dict[str, str]:
    """Make two hours of a sound cluster, by series, with some replaced; None in effect where the value is empty."""
    found = {}
    for role, count in WORKERS.items():
        for n in range(count):
            worker = f'cluster="demo",role="{role}",worker="{role.replace("kvstore", "store")}-{n}"'
            found[f"up{{{worker}}}"] = "1x240"
            if role in ("prefill", "decode"):
                found[f"vllm:num_requests_running{{{worker}}}"] = "1x240"
                found[f'vllm:num_requests_waiting_by_reason{{{worker},reason="capacity"}}'] = "0x240"
                found[f"vllm:kv_cache_usage_perc{{{worker}}}"] = "0.4x240"
                found[f"vllm:num_preemptions_total{{{worker}}}"] = "0x240"
                found[f"vllm:nixl_num_failed_transfers_total{{{worker}}}"] = "0x240"
                found[f"vllm:nixl_num_kv_expired_reqs_total{{{worker}}}"] = "0x240"
                found[f"vllm:nixl_num_notifications_after_expiry_total{{{worker}}}"] = "0x240"
                found[f"vllm:prompt_tokens_total{{{worker}}}"] = "0+1000x240"
                found[f'vllm:prompt_tokens_by_source_total{{{worker},source="local_compute"}}'] = "0+1x240"
                named = f'cluster="demo",role="router",worker="{role}-{n}"'
                found[f"pdops_router_worker_up{{{named}}}"] = "1x240"
    found[f'pdops_router_requests_total{{{ROUTER},outcome="ok"}}'] = "0+100x240"
    found[f'pdops_router_requests_total{{{ROUTER},outcome="empty"}}'] = "0x240"
    for name, edges in (("ttft", ("0.5", "1.0", "2.0", "+Inf")), ("itl", ("0.02", "0.05", "0.1", "+Inf"))):
        for edge in edges:
            found[f'pdops_router_{name}_seconds_bucket{{{ROUTER},le="{edge}"}}'] = "0+100x240"
    found |= changes
    return {name: values for name, values in found.items() if values}


def case(changes: dict[str, str], expected: dict[str, int], name: str) -> dict[str, Any]:
    """Make a case: at one hour exactly these alerts fire, by the number of their instances; the watchdog always does."""
    asked = 'count by (alertname) (ALERTS{alertstate="firing"})'
    wanted = {"PDWatchdog": 1, **expected}
    return {
        "name": name,
        "interval": "30s",
        "input_series": [
            {"series": s, "values": re.sub(r"^([\d.]+)x", r"\1+0x", v)} for s, v in series(changes).items()
        ],
        "promql_expr_test": [
            {
                "expr": asked,
                "eval_time": "1h",
                "exp_samples": [{"labels": f'{{alertname="{a}"}}', "value": n} for a, n in wanted.items()],
            }
        ],
    }


def well() -> dict[str, Any]:
    return case({}, {}, "a sound cluster")


def broken() -> list[dict[str, Any]]:
    p0, d1 = (f'cluster="demo",role="{r}",worker="{r}-{n}"' for r, n in (("prefill", 0), ("decode", 1)))
    rise = "0x110 1+0x130"
    steady = "0+2x240"
    none = {s: "" for s in series({}) if 'role="decode"' in s and s.startswith("vllm:")}
    slow = {
        f'pdops_router_{n}_seconds_bucket{{{ROUTER},le="{e}"}}': "0x240"
        for n, e in (("ttft", "0.5"), ("ttft", "1.0"), ("itl", "0.02"), ("itl", "0.05"))
    }
    return [
        case({f"vllm:nixl_num_notifications_after_expiry_total{{{p0}}}": rise}, {"PDKvReadAfterExpiry": 1}, "read late"),
        case({f"vllm:nixl_num_kv_expired_reqs_total{{{p0}}}": rise}, {"PDKvLeaseExpired": 1}, "lease"),
        case({f"vllm:nixl_num_failed_transfers_total{{{d1}}}": steady}, {"PDKvTransferFailing": 1}, "transfers"),
        case({f'vllm:prompt_tokens_by_source_total{{{d1},source="local_compute"}}': "0+200x240"}, {"PDSilentLocalPrefill": 1}, "local prefill"),
        case({f"vllm:kv_cache_usage_perc{{{d1}}}": "0.97x240"}, {}, "full, but nobody is preempted"),
        case({f"vllm:kv_cache_usage_perc{{{d1}}}": "0.97x240", f"vllm:num_preemptions_total{{{d1}}}": steady}, {"PDDecodeKvExhausted": 1}, "KV full"),
        case({f'vllm:num_requests_waiting_by_reason{{{p0},reason="capacity"}}': "4x240"}, {"PDPrefillQueueing": 1}, "queue"),
        case({f"up{{{p0}}}": "0x240"}, {"PDPrefillWorkerDown": 1}, "prefill down"),
        case({f"up{{{d1}}}": ""}, {"PDDecodeWorkerDown": 1}, "decode gone from discovery"),
        case(none, {"PDNoData": 1}, "decode tells nothing"),
        case({f'pdops_router_requests_total{{{ROUTER},outcome="empty"}}': "0+5x240"}, {"PDRequestsFailing": 1}, "empty answers"),
        case({'pdops_router_worker_up{cluster="demo",role="router",worker="decode-1"}': "0x240"}, {"PDRouterExcludesHealthy": 1}, "left out"),
        case(slow, {"PDTtftHigh": 1, "PDItlHigh": 1}, "slow"),
        case({'up{cluster="demo",role="kvstore",worker="store-0"}': ""}, {"PDKvStoreDown": 1}, "store gone"),
        case({f"vllm_num_requests_running{{{p0}}}": "1x240"}, {"PDMetricNamesEscaped": 1}, "escaped"),
        case({f"vllm:nixl_num_failed_transfers_total{{{d1}}}": "50x100 0x140"}, {}, "a counter that begins again"),
    ]  # fmt: skip


def build(tree: Path, overlay: str) -> list[dict[str, Any]]:
    """Build with the kubectl that is here. One older than 1.21 knows folders and patches by their former names, and no options of generators."""
    kubectl = program("kubectl")
    version = run(kubectl, "version", "--client", "-o", "json", cwd=tree)
    minor = int(re.sub(r"\D", "", json.loads(version)["clientVersion"]["minor"]))
    if minor < 21:
        for path in tree.rglob("overlays/*/kustomization.yaml"):
            found = yaml.safe_load(path.read_text())
            found["bases"] = [r for r in found["resources"] if not r.endswith(".yaml")]
            found["resources"] = [r for r in found["resources"] if r.endswith(".yaml")]
            found["patchesStrategicMerge"] = [p["path"] for p in found.pop("patches")]
            path.write_text(yaml.safe_dump(found))
        base = tree / "base/kustomization.yaml"
        found = yaml.safe_load(base.read_text())
        for generator in found["configMapGenerator"]:
            generator.pop("options", None)
        base.write_text(yaml.safe_dump(found))
    return list(yaml.safe_load_all(run(kubectl, "kustomize", overlay, cwd=tree)))
