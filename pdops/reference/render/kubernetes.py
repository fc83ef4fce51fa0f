"""Render a deployment for Kubernetes: a Kustomize base, an example overlay, and one for RDMA."""

from __future__ import annotations

from typing import Any

from pdops.model.cluster import Role
from pdops.reference.render import accept, access, dashboards, operator, parts, readme, rules, workloads
from pdops.reference.render.labels import ENGINES, address
from pdops.reference.render.settings import ROUTER_PORT, Settings
from pdops.reference.render.text import document, documents
from pdops.reference.spec import DeploymentSpec

_KUSTOMIZATION = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}


def render(spec: DeploymentSpec, settings: Settings) -> dict[str, str]:
    """Return the files of a Kustomize tree by path.

    Raises:
        UsageError: see `accept.check`.
    """
    accept.check(spec, "kubernetes")
    manifests = {
        "serviceaccounts.yaml": access.accounts(spec),
        "services.yaml": access.services(spec, exporter=settings.exporter),
        "networkpolicies.yaml": access.network_policies(spec, exporter=settings.exporter),
        "prefill.yaml": [workloads.engines(spec, Role.PREFILL, settings)],
        "decode.yaml": [workloads.engines(spec, Role.DECODE, settings)],
        "disruption.yaml": access.disruption_budgets(spec),
        "monitoring.yaml": operator.pod_monitors(spec, exporter=settings.exporter),
        "rules.yaml": [operator.prometheus_rule(spec, rules.groups(spec, exporter=settings.exporter))],
    }
    if spec.router is not None:
        manifests["router.yaml"] = [workloads.router(spec, settings)]
    if spec.store is not None:
        manifests["store.yaml"] = [workloads.store(spec, settings)]
    if settings.exporter:
        manifests["exporter.yaml"] = [workloads.exporter(spec, settings)]
    data = {"gate.py": parts.gate_text(), "pdops.yaml": document(_inventory(spec))}
    if spec.store is not None:
        data["mooncake.json"] = parts.store_client(spec, address(spec.store.id))
    files = {f"base/{name}": documents(found) for name, found in sorted(manifests.items())}
    files |= {f"base/files/{name}": text for name, text in data.items()}
    if settings.exporter:
        files |= {f"base/dashboards/{name}": text for name, text in dashboards.files().items()}
    files["base/kustomization.yaml"] = document(_base(manifests, data, settings))
    files |= _example(spec, settings) | _rdma(spec, settings)
    files |= {f"images/{path}": text for path, text in parts.images(settings.images, spec).items()}
    files["README.md"] = readme.kubernetes(spec, settings)
    return files


def _inventory(spec: DeploymentSpec) -> dict[str, Any]:
    """Return the inventory, with what may be changed; the namespace is that of whoever reads it."""
    found = parts.inventory(spec, address)
    admin = {"url": f"http://router:{ROUTER_PORT}", "bearer_token_file": "/run/secrets/router_admin_token"}
    workers = [w | ({"admin": admin} if w["role"] == "router" else {}) for w in found["workers"]]
    pools = {role: f"StatefulSet/{role}" for role in ENGINES}
    store = {"store": "Deployment/store"} if spec.store is not None else {}
    operate = {"kubernetes": {"pools": pools, **store, "kv_lease_s": spec.lease_s}}
    return {**found, "workers": workers, "operate": operate}


def _base(manifests: dict[str, Any], data: dict[str, str], settings: Settings) -> dict[str, Any]:
    shown = dashboards.generators("dashboards") if settings.exporter else []
    return {
        **_KUSTOMIZATION,
        "resources": sorted(manifests),
        # The generator puts a hash into the name, so a change of these files restarts what reads them, one at a time.
        "configMapGenerator": [{"name": "pdops-files", "files": [f"files/{name}" for name in data]}, *shown],
    }


def _example(spec: DeploymentSpec, settings: Settings) -> dict[str, str]:
    namespace = f"pdops-{spec.name}"
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    metadata = {"name": namespace, "labels": labels}
    ours, _, tag = settings.images.pdops.rpartition(":")
    registry = "registry.example"
    images = [{"name": ours, "newName": f"{registry}/{ours}", "newTag": tag}]
    if spec.store is not None:
        store = "pdops-mooncake"
        images.append({"name": store, "newName": f"{registry}/{store}", "newTag": settings.images.mooncake})
    kustomization = {
        **_KUSTOMIZATION,
        "namespace": namespace,
        "resources": ["namespace.yaml", "allow-prometheus.yaml", "../../base"],
        "images": images,
        "patches": [{"path": "prefill.yaml"}, {"path": "decode.yaml"}],
    }
    files = {
        "kustomization.yaml": document(kustomization, readme.EXAMPLE),
        "namespace.yaml": document({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
        "allow-prometheus.yaml": document(access.allow_prometheus(spec, settings)),
    }
    for role in (Role.PREFILL, Role.DECODE):
        patch = workloads.patch(role, {"nodeSelector": {"nvidia.com/gpu.present": "true"}})
        files[f"{role.value}.yaml"] = document(patch)
    return {f"overlays/example/{name}": text for name, text in files.items()}


def _rdma(spec: DeploymentSpec, settings: Settings) -> dict[str, str]:
    # Pinning memory for RDMA takes this right where the container runtime limits locked memory.
    security = {"capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]}}
    wanted = {settings.rdma_resource: 1}
    engine = {"name": "engine", "securityContext": security, "resources": {"requests": wanted, "limits": wanted}}
    patches = {r: workloads.patch(r, {"containers": [engine]}) for r in (Role.PREFILL, Role.DECODE)}
    kustomization = {
        **_KUSTOMIZATION,
        "resources": ["../example"],
        "patches": [*({"path": f"{r.value}.yaml"} for r in patches), {"path": "namespace.yaml"}],
    }
    namespace = f"pdops-{spec.name}"
    labels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "warn")}
    room = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    files = {
        "kustomization.yaml": document(kustomization, readme.RDMA),
        "namespace.yaml": document(room),
        **{f"{r.value}.yaml": document(p) for r, p in patches.items()},
    }
    return {f"overlays/rdma/{name}": text for name, text in files.items()}
