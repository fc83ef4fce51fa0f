"""Workers as rendered Kubernetes YAML describes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.model.cluster import Role
from pdops.sources.facts.manifest import parse_documents, read_manifests
from pdops.sources.facts.manifestfile import ManifestError
from pdops.sources.facts.podfacts import quantity

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: qwen-prefill}
spec:
  template:
    metadata: {labels: {llm-d.ai/role: prefill}}
    spec:
      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 8Gi}}]
      containers:
        - name: vllm
          image: registry.example:5000/vllm/vllm-openai:v0.32.0
          args: [org/m, "--max-model-len=$(LEN)", --kv-transfer-config, '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}']
          env:
            - {name: LEN, value: "4096"}
            - {name: UCX_TLS, value: "rc,cuda_copy"}
            - {name: VLLM_NIXL_SIDE_CHANNEL_HOST, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
            - {name: VLLM_API_KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}
          envFrom: [{configMapRef: {name: shared}}]
          resources: {limits: {memory: 64Gi, nvidia.com/gpu: 1}}
          volumeMounts: [{name: shm, mountPath: /dev/shm}]
          securityContext: {capabilities: {add: [IPC_LOCK]}}
          readinessProbe: {httpGet: {path: /health, port: 8000}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: shared}
data: {PYTHONHASHSEED: "0"}
"""
LWS = """
kind: LeaderWorkerSet
metadata: {name: wide, labels: {role: decode}}
spec:
  leaderWorkerTemplate:
    workerTemplate:
      spec:
        hostPID: true
        containers:
          - {name: sidecar, image: proxy, args: [--port, "1"]}
          - name: vllm
            image: ghcr.io/llm-d/llm-d-cuda:v0.3.0
            command: [/bin/bash, -c]
            args: ["exec vllm serve org/m --block-size 64 --port ${PORT}"]
"""


def _write(folder: Path, *texts: str) -> list[Path]:
    paths = [folder / f"{n}.yaml" for n in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def test_a_deployment_is_read_with_its_config_map(tmp_path: Path) -> None:
    read = read_manifests(_write(tmp_path, DEPLOYMENT))
    (worker,) = read.cluster.workers
    assert (worker.id, worker.role, worker.version) == ("qwen-prefill", Role.PREFILL, "0.32.0")
    facts = read.collected.facts["qwen-prefill"]
    assert facts["model"] == "org/m"
    assert facts["max_model_len"] == "4096"
    assert facts["kv_role"] == "kv_producer"
    assert facts["PYTHONHASHSEED"] == "0"
    assert facts["UCX_TLS"] == "rc,cuda_copy"
    assert facts["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "$(status.podIP)"
    assert facts["host.shm_total_bytes"] == str(8 << 30)
    assert facts["host.memory_total_bytes"] == str(64 << 30)
    assert facts["host.memlock_bytes"] == "unlimited"
    assert facts["host.pid_namespace"] == "pod qwen-prefill"
    assert facts["readiness_probe"] == "httpGet /health"
    assert [(u.key, u.why) for u in read.collected.unread if not u.key.startswith(("host", "reach"))] == [
        ("VLLM_API_KEY", "it comes from secretKeyRef, which is not among these files")
    ]


def test_an_engine_behind_a_shell_and_a_side_car_is_found(tmp_path: Path) -> None:
    read = read_manifests(_write(tmp_path, LWS))
    (worker,) = read.cluster.workers
    facts = read.collected.facts[worker.id]
    assert worker.role is Role.DECODE
    assert facts["block_size"] == "64"
    assert facts["host.pid_namespace"] == "host"
    assert facts["host.shm_total_bytes"] == str(64 << 20)
    assert {u.key for u in read.collected.unread} == {"port", "version", "host.*", "reach.*"}


def test_lists_pods_and_names_make_workers_of_their_own(tmp_path: Path) -> None:
    pod = '{kind: Pod, metadata: {name: x}, spec: {containers: [{name: c, command: [vllm, serve, m, --kv-transfer-config, \'{"kv_role":"%s"}\']}]}}'
    text = f"kind: List\nitems: [{pod % 'kv_producer'}, {pod % 'kv_consumer'}]\n"
    router = (
        "{kind: Pod, metadata: {name: gate}, spec: {containers: [{name: c, command: [vllm-router, --policy, random]}]}}"
    )
    read = read_manifests(_write(tmp_path, text, router))
    assert [(w.id, w.role) for w in read.cluster.workers] == [
        ("x", Role.PREFILL),
        ("x-2", Role.DECODE),
        ("gate", Role.ROUTER),
    ]


def test_a_role_that_nothing_tells_is_said(tmp_path: Path) -> None:
    pod = "{kind: Pod, metadata: {name: x}, spec: {containers: [{name: c, command: [vllm, serve, m]}]}}"
    read = read_manifests(_write(tmp_path, pod))
    assert read.cluster.workers[0].role is Role.COLOCATED
    assert "nothing tells" in read.notes[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Service\n", "no workload runs an engine (found Service)"),
        ("a: {{ .Values.x }}\n", "not YAML"),
        ("a: [\n", "not YAML"),
        ("- 1\n", "found nothing"),
        ("a: !!python/object:os.system x\n", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("a: \x07\n", "not YAML"),
        ("kind: Deployment\nspec: 5\n", "no workload runs an engine"),
        ("kind: Pod\nspec: {containers: [1, {command: vllm}]}\n", "no workload runs an engine"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ManifestError) as raised:
        read_manifests(_write(tmp_path, text))
    assert why in raised.value.why
    assert raised.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no such file"):
        read_manifests([tmp_path / "none.yaml"])
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="not UTF-8"):
        read_manifests([tmp_path / "binary.yaml"])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("64Gi", 64 << 30),
        ("1G", 10**9),
        ("1.5Mi", 3 << 19),
        (5, 5),
        ("500m", 0),
        ("x", None),
        (None, None),
        ("1Gx", None),
    ],
)
def test_quantities(text: object, number: int | None) -> None:
    assert quantity(text) == number


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_CONTAINER = st.fixed_dictionaries(
    {"image": st.just("vllm/vllm-openai:v0.32.0"), "args": st.just(["m"]) | _ANY},
    optional=dict.fromkeys(
        ("command", "env", "envFrom", "resources", "volumeMounts", "securityContext", "readinessProbe"), _ANY
    ),
)
_POD = st.fixed_dictionaries(
    {"kind": st.just("Pod"), "spec": st.fixed_dictionaries({"containers": st.lists(_CONTAINER | _ANY, max_size=2)})},
    optional={"metadata": _ANY},
)


@given(_POD | st.dictionaries(st.sampled_from(["kind", "spec", "metadata", "data"]), _ANY))
def test_documents_of_any_shape_are_read_or_passed_over(document: dict[str, Any]) -> None:
    read = parse_documents([("x.yaml", document)], name="x")
    assert len(read.cluster.workers) <= 1
    assert all(isinstance(v, str) for facts in read.collected.facts.values() for v in facts.values())


def test_aliases_that_grow_without_end_are_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    rows += [
        "kind: Pod",
        "metadata: {name: decode}",
        "spec: {containers: [{image: 'vllm/vllm-openai:v0.32.0', args: *a11}]}",
    ]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(rows))
    with pytest.raises(ManifestError, match="too many values"):
        read_manifests([path])


def test_variables_that_grow_without_end_stay_as_they_are_written() -> None:
    env = [{"name": f"V{n}", "value": f"$(V{n - 1})" * 10 if n else "x" * 10} for n in range(12)]
    container = {"image": "vllm/vllm-openai:v0.32.0", "args": ["--model", "$(V11)"], "env": env}
    found = parse_documents(
        [("f", {"kind": "Pod", "metadata": {"name": "decode"}, "spec": {"containers": [container]}})], name="m"
    )
    assert "not known here" in next(u.why for u in found.collected.unread if u.key == "model")


def test_an_environment_read_in_part_is_not_taken_for_whole() -> None:
    container = {
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["m"],
        "env": [{"name": "UCX_TLS", "value": "rc"}],
        "envFrom": [{"secretRef": {"name": "tuning"}}],
    }
    pod = {"kind": "Pod", "metadata": {"name": "decode"}, "spec": {"containers": [container]}}
    read = parse_documents([("x.yaml", pod)], name="x")
    assert read.collected.facts["decode"]["environment"] == "partial"
