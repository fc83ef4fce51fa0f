"""Make the files Prometheus reads from the data of the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic_core import PydanticCustomError

from pdops.errors import UsageError
from pdops.grafana.rules import burn, capacity, data, decode, findings, prefill, recordings, service, transfer
from pdops.grafana.rules.types import Alert, Group, Recording
from pdops.sources.validate import web_address

HEADER = "# Made by `pdops rules build`; changes here are lost.\n"
RUNBOOK_URL = "http://127.0.0.1:9464/explain/"
"""Where `pdops exporter` serves the pages of `pdops explain`, at its default address."""
DASHBOARD_URL = "http://127.0.0.1:3000/d/pdops-"
"""Where a Grafana on the same host shows dashboards, up to the rest of their uid."""


@dataclass(frozen=True, slots=True)
class Links:
    """Where links of alerts lead: the alert's name, or the rest of a dashboard's uid, is put behind."""

    runbook: str = RUNBOOK_URL
    dashboard: str = DASHBOARD_URL


def link(text: str) -> str:
    """Return an address that links may begin with, as it is.

    Raises:
        UsageError: it is no http or https address, or has braces, which Prometheus reads as a template.
    """
    try:
        web_address(text)
        why = "Prometheus reads braces as a template" if "{" in text or "}" in text else ""
    except PydanticCustomError as error:
        why = error.message()
    if why:
        raise UsageError(
            "links cannot begin with this", where=text[:200], why=why, hint="as https://wiki.example/pdops/"
        )
    return text


def files() -> Mapping[str, tuple[Group, ...]]:
    """Return the groups of each file, by its name."""
    slo_recording, slo_alerts = burn.groups()
    return {
        "rules-recording.yaml": (*recordings.groups(), slo_recording),
        "rules-alerts.yaml": (
            *data.groups(),
            prefill.group(),
            decode.group(),
            transfer.group(),
            *service.groups(),
            *capacity.groups(),
            findings.group(),
        ),
        "rules-slo.yaml": (slo_alerts,),
    }


def alerts() -> tuple[Alert, ...]:
    """Return every alert in the order of the files."""
    return tuple(alert for found in files().values() for group in found for alert in group.alerts)


def recorded() -> tuple[Recording, ...]:
    """Return every recording rule in the order of the files."""
    return tuple(rule for found in files().values() for group in found for rule in group.recordings)


def documents(links: Links | None = None) -> dict[str, str]:
    """Return the text of every file by its name; the same data always gives the same bytes."""
    return {name: document(groups, links or Links()) for name, groups in files().items()}


def document(groups: tuple[Group, ...], links: Links | None = None) -> str:
    """Return one file of rules."""
    made = {"groups": [_group(group, links or Links()) for group in groups]}
    return HEADER + yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=120)


def _group(group: Group, links: Links) -> dict[str, Any]:
    every = {} if group.interval_s is None else {"interval": f"{group.interval_s}s"}
    rules = [{"record": r.name, "expr": r.expr} for r in group.recordings] + [rule(a, links) for a in group.alerts]
    return {"name": group.name, **every, "rules": rules}


def rule(alert: Alert, links: Links) -> dict[str, Any]:
    """Return an alert as Prometheus reads it."""
    labels: dict[str, str] = {"severity": alert.severity}
    for name, value in (("pool", alert.pool), ("cause", alert.cause), ("symptom", alert.symptom)):
        if value is not None:
            labels[name] = str(value)
    query = "?var-cluster={{ $labels.cluster }}" if "cluster" in alert.keeps else ""
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.for_,
        "labels": {**labels, **alert.labels},
        "annotations": {
            "summary": alert.summary,
            "description": alert.do,
            "explain": f"pdops explain {alert.name}",
            "runbook_url": links.runbook + alert.name,
            "dashboard_url": links.dashboard + alert.board + query,
        },
    }
