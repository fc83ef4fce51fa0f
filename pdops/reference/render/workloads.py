"""The workloads: engines as StatefulSets, the router, the store's master, the exporter."""

from __future__ import annotations

from typing import Any

from pdops.model.cluster import Role
from pdops.reference.render import parts
from pdops.reference.render.labels import address, labels, metadata, selector
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
_FILES = {"name": "files", "mountPath": "/etc/pdops", "readOnly": True}
_GATE = {"name": "files", "mountPath": parts.GATE, "subPath": "gate.py", "readOnly": True}
_TMP = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108  a volume of the pod's own
_SECRETS = {"name": "secrets", "mountPath": "/run/secrets", "readOnly": True}
_LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


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
        "template": {"metadata": {"labels": labels(spec, name)}, "spec": _engine_pod(spec, role, found[0], settings)},
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata(spec, name, name), "spec": body}


def router(spec: DeploymentSpec, settings: Settings) -> Object:
    """Return the router: one replica, because its queue and its view of who is busy are its own.

    It ends before its successor starts: both would count the same workers' room.
    """
    # One ready worker of each role is enough: a single broken engine must not keep the whole deployment down.
    waits = [f"--http=http://{role}:{API_PORT}/v1/models" for role in ("prefill", "decode")]
    engine_s = budget_s("prefill") + budget_s("decode")
    container = _container(
        "router", settings.images.pdops, parts.router_words(spec, address), {"http": ROUTER_PORT}
    ) | {
        "volumeMounts": [{"name": "state", "mountPath": "/var/lib/pdops"}, _GATE, _TMP, _SECRETS],
        "startupProbe": _http("/health", _tries(budget_s("router"), 2), 2),
        "readinessProbe": _http("/ready", 2, 5) | {"successThreshold": successes("router")},
        "livenessProbe": _http("/health", 6, _EVERY_S),
        "lifecycle": _pre_stop(parts.gate("pause", str(_PAUSE_S))),
        "resources": _sizes("1", "1Gi"),
    }
    pod = _pod("pdops-serving", [container], grace_s=_PAUSE_S + GENERATION_S + SHUTDOWN_S) | {
        "initContainers": [_waiting("wait-for-engines", settings.images.pdops, engine_s, successes("router"), waits)],
        "volumes": [_config_map(), _empty("tmp"), _empty("state"), _secrets(spec, optional=False)],
    }
    return _deployment(spec, "router", pod)


def store(spec: DeploymentSpec, settings: Settings) -> Object:
    """Return the store's master. It holds what is where in memory only: a restart forgets all of it."""
    image = f"pdops-mooncake:{settings.images.mooncake}"
    ports = {"rpc": STORE_RPC_PORT, "metrics": STORE_METRICS_PORT}
    ready = _exec(parts.store_ready_words(1))
    container = _container("store", image, parts.store_words(spec), ports) | {
        "volumeMounts": [_GATE, _TMP],
        "startupProbe": _probe(ready, _tries(budget_s("kv-store"), 5), 5),
        "readinessProbe": _probe(ready, 2, _EVERY_S) | {"successThreshold": successes("kv-store")},
        "livenessProbe": _probe({"tcpSocket": {"port": "rpc"}}, 6, _EVERY_S),
        "resources": _sizes("1", "2Gi"),
    }
    pod = _pod("pdops-serving", [container], grace_s=SHUTDOWN_S) | {"volumes": [_config_map(), _empty("tmp")]}
    return _deployment(spec, "store", pod)


def exporter(spec: DeploymentSpec, settings: Settings) -> Object:
    """Return the exporter; it waits for nobody, because what is not there yet is what it should tell."""
    container = _container("exporter", settings.images.pdops, parts.exporter_words(), {"http": EXPORTER_PORT}) | {
        "volumeMounts": [_FILES, _TMP],
        "readinessProbe": _http("/metrics", 3, _EVERY_S),
        "resources": _sizes("250m", "512Mi"),
    }
    pod = _pod("pdops-reader", [container], grace_s=SHUTDOWN_S, token=True)
    return _deployment(spec, "exporter", pod | {"volumes": [_config_map(), _empty("tmp")]})


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
    words = [*parts.gate("run", *cordon, "--"), *(_kept(w) for w in parts.engine_words(spec, engine))]
    ready = _exec(parts.ready_words(spec, role, times=1))
    gpus = {"nvidia.com/gpu": spec.tensor_parallel_size}
    size = spec.tensor_parallel_size
    asked = {"cpu": str(settings.cpus * size), "memory": f"{settings.memory_gib * size}Gi", **gpus}
    mounts = [{"name": "cache", "mountPath": parts.CACHE}, {"name": "shm", "mountPath": "/dev/shm"}, _GATE, _TMP]  # noqa: S108
    model = parts.local_model(spec)
    claim = {"name": "model", "persistentVolumeClaim": {"claimName": "model", "readOnly": True}}
    if model is not None:
        mounts.append({"name": "model", "mountPath": model, "readOnly": True})
    if spec.store is not None:
        mounts.append({**_FILES, "mountPath": parts.STORE_CONFIG, "subPath": "mooncake.json"})
    container = _container("engine", settings.images.engine, words, {"http": API_PORT, "side-channel": SIDE_PORT}) | {
        "env": _environment(spec, engine),
        "volumeMounts": [*mounts, _SECRETS],
        # The start-up probe gives the cold start its whole budget; only then do the other two begin.
        "startupProbe": _probe(ready, _tries(budget_s(role.value), _EVERY_S), _EVERY_S),
        "readinessProbe": _probe(ready, 3, _EVERY_S) | {"successThreshold": parts.needed_in_a_row(role)},
        # A slow engine must live: killing it loses every request in it. Only one that no longer answers at all is dead.
        "livenessProbe": _http("/health", 6, _EVERY_S),
        "lifecycle": _pre_stop(_in_shell(drain)),
        # Memory has no upper limit: pinned pages and shared memory count, and reaching it kills the engine.
        "resources": {"requests": asked, "limits": gpus},
    }
    volumes = [
        _config_map(),
        _empty("tmp"),
        {"name": "cache", "emptyDir": {"sizeLimit": f"{settings.cache_gib}Gi"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{settings.shm_gib}Gi"}},
        *([claim] if model is not None else []),
        _secrets(spec, optional=True),
    ]
    before = _init(spec, role, settings)
    return _pod("pdops-serving", [container], grace_s=idle_s + linger_s + SHUTDOWN_S) | {
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
        found.append(_waiting("wait-for-store", image, budget_s("kv-store"), successes("kv-store"), words))
    if role is Role.DECODE:
        # The service of a pool names only workers that are ready by our own probe. One is enough to go on.
        words = [f"--http=http://prefill:{API_PORT}/v1/models"]
        found.append(_waiting("wait-for-prefill", image, budget_s("prefill"), successes("prefill"), words))
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
    return [*own, *({"name": name, "value": _kept(value)} for name, value in rest)]


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


def _pod(account: str, containers: list[Object], *, grace_s: int, token: bool = False) -> Object:
    who = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": token,
        "terminationGracePeriodSeconds": grace_s,
        # Service variables would name every service of the namespace, among them VLLM_* of whatever is called so.
        "enableServiceLinks": False,
        "securityContext": {**who, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": containers,
    }


def _deployment(spec: DeploymentSpec, name: str, pod: Object) -> Object:
    body = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": selector(spec, name)},
        "template": {"metadata": {"labels": labels(spec, name)}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(spec, name, name), "spec": body}


def _container(name: str, image: str, command: list[str], ports: dict[str, int]) -> Object:
    return {
        "name": name,
        "image": image,
        "command": command,
        "ports": [{"name": n, "containerPort": p} for n, p in ports.items()],
        "securityContext": _LOCKED,
    }


def _waiting(name: str, image: str, budget: int, times: int, words: list[str]) -> Object:
    command = parts.gate("wait", f"--budget={budget}", f"--times={times}", *words)
    return {
        "name": name,
        "image": image,
        "command": command,
        "volumeMounts": [_GATE],
        "securityContext": _LOCKED,
        "resources": _sizes("50m", "64Mi"),
    }


def _config_map() -> Object:
    return {"name": "files", "configMap": {"name": "pdops-files"}}


def _empty(name: str) -> Object:
    return {"name": name, "emptyDir": {}}


def _secrets(spec: DeploymentSpec, *, optional: bool) -> Object:
    """Return the volume of secrets; engines start without them, the router does not."""

    def one(name: str, key: str, maybe: bool) -> Object:
        return {"secret": {"name": name, "optional": maybe, "items": [{"key": key, "path": key}]}}

    sources = [one("pdops-router-admin", "router_admin_token", optional)] if spec.router is not None else []
    if optional:
        sources.append(one("hf-token", "hf_token", True))
    return {"name": "secrets", "projected": {"defaultMode": 0o440, "sources": sources}}


def _sizes(cpu: str, memory: str) -> Object:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


def _tries(budget: int, every_s: int) -> int:
    return -(-budget // every_s)


def _http(path: str, failures: int, every_s: int) -> Object:
    return _probe({"httpGet": {"path": path, "port": "http"}}, failures, every_s)


def _exec(words: list[str]) -> Object:
    return {"exec": {"command": words}}


def _probe(how: Object, failures: int, every_s: int) -> Object:
    return {**how, "periodSeconds": every_s, "timeoutSeconds": 10, "failureThreshold": failures}


def _pre_stop(words: list[str]) -> Object:
    return {"preStop": _exec(words)}


def _in_shell(words: list[str]) -> list[str]:
    """Return a command whose variables a shell fills in; every word is ours and none holds a quote."""
    return ["/bin/sh", "-c", "exec " + " ".join(f'"{w}"' for w in words)]


def _kept(text: str) -> str:
    """Return text that Kubernetes leaves as it is: `$(NAME)` would be filled in."""
    return text.replace("$(", "$$(")
