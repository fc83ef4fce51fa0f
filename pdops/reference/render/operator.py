"""Objects of the Prometheus operator: what is scraped, and the rules."""

from __future__ import annotations

from typing import Any

from pdops.reference.render.labels import COMPONENT, ENGINES, metadata, selector
from pdops.reference.render.monitoring import SCRAPE_S
from pdops.reference.spec import DeploymentSpec

_API = "monitoring.coreos.com/v1"
_ROLES = {"store": "kvstore"}


def pod_monitors(spec: DeploymentSpec, *, exporter: bool) -> list[dict[str, Any]]:
    """Return what is scraped, with the labels that the rules ask for: cluster, role, worker."""
    found = [_monitor(spec, "engines", ENGINES)]
    if spec.router is not None:
        found.append(_monitor(spec, "router", ("router",), honor=True))
    if spec.store is not None:
        found.append(_monitor(spec, "store", ("store",)))
    if exporter:
        found.append(_monitor(spec, "exporter", ("exporter",), honor=True))
    return found


def prometheus_rule(spec: DeploymentSpec, rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules as the operator takes them."""
    return {
        "apiVersion": _API,
        "kind": "PrometheusRule",
        "metadata": metadata(spec, "pdops", "monitoring"),
        "spec": rules,
    }


def _monitor(spec: DeploymentSpec, name: str, components: tuple[str, ...], *, honor: bool = False) -> dict[str, Any]:
    role: dict[str, Any]
    if len(components) > 1:
        label = "__meta_kubernetes_pod_label_" + COMPONENT.replace(".", "_").replace("/", "_")
        role = {"sourceLabels": [label], "targetLabel": "role"}
    else:
        role = {"targetLabel": "role", "replacement": _ROLES.get(components[0], components[0])}
    # A pod of a Deployment has a new name after each restart; its worker id stays.
    worker: dict[str, Any] = {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "worker"}
    if components not in (ENGINES, ("store",)):
        worker = {"targetLabel": "worker", "replacement": "router-0" if components[0] == "router" else components[0]}
    endpoint = {
        "port": "metrics" if components == ("store",) else "http",
        "path": "/metrics",
        "interval": f"{SCRAPE_S}s",
        "scrapeTimeout": "5s",
        **({"honorLabels": True} if honor else {}),
        "relabelings": [role, worker, {"targetLabel": "cluster", "replacement": spec.name}],
        "metricRelabelings": [{"sourceLabels": ["__name__"], "regex": ".+_created", "action": "drop"}],
    }
    chosen = {
        "matchLabels": selector(spec),
        "matchExpressions": [{"key": COMPONENT, "operator": "In", "values": list(components)}],
    }
    return {
        "apiVersion": _API,
        "kind": "PodMonitor",
        "metadata": metadata(spec, f"pdops-{name}", "monitoring"),
        "spec": {"selector": chosen, "podMetricsEndpoints": [endpoint]},
    }
