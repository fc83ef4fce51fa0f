"""Which rules a rendered deployment gets: those that ship with pdops, or, without the exporter they ask, a few on engines."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

from pdops.reference.render import alerts
from pdops.reference.render.text import document
from pdops.reference.spec import DeploymentSpec

_PACKAGE = "pdops_dashboards"


def files(spec: DeploymentSpec, *, exporter: bool) -> dict[str, str]:
    """Return the rule files for Prometheus by name."""
    return shipped() if exporter else {"pdops.yaml": document(alerts.rules(spec))}


def groups(spec: DeploymentSpec, *, exporter: bool) -> dict[str, Any]:
    """Return all groups as one document, as the Prometheus operator takes them."""
    if not exporter:
        return alerts.rules(spec)
    return {"groups": [group for text in shipped().values() for group in yaml.safe_load(text)["groups"]]}


def shipped() -> dict[str, str]:
    """Return the text of the generated rule files by name."""
    found = (path for path in resources.files(_PACKAGE).iterdir() if path.name.startswith("rules-"))
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(found, key=lambda p: p.name)}
