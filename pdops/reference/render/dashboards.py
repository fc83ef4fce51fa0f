"""The Grafana dashboards that ship with pdops, as a rendered deployment provisions them. They ask the exporter's families."""

from __future__ import annotations

from importlib import resources
from typing import Any

_PACKAGE = "pdops_dashboards"
LABEL = "grafana_dashboard"
"""Label by which the sidecar of Grafana's Helm charts finds ConfigMaps with dashboards."""


def files() -> dict[str, str]:
    """Return the dashboards' JSON by file name."""
    found = (path for path in resources.files(_PACKAGE).iterdir() if path.name.endswith(".json"))
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(found, key=lambda p: p.name)}


def generators(folder: str) -> list[dict[str, Any]]:
    """Return Kustomize's generators of one ConfigMap a dashboard, from files in a folder.

    One for all of them would outgrow what `kubectl apply` may note down on an object, 256 KiB. Names have no hash, since
    nothing refers to them and Grafana would find a dashboard twice.
    """
    options = {"labels": {LABEL: "1"}, "disableNameSuffixHash": True}
    return [
        {
            "name": f"pdops-dashboard-{name.removesuffix('.json')}",
            "files": [f"{folder}/{name}"],
            "options": options,
        }
        for name in files()
    ]
