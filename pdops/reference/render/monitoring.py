"""What Prometheus, Alertmanager and Grafana are provisioned with."""

from __future__ import annotations

from typing import Any

from pdops.reference.render import parts
from pdops.reference.render.settings import API_PORT, EXPORTER_PORT, ROUTER_PORT, STORE_METRICS_PORT
from pdops.reference.spec import DeploymentSpec

SCRAPE_S = 10
RELABEL = [{"source_labels": ["__name__"], "regex": ".+_created", "action": "drop"}]
"""Creation times double the number of series and no rule reads them."""


def prometheus(spec: DeploymentSpec, address: parts.Address, *, exporter: bool) -> dict[str, Any]:
    """Return Prometheus' configuration for a deployment on one container network."""

    def job(name: str, role: str, found: dict[str, str], *, honor: bool = False) -> dict[str, Any]:
        targets = [
            {"targets": [at], "labels": {"cluster": spec.name, "role": role, "worker": worker}}
            for worker, at in found.items()
        ]
        # The router's series name a worker themselves; that name is the one to keep.
        kept = {"honor_labels": True} if honor else {}
        return {"job_name": name, **kept, "static_configs": targets, "metric_relabel_configs": RELABEL}

    jobs = [
        job(f"pdops-{role}", role, {e.id: f"{address(e.id)}:{API_PORT}" for e in found})
        for role, found in (("prefill", spec.prefills()), ("decode", spec.decodes()))
    ]
    if spec.router is not None:
        at = f"{address(spec.router.id)}:{ROUTER_PORT}"
        jobs.append(job("pdops-router", "router", {spec.router.id: at}, honor=True))
    if spec.store is not None:
        jobs.append(job("pdops-store", "kvstore", {spec.store.id: f"{address(spec.store.id)}:{STORE_METRICS_PORT}"}))
    if exporter:
        jobs.append(job("pdops-exporter", "exporter", {"exporter": f"exporter:{EXPORTER_PORT}"}, honor=True))
    every = f"{SCRAPE_S}s"
    return {
        "global": {"scrape_interval": every, "scrape_timeout": "5s", "evaluation_interval": every},
        "rule_files": ["rules/*.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["alertmanager:9093"]}]}]},
        "scrape_configs": jobs,
    }


def alertmanager() -> dict[str, Any]:
    """Return Alertmanager's configuration: grouped, inhibited, and sent nowhere until a receiver is filled in."""
    return {
        "route": {
            "receiver": "nobody",
            "group_by": ["alertname", "cluster", "role"],
            "group_wait": "10s",
            "group_interval": "30s",
            "repeat_interval": "1h",
        },
        "inhibit_rules": [
            {
                "source_matchers": ['alertname=~"PDExporterStuck|PDPrefillWorkerDown|PDDecodeWorkerDown"'],
                "target_matchers": ['severity=~"warning|info"'],
                "equal": ["cluster"],
            },
            # One silent worker says nothing about the others.
            {
                "source_matchers": ['alertname="PDNoData"'],
                "target_matchers": ['severity=~"warning|info"'],
                "equal": ["cluster", "worker"],
            },
        ],
        "receivers": [{"name": "nobody"}],
    }


def grafana_source() -> dict[str, Any]:
    """Return Grafana's data source."""
    source = {"name": "Prometheus", "uid": "pdops-prometheus", "type": "prometheus", "access": "proxy"}
    where = {"url": "http://prometheus:9090", "isDefault": True, "editable": False}
    return {"apiVersion": 1, "datasources": [{**source, **where, "jsonData": {"timeInterval": f"{SCRAPE_S}s"}}]}


def grafana_dashboards() -> dict[str, Any]:
    """Return where Grafana takes dashboards from."""
    provider = {"name": "pdops", "type": "file", "folder": "pdops", "allowUiUpdates": False}
    return {"apiVersion": 1, "providers": [{**provider, "options": {"path": "/var/lib/grafana/dashboards"}}]}
