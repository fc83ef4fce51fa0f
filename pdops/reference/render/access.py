"""Who may reach whom, and who may do what: services, accounts, network policies, disruption budgets."""

from __future__ import annotations

from typing import Any

from pdops.reference.render import rbac
from pdops.reference.render.labels import ENGINES, metadata, routed, selector
from pdops.reference.render.settings import (
    API_PORT,
    EXPORTER_PORT,
    ROUTER_PORT,
    SIDE_PORT,
    STORE_METRICS_PORT,
    STORE_RPC_PORT,
    Settings,
)
from pdops.reference.spec import DeploymentSpec

Object = dict[str, Any]


def accounts(spec: DeploymentSpec) -> list[Object]:
    """Return one account without any right for what serves, one that may only look, and one that may change pools."""
    metas = [metadata(spec, name, "access") for name in ("pdops-serving", rbac.READER, rbac.OPERATOR)]
    made = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": m, "automountServiceAccountToken": False}
        for m in metas
    ]
    return [*made, *rbac.roles(spec)]


def services(spec: DeploymentSpec, *, exporter: bool) -> list[Object]:
    """Return a headless service per pool, which gives each worker a name, and one each for router, store, exporter."""
    found = [_service(spec, pool, {"http": API_PORT, "side-channel": SIDE_PORT}, headless=True) for pool in ENGINES]
    if spec.router is not None:
        found.append(_service(spec, "router", {"http": ROUTER_PORT}))
    if spec.store is not None:
        found.append(_service(spec, "store", {"rpc": STORE_RPC_PORT, "metrics": STORE_METRICS_PORT}, headless=True))
    if exporter:
        found.append(_service(spec, "exporter", {"http": EXPORTER_PORT}))
    return found


def disruption_budgets(spec: DeploymentSpec) -> list[Object]:
    """Return how many workers an eviction may take: one, and never the last of a pool."""
    pools = {"prefill": len(spec.prefills()), "decode": len(spec.decodes())}
    if spec.router is not None:
        pools["router"] = 1
    return [_budget(spec, pool, count) for pool, count in pools.items()]


def network_policies(spec: DeploymentSpec, *, exporter: bool) -> list[Object]:
    """Return who may connect: nobody but by name; engines talk to each other on any port, because KV takes any."""
    prometheus = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}}
    engines = [_pods(spec, pool) for pool in ENGINES]
    router = [_pods(spec, "router")] if spec.router is not None else []
    readers = [prometheus, _pods(spec, "tools"), *([_pods(spec, "exporter")] if exporter else [])]
    found = [_policy(spec, "default-deny", selector(spec), [])]
    for pool in ENGINES:
        rules = [{"from": engines}, _from([*router, *readers], API_PORT)]
        found.append(_policy(spec, pool, selector(spec, pool), rules))
    if spec.router is not None:
        rules = [_from([{"podSelector": {}}], ROUTER_PORT)]
        found.append(_policy(spec, "router", selector(spec, "router"), rules))
    if spec.store is not None:
        rules = [_from(engines, STORE_RPC_PORT, STORE_METRICS_PORT), _from(readers, STORE_METRICS_PORT)]
        found.append(_policy(spec, "store", selector(spec, "store"), rules))
    if exporter:
        found.append(_policy(spec, "exporter", selector(spec, "exporter"), [_from([prometheus], EXPORTER_PORT)]))
    return found


def allow_prometheus(spec: DeploymentSpec, settings: Settings) -> Object:
    """Return the exception for a Prometheus that lives in another namespace."""
    where = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.monitoring_namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }
    ports = [API_PORT]
    ports += [ROUTER_PORT] if spec.router is not None else []
    ports += [STORE_METRICS_PORT] if spec.store is not None else []
    ports += [EXPORTER_PORT] if settings.exporter else []
    return _policy(spec, "allow-prometheus", selector(spec), [_from([where], *ports)])


def _service(spec: DeploymentSpec, component: str, ports: dict[str, int], *, headless: bool = False) -> Object:
    entries = [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()]
    body: Object = {"selector": selector(spec, component) | routed(spec, component), "ports": entries}
    if headless:
        body = {"clusterIP": "None", **body}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(spec, component, component),
        "spec": body,
    }


def _budget(spec: DeploymentSpec, pool: str, count: int) -> Object:
    limit = {"maxUnavailable": 1} if count > 1 else {"minAvailable": 1}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(spec, pool, pool),
        # A pod that is not ready serves nobody, so moving it away needs no budget.
        "spec": {
            **limit,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(spec, pool)},
        },
    }


def _policy(spec: DeploymentSpec, name: str, chosen: dict[str, str], ingress: list[Object]) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(spec, f"pdops-{name}", "access"),
        "spec": {"podSelector": {"matchLabels": chosen}, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _pods(spec: DeploymentSpec, component: str) -> Object:
    return {"podSelector": {"matchLabels": selector(spec, component)}}


def _from(peers: list[Object], *ports: int) -> Object:
    return {"from": peers, "ports": [{"protocol": "TCP", "port": p} for p in ports]}
