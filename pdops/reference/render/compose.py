"""Render a deployment for one GPU host as a Compose file with its monitoring."""

from __future__ import annotations

from typing import Any

from pdops.model.cluster import Role
from pdops.reference.render import accept, dashboards, monitoring, parts, readme, rules
from pdops.reference.render.settings import (
    GENERATION_S,
    ROUTER_PORT,
    SHUTDOWN_S,
    Settings,
    budget_s,
    successes,
)
from pdops.reference.render.text import document
from pdops.reference.spec import DeploymentSpec, EngineSpec

_USER = "1000:1000"
_LOG = {"driver": "json-file", "options": {"max-size": "50m", "max-file": "3"}}
_GATE = f"./gate.py:{parts.GATE}:ro"
_INVENTORY = "./pdops.yaml:/etc/pdops/pdops.yaml:ro"


def render(spec: DeploymentSpec, settings: Settings) -> dict[str, str]:
    """Return the files of a Compose project by path.

    Raises:
        UsageError: see `accept.check`.
    """
    accept.check(spec, "compose")
    files = {
        "docker-compose.yml": document(_project(spec, settings)),
        # A `name` in the file itself is one that Compose 1.29 does not take.
        ".env": f"COMPOSE_PROJECT_NAME=pdops-{spec.name}\n",
        "README.md": readme.compose(spec, settings),
        "gate.py": parts.gate_text(),
        "pdops.yaml": document(parts.inventory(spec, _same)),
        "prometheus/prometheus.yml": document(monitoring.prometheus(spec, _same, exporter=settings.exporter)),
        "alertmanager/alertmanager.yml": document(monitoring.alertmanager(), readme.RECEIVER),
        "grafana/provisioning/datasources/prometheus.yaml": document(monitoring.grafana_source()),
        "grafana/provisioning/dashboards/pdops.yaml": document(monitoring.grafana_dashboards()),
        "grafana/dashboards/README.md": readme.DASHBOARDS,
        "secrets/.gitignore": "*\n!.gitignore\n",
    }
    if settings.exporter:
        files |= {f"grafana/dashboards/{name}": text for name, text in dashboards.files().items()}
    if spec.store is not None:
        files["mooncake.json"] = parts.store_client(spec, spec.store.id)
    found = rules.files(spec, exporter=settings.exporter)
    files |= {f"prometheus/rules/{name}": text for name, text in found.items()}
    files |= {f"images/{path}": text for path, text in parts.images(settings.images, spec).items()}
    return files


def _same(worker: str) -> str:
    return worker


def _project(spec: DeploymentSpec, settings: Settings) -> dict[str, Any]:
    services: dict[str, Any] = {"cache-owner": _cache_owner(settings)}
    if spec.store is not None:
        services[spec.store.id] = _store(spec, settings)
    services |= {e.id: _engine(spec, e, settings) for e in (*spec.prefills(), *spec.decodes())}
    if spec.router is not None:
        services[spec.router.id] = _router(spec, settings)
    if settings.exporter:
        services["exporter"] = _exporter(settings)
    services |= _monitoring(settings)
    secrets = {name: {"file": f"./secrets/{name}"} for name in ("grafana_admin_password", "hf_token")}
    if spec.router is not None:
        secrets["router_admin_token"] = {"file": "./secrets/router_admin_token"}
    volumes = ["model-cache", *(["router-state"] if spec.router is not None else []), *_monitoring(settings)]
    return {
        "services": services,
        "volumes": {name: {} for name in volumes},
        "secrets": secrets,
    }


def _hardened(image: str, *, user: str | None = _USER) -> dict[str, Any]:
    who = {"user": user} if user is not None else {}
    return {
        "image": image,
        **who,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp"],  # noqa: S108  a file system of the container's own
        "restart": "unless-stopped",
        "logging": _LOG,
    }


def _engine(spec: DeploymentSpec, engine: EngineSpec, settings: Settings) -> dict[str, Any]:
    role = engine.role
    idle_s, linger_s = parts.drain_s(spec, role)
    drain = [f"--drain-url={parts.LOCAL}", f"--drain-deadline={idle_s}", f"--drain-linger={linger_s}"]
    cordon = parts.cordon_words(_router_url(spec), engine.id) if spec.router is not None else []
    model = parts.local_model(spec)
    volumes = ["model-cache:/cache", _GATE]
    if model is not None:
        volumes.append(f"{_kept(model)}:{_kept(model)}:ro")
    if spec.store is not None:
        volumes.append(f"./mooncake.json:{parts.STORE_CONFIG}:ro")
    environment = parts.engine_environment(spec, engine)
    if spec.otlp_endpoint is not None:
        environment["OTEL_SERVICE_NAME"] = engine.id
    if spec.store is not None:
        environment[parts.STORE_CLIENT_HOST] = engine.id
    budget = budget_s(role.value)
    return {
        **_hardened(settings.images.engine),
        "init": True,
        "entrypoint": parts.gate("run", *cordon, *drain, "--"),
        "command": [_kept(w) for w in parts.engine_words(spec, engine)],
        "environment": {k: _kept(v) for k, v in sorted(environment.items())},
        "volumes": volumes,
        "secrets": ["hf_token", *(["router_admin_token"] if cordon else [])],
        "shm_size": f"{settings.shm_gib}gb",
        "ulimits": {"memlock": {"soft": -1, "hard": -1}},
        "deploy": {"resources": {"reservations": {"devices": [_gpus(spec, engine)]}}},
        "depends_on": _after(spec, role),
        "healthcheck": _health(
            [_kept(w) for w in parts.ready_words(spec, role, times=parts.needed_in_a_row(role))], start_s=budget
        ),
        "stop_grace_period": f"{idle_s + linger_s + SHUTDOWN_S}s",
    }


def _after(spec: DeploymentSpec, role: Role) -> dict[str, Any]:
    needed: dict[str, Any] = {"cache-owner": {"condition": "service_completed_successfully"}}
    before = [spec.store.id] if spec.store is not None else []
    if role is Role.DECODE:
        before += [e.id for e in spec.prefills()]
    return needed | {name: {"condition": "service_healthy"} for name in before}


def _gpus(spec: DeploymentSpec, engine: EngineSpec) -> dict[str, Any]:
    which: dict[str, Any] = {"device_ids": [str(n) for n in engine.gpus]}
    return {
        "driver": "nvidia",
        **(which if engine.gpus else {"count": spec.tensor_parallel_size}),
        "capabilities": ["gpu"],
    }


def _router_url(spec: DeploymentSpec) -> str:
    assert spec.router is not None
    return f"http://{spec.router.id}:{ROUTER_PORT}"


def _router(spec: DeploymentSpec, settings: Settings) -> dict[str, Any]:
    page = f"http://127.0.0.1:{ROUTER_PORT}/ready"
    needed = successes("router")
    return {
        **_hardened(settings.images.pdops),
        "build": "./images/pdops",
        "init": True,
        "command": [_kept(w) for w in parts.router_words(spec, _same)],
        "volumes": ["router-state:/var/lib/pdops", _GATE],
        "secrets": ["router_admin_token"],
        "ports": [f"127.0.0.1:${{PDOPS_ROUTER_PORT:-{ROUTER_PORT}}}:{ROUTER_PORT}"],
        "depends_on": {e.id: {"condition": "service_healthy"} for e in (*spec.prefills(), *spec.decodes())},
        "healthcheck": _health(parts.gate("http", page, f"--times={needed}"), start_s=budget_s("router")),
        "stop_grace_period": f"{GENERATION_S + SHUTDOWN_S}s",
    }


def _store(spec: DeploymentSpec, settings: Settings) -> dict[str, Any]:
    return {
        **_hardened(f"pdops-mooncake:{settings.images.mooncake}"),
        "build": "./images/store",
        "init": True,
        "command": parts.store_words(spec),
        "volumes": [_GATE],
        "healthcheck": _health(parts.store_ready_words(successes("kv-store")), start_s=budget_s("kv-store")),
        "stop_grace_period": f"{SHUTDOWN_S}s",
    }


def _exporter(settings: Settings) -> dict[str, Any]:
    # It waits for nobody: what is not there yet is what it should tell.
    return {**_hardened(settings.images.pdops), "command": parts.exporter_words(), "volumes": [_INVENTORY]}


def _cache_owner(settings: Settings) -> dict[str, Any]:
    """Return the one step that runs as root: a new volume belongs to root, and the engines do not run as root."""
    owner = _hardened(settings.images.engine, user="0:0") | {"restart": "no", "cap_add": ["CHOWN"]}
    chown = ["chown", _USER, "/cache"]
    return {**owner, "entrypoint": chown, "network_mode": "none", "volumes": ["model-cache:/cache"]}


def _monitoring(settings: Settings) -> dict[str, Any]:
    pins = settings.images

    def answers(url: str) -> dict[str, Any]:
        return _health(["wget", "-q", "-O", "-", url], start_s=30)

    # None of the three waits for the engines: a start that hangs is what they are there to show.
    return {
        "prometheus": {
            **_hardened(pins.prometheus, user=None),
            "command": ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"],
            "volumes": ["./prometheus:/etc/prometheus:ro", "prometheus:/prometheus"],
            "ports": ["127.0.0.1:${PDOPS_PROMETHEUS_PORT:-9090}:9090"],
            "healthcheck": answers("http://127.0.0.1:9090/-/ready"),
        },
        "alertmanager": {
            **_hardened(pins.alertmanager, user=None),
            "command": ["--config.file=/etc/alertmanager/alertmanager.yml", "--storage.path=/alertmanager"],
            "volumes": ["./alertmanager:/etc/alertmanager:ro", "alertmanager:/alertmanager"],
            "ports": ["127.0.0.1:${PDOPS_ALERTMANAGER_PORT:-9093}:9093"],
            "healthcheck": answers("http://127.0.0.1:9093/-/ready"),
        },
        "grafana": {
            **_hardened(pins.grafana, user=None),
            "environment": {
                "GF_SECURITY_ADMIN_PASSWORD__FILE": "/run/secrets/grafana_admin_password",
                "GF_ANALYTICS_REPORTING_ENABLED": "false",
                "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            },
            "volumes": [
                "./grafana/provisioning:/etc/grafana/provisioning:ro",
                "./grafana/dashboards:/var/lib/grafana/dashboards:ro",
                "grafana:/var/lib/grafana",
            ],
            "secrets": ["grafana_admin_password"],
            "ports": ["127.0.0.1:${PDOPS_GRAFANA_PORT:-3000}:3000"],
            "depends_on": {"prometheus": {"condition": "service_healthy"}},
            "healthcheck": answers("http://127.0.0.1:3000/api/health"),
        },
    }


def _health(words: list[str], *, start_s: int) -> dict[str, Any]:
    return {
        "test": ["CMD", *words],
        "interval": "10s",
        "timeout": "40s",
        "retries": 3,
        "start_period": f"{start_s}s",
    }


def _kept(text: str) -> str:
    """Return text that Compose leaves as it is: a dollar sign would begin a variable."""
    return text.replace("$", "$$")
