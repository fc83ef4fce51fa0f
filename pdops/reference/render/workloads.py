"""The workloads: engines as StatefulSets, the router, the store's master, the exporter."""

from __future__ import annotations

from typing import Any

from pdops.model.cluster import Role
from pdops.reference.render import parts, pods
from pdops.reference.render.labels import address, labels, metadata, routed, selector
from pdops.reference.render.settings import (
    API_PORT,
    EXPORTER_PORT,
    GENERATION_S,
    ROUTER_PORT,
    SHUTDOWN_S,
    SIDE_PORT,
    STORE_METRICS_PORT,
    STORE_RPC_PORT,
    Settings,
    budget_s,
    successes,
)
from pdops.reference.spec import DeploymentSpec, EngineSpec

Object = dict[str, Any]
_EVERY_S = 10
_PAUSE_S = 10
"""How long the router goes on serving after it is to end, until nothing sends to it any more."""


def engines(spec: DeploymentSpec, role: Role, settings: Settings) -> Object:
    """Return the engines of one role.

    A StatefulSet, because the router, the inventory and the alerts know a worker by a name that outlives its pod.
    They start all at once (nothing in a pool waits for its siblings) and are replaced one at a time.
    """
    found = spec.prefills() if role is Role.PREFILL else spec.decodes()
    name = role.value
    body = {
        "serviceName": name,
        "replicas": len(found),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        # A new pod counts once it stayed ready this long, so that a rollout does not outrun a crash loop.
        "minReadySeconds": 10,
        "selector": {"matchLabels": selector(spec, name)},
        "template": {
            "metadata": {"labels": labels(spec, name) | routed(spec, name)},
            "spec": _engine_pod(spec, role, found[0], settings),
        },
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata(spec, name, name), "spec": body}


def router(spec: DeploymentSpec, settings: Settings) -> Object:
    """Return the router: one replica, because its queue and its view of who is busy are its own.

    It ends before its successor starts: both would count the same workers' room.
    """
    # One ready worker of each role is enough: a single broken engine must not keep the whole deployment down.
    waits = [f"--http=http://{role}:{API_PORT}/v1/models" for role in ("prefill", "decode")]
    engine_s = budget_s("prefill") + budget_s("decode")
    container = pods.container(
        "router", settings.images.pdops, parts.router_words(spec, address), {"http": ROUTER_PORT}
    ) | {
        "volumeMounts": [{"name": "state", "mountPath": "/var/lib/pdops"}, pods.GATE, pods.TMP, pods.SECRETS],
        "startupProbe": pods.by_page("/health", pods.tries(budget_s("router"), 2), 2),
        "readinessProbe": pods.by_page("/ready", 2, 5) | {"successThreshold": successes("router")},
        "livenessProbe": pods.by_page("/health", 6, _EVERY_S),
        "lifecycle": pods.pre_stop(parts.gate("pause", str(_PAUSE_S))),
        "resources": pods.sizes("1", "1Gi"),
    }
    pod = pods.pod("pdops-serving", [container], grace_s=_PAUSE_S + GENERATION_S + SHUTDOWN_S) | {
        "initContainers": [
            pods.waiting("wait-for-engines", settings.images.pdops, engine_s, successes("router"), waits)
        ],
        "volumes": [pods.config_map(), pods.empty("tmp"), pods.empty("state"), pods.secrets(spec, optional=False)],
    }
    return pods.deployment(spec, "router", pod)


def store(spec: DeploymentSpec, settings: Settings) -> Object:
    """Return the store's master. It holds what is where in memory only: a restart forgets all of it."""
    image = f"pdops-mooncake:{settings.images.mooncake}"
    ports = {"rpc": STORE_RPC_PORT, "metrics": STORE_METRICS_PORT}
    ready = pods.by_command(parts.store_ready_words(1))
    container = pods.container("store", image, parts.store_words(spec), ports) | {
        "volumeMounts": [pods.GATE, pods.TMP],
        "startupProbe": pods.probe(ready, pods.tries(budget_s("kv-store"), 5), 5),
        "readinessProbe": pods.probe(ready, 2, _EVERY_S) | {"successThreshold": successes("kv-store")},
        "livenessProbe": pods.probe({"tcpSocket": {"port": "rpc"}}, 6, _EVERY_S),
        "resources": pods.sizes("1", "2Gi"),
    }
    pod = pods.pod("pdops-serving", [container], grace_s=SHUTDOWN_S) | {
        "volumes": [pods.config_map(), pods.empty("tmp")]
    }
    return pods.deployment(spec, "store", pod)


def exporter(spec: DeploymentSpec, settings: Settings) -> Object:
    """Return the exporter; it waits for nobody, because what is not there yet is what it should tell."""
    container = pods.container("exporter", settings.images.pdops, parts.exporter_words(), {"http": EXPORTER_PORT}) | {
        "volumeMounts": [pods.FILES, pods.TMP],
        "readinessProbe": pods.by_page("/metrics", 3, _EVERY_S),
        "resources": pods.sizes("250m", "512Mi"),
    }
    pod = pods.pod("pdops-reader", [container], grace_s=SHUTDOWN_S, token=True)
    return pods.deployment(spec, "exporter", pod | {"volumes": [pods.config_map(), pods.empty("tmp")]})


def patch(role: Role, pod: Object) -> Object:
    """Return a patch of the engines' pods of one role."""
    name = {"name": role.value}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": name, "spec": {"template": {"spec": pod}}}


def _engine_pod(spec: DeploymentSpec, role: Role, engine: EngineSpec, settings: Settings) -> Object:
    idle_s, linger_s = parts.drain_s(spec, role)
    cordon = parts.cordon_words(f"http://router:{ROUTER_PORT}", "$(POD_NAME)") if spec.router is not None else []
    # A hook's command is run as it stands, without the variables that a container's own command may name.
    in_shell = [w.replace("$(POD_NAME)", "$POD_NAME") for w in cordon]
    drain = parts.gate("drain", f"--url={parts.LOCAL}", f"--deadline={idle_s}", f"--linger={linger_s}", *in_shell)
    words = [*parts.gate("run", *cordon, "--"), *(pods.kept(w) for w in parts.engine_words(spec, engine))]
    ready = pods.by_command(parts.ready_words(spec, role, times=1))
    gpus = {"nvidia.com/gpu": spec.tensor_parallel_size}
    size = spec.tensor_parallel_size
    asked = {"cpu": str(settings.cpus * size), "memory": f"{settings.memory_gib * size}Gi", **gpus}
    mounts = [
        {"name": "cache", "mountPath": parts.CACHE},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  what vLLM's workers share
        pods.GATE,
        pods.TMP,
    ]
    model = parts.local_model(spec)
    claim = {"name": "model", "persistentVolumeClaim": {"claimName": "model", "readOnly": True}}
    if model is not None:
        mounts.append({"name": "model", "mountPath": model, "readOnly": True})
    if spec.store is not None:
        mounts.append({**pods.FILES, "mountPath": parts.STORE_CONFIG, "subPath": "mooncake.json"})
    container = pods.container(
        "engine", settings.images.engine, words, {"http": API_PORT, "side-channel": SIDE_PORT}
    ) | {
        "env": _environment(spec, engine),
        "volumeMounts": [*mounts, pods.SECRETS],
        # The start-up probe gives the cold start its whole budget; only then do the other two begin.
        "startupProbe": pods.probe(ready, pods.tries(budget_s(role.value), _EVERY_S), _EVERY_S),
        "readinessProbe": pods.probe(ready, 3, _EVERY_S) | {"successThreshold": parts.needed_in_a_row(role)},
        # A slow engine must live: killing it loses every request in it. Only one that no longer answers at all is dead.
        "livenessProbe": pods.by_page("/health", 6, _EVERY_S),
        "lifecycle": pods.pre_stop(pods.in_shell(drain)),
        # Memory has no upper limit: pinned pages and shared memory count, and reaching it kills the engine.
        "resources": {"requests": asked, "limits": gpus},
    }
    volumes = [
        pods.config_map(),
        pods.empty("tmp"),
        {"name": "cache", "emptyDir": {"sizeLimit": f"{settings.cache_gib}Gi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{settings.shm_gib}Gi"}},
        *([claim] if model is not None else []),
        pods.secrets(spec, optional=True),
    ]
    before = _init(spec, role, settings)
    return pods.pod("pdops-serving", [container], grace_s=idle_s + linger_s + SHUTDOWN_S) | {
        **({"initContainers": before} if before else {}),
        "volumes": volumes,
        **_placement(spec, role),
    }


def _init(spec: DeploymentSpec, role: Role, settings: Settings) -> list[Object]:
    """Return what must be there first: the store, and for decode a ready prefill worker."""
    found, image = [], settings.images.engine
    if spec.store is not None:
        host = address(spec.store.id)
        words = [f"--http=http://{host}:{STORE_METRICS_PORT}/health", f"--tcp={host}:{STORE_RPC_PORT}"]
        found.append(pods.waiting("wait-for-store", image, budget_s("kv-store"), successes("kv-store"), words))
    if role is Role.DECODE:
        # The service of a pool names only workers that are ready by our own probe. One is enough to go on.
        words = [f"--http=http://prefill:{API_PORT}/v1/models"]
        found.append(pods.waiting("wait-for-prefill", image, budget_s("prefill"), successes("prefill"), words))
    return found


def _environment(spec: DeploymentSpec, engine: EngineSpec) -> list[Object]:
    def field(name: str, path: str) -> Object:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    # Peers connect to what this says, so it must be the pod's own address: a service's would be somebody else's.
    own = [field("VLLM_NIXL_SIDE_CHANNEL_HOST", "status.podIP"), field("VLLM_HOST_IP", "status.podIP")]
    own.append(field("POD_NAME", "metadata.name"))
    if spec.otlp_endpoint is not None:
        own.append(field("OTEL_SERVICE_NAME", "metadata.name"))
    if spec.store is not None:
        own.append(field(parts.STORE_CLIENT_HOST, "status.podIP"))
    rest = sorted(parts.engine_environment(spec, engine).items())
    return [*own, *({"name": name, "value": pods.kept(value)} for name, value in rest)]


def _placement(spec: DeploymentSpec, role: Role) -> Object:
    """Return hints: spread a pool over hosts, and keep both roles in one zone, because KV goes between them."""
    other = Role.DECODE if role is Role.PREFILL else Role.PREFILL
    near = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": selector(spec, other.value)}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(spec, role.value)},
    }
    wish = [{"weight": 100, "podAffinityTerm": near}]
    return {
        "topologySpreadConstraints": [spread],
        "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
