"""Names and labels of Kubernetes objects."""

from __future__ import annotations

from pdops.actuate.kubernetes_model import ROUTED
from pdops.reference.spec import DeploymentSpec

COMPONENT = "app.kubernetes.io/component"
ENGINES = ("prefill", "decode")


def selector(spec: DeploymentSpec, component: str | None = None) -> dict[str, str]:
    """Return the labels that select the pods of a deployment, or of one component of it."""
    found = {"app.kubernetes.io/name": "pdops", "app.kubernetes.io/instance": spec.name}
    return found if component is None else {**found, COMPONENT: component}


def labels(spec: DeploymentSpec, component: str) -> dict[str, str]:
    """Return the labels of an object; engines also carry the role label that other tools look for."""
    role = {"llm-d.ai/role": component} if component in ENGINES else {}
    return {**selector(spec, component), **role}


def routed(spec: DeploymentSpec, component: str) -> dict[str, str]:
    """Return the label by which a Service chooses workers, where no router does: without it a worker is cordoned."""
    return {ROUTED: "true"} if spec.router is None and component in ENGINES else {}


def metadata(spec: DeploymentSpec, name: str, component: str) -> dict[str, object]:
    """Return an object's metadata; the namespace is the overlay's to choose."""
    return {"name": name, "labels": labels(spec, component)}


def address(worker: str) -> str:
    """Return the name a worker has inside its namespace: replicas have one each, below their service."""
    pool = worker.rpartition("-")[0]
    return f"{worker}.{pool}" if pool in ENGINES else pool
