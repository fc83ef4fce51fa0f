"""Objects of the Prometheus operator: what is scraped, and the rules."""

from __future__ import annotations

from typing import Any

from pdops.reference.render.labels import COMPONENT, ENGINES, metadata, selector
from pdops.reference.render.monitoring import SCRAPE_S
from pdops.reference.spec import DeploymentSpec

_API = "monitoring.coreos.com/v1"


def pod_monitors(spec: DeploymentSpec, *, exporter: bool) -> list[dict[str, Any]]:
    """Return what is scraped, with the labels that the rules ask for: cluster, role, worker."""
    label = "__meta_kubernetes_pod_label_" + COMPONENT.replace(".", "_").replace("/", "_")
    of_engines = [
        {"sourceLabels": [label], "targetLabel": "role"},
        {"sourceLabels": ["__meta_kubernetes_pod_name"], "targetLabel": "worker"},
    ]
    found = [_monitor(spec, "engines", ENGINES, of_engines)]
    if spec.router is not None:
        found.append(_monitor(spec, "router", ("router",), _named("router", spec.router.id), honor=True))
    if spec.store is not None:
        found.append(_monitor(spec, "store", ("store",), _named("kvstore", spec.store.id), port="metrics"))
    if exporter:
        found.append(_monitor(spec, "exporter", ("exporter",), _named("exporter", "exporter"), honor=True))
    return found


def prometheus_rule(spec: DeploymentSpec, rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules as the operator takes them."""
    return {
        "apiVersion": _API,
        "kind": "PrometheusRule",
        "metadata": metadata(spec, "pdops", "monitoring"),
        "spec": rules,
    }


def _named(role: str, worker: str) -> list[dict[str, Any]]:
    """Return fixed labels: a pod of a Deployment has a new name after each restart, its worker id stays."""
    return [{"targetLabel": "role", "replacement": role}, {"targetLabel": "worker", "replacement": worker}]


def _monitor(
    spec: DeploymentSpec,
    name: str,
    components: tuple[str, ...],
    named: list[dict[str, Any]],
    *,
    port: str = "http",
    honor: bool = False,
) -> dict[str, Any]:
    endpoint = {
        "port": port,
        "path": "/metrics",
        "interval": f"{SCRAPE_S}s",
        "scrapeTimeout": "5s",
        # The router's series name a worker themselves; that name is the one to keep.
        **({"honorLabels": True} if honor else {}),
        "relabelings": [*named, {"targetLabel": "cluster", "replacement": spec.name}],
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
