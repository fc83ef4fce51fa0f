"""What runs beside a deployment so that it can be watched: the exporter, Prometheus and Alertmanager, on loopback."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from pdops.errors import DeploymentError
from pdops.reference import pages
from pdops.reference.render.monitoring import RELABEL, alertmanager
from pdops.reference.spec import DeploymentSpec, Profile, ServiceSpec
from pdops.reference.state import Home

PROGRAMS = {"prometheus": ("prometheus",), "alertmanager": ("prometheus-alertmanager", "alertmanager")}
"""Names a program goes by; Debian's Alertmanager has another one than upstream's."""
_READY = {"exporter": "/ready", "prometheus": "/-/ready", "alertmanager": "/-/ready"}
_SCRAPE_S = 5
_RULES = "pdops_dashboards"


def not_ready(service: ServiceSpec) -> str | None:
    """Return None when a service is ready, else why not."""
    try:
        pages.get(f"{service.url}{_READY[service.id]}", 2.0)
    except OSError as error:
        return f"not ready yet ({type(error).__name__})"
    return None


def missing(services: Sequence[str]) -> tuple[str, ...]:
    """Return the programs of these services that are not installed."""
    return tuple(s for s in services if s in PROGRAMS and _program(s) is None)


def command(spec: DeploymentSpec, home: Home, service: ServiceSpec) -> list[str]:
    """Write a service's configuration and return its command line.

    Raises:
        DeploymentError: its program or the rules are not installed, or its configuration cannot be written.
    """
    if service.id == "exporter":
        gpu = ["--no-gpu"] if spec.profile is not Profile.GPU else []
        words = [sys.executable, "-m", "pdops", "exporter", "--config", str(home.inventory)]
        return [*words, "--host", service.host, "--port", str(service.port), *gpu]
    program = _program(service.id)
    if program is None:
        raise DeploymentError(
            f"{service.id} is not installed",
            where=" or ".join(PROGRAMS[service.id]),
            hint="install it (Debian: apt install prometheus prometheus-alertmanager), or leave out --monitoring",
        )
    folder = home.path / service.id
    config = folder / f"{service.id}.yml"
    try:
        (folder / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
        content = prometheus_config(spec) if service.id == "prometheus" else alertmanager()
        config.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise DeploymentError(
            f"cannot write the configuration of {service.id}",
            where=str(config),
            why=error.strerror or str(error),
            hint="check the space left there, or give another folder with --state-dir",
        ) from error
    listen = f"--web.listen-address={service.host}:{service.port}"
    if service.id == "prometheus":
        kept = ["--storage.tsdb.retention.time=2d", f"--storage.tsdb.path={folder / 'data'}"]
        return [program, f"--config.file={config}", listen, *kept]
    # Without peers it needs no gossip, whose port would be open on all addresses.
    return [
        program,
        f"--config.file={config}",
        listen,
        "--cluster.listen-address=",
        f"--storage.path={folder / 'data'}",
    ]


def prometheus_config(spec: DeploymentSpec) -> dict[str, object]:
    """Return Prometheus' configuration: the exporter, the engines' own pages, and the rules that come with pdops.

    Raises:
        DeploymentError: the rules are not part of this installation.
    """
    name = f"reference-{spec.profile.value}"
    exporter = next((s for s in spec.services if s.id == "exporter"), None)
    jobs: list[dict[str, object]] = []
    if exporter is not None:
        target = {"targets": [f"{exporter.host}:{exporter.port}"]}
        jobs.append({"job_name": "pdops", "honor_labels": True, "static_configs": [target]})
    engines = [
        {
            "targets": [f"{e.host}:{e.port}"],
            "labels": {"cluster": name, "role": e.role.value, "pool": e.role.value, "worker": e.id},
        }
        for e in spec.engines
    ]
    jobs.append({"job_name": "pdops-engines", "static_configs": engines, "metric_relabel_configs": RELABEL})
    alerting = next((s for s in spec.services if s.id == "alertmanager"), None)
    managers = [] if alerting is None else [{"static_configs": [{"targets": [f"{alerting.host}:{alerting.port}"]}]}]
    return {
        "global": {"scrape_interval": f"{_SCRAPE_S}s", "scrape_timeout": "4s", "evaluation_interval": f"{_SCRAPE_S}s"},
        "rule_files": [str(path) for path in rule_files()],
        "alerting": {"alertmanagers": managers},
        "scrape_configs": jobs,
    }


def rule_files() -> tuple[Path, ...]:
    """Return the rule files that come with pdops.

    Raises:
        DeploymentError: they are not part of this installation; a Prometheus without them would never alert.
    """
    spec = importlib.util.find_spec(_RULES)
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    found = tuple(sorted(path for folder in folders for path in folder.glob("rules-*.yaml")))
    if not found:
        raise DeploymentError(
            "the rules are not there", where=_RULES, hint="install pdops again, or leave out --monitoring"
        )
    return found


def _program(service: str) -> str | None:
    return next((found for name in PROGRAMS[service] if (found := shutil.which(name)) is not None), None)
