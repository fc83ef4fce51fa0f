"""Read from a pod spec what the pod's processes will find around them, under the same names as on a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKMGTPE]i?|m)?")
_SCALE = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "m": 1e-3}
_DEFAULT_SHM_BYTES = 64 << 20
"""What container runtimes give /dev/shm."""
_GPU = "nvidia.com/gpu"
_SHM = "/dev/shm"  # noqa: S108  the mount point that transfers use


def pod_facts(worker: str, spec: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, str]:
    """Return the `host.*` facts and probes a pod spec settles; what it does not settle is left out."""
    facts: dict[str, str] = {}
    limits = _map(_map(container.get("resources")).get("limits"))
    memory = quantity(limits.get("memory"))
    if memory is not None:
        facts["host.memory_total_bytes"] = str(memory)
    if _GPU in limits:
        facts["host.gpu_count"] = str(limits[_GPU])
    facts["host.shm_total_bytes"] = "" if spec.get("hostIPC") else str(_shm(spec, container, memory))
    # The engine container sees only its own processes unless the pod says otherwise.
    facts["host.pid_namespace"] = "host" if spec.get("hostPID") else f"pod {worker}"
    facts["host.network"] = "host" if spec.get("hostNetwork") else "pod"
    if isinstance(spec.get("nodeName"), str):
        facts["host.node"] = spec["nodeName"]
    security = _map(container.get("securityContext"))
    added = _map(security.get("capabilities")).get("add")
    if security.get("privileged") is True or (isinstance(added, list) and {"IPC_LOCK", "ALL"} & set(map(str, added))):
        facts["host.memlock_bytes"] = "unlimited"
    if isinstance(spec.get("terminationGracePeriodSeconds"), int):
        facts["termination_grace_period_s"] = str(spec["terminationGracePeriodSeconds"])
    for name in ("readinessProbe", "livenessProbe", "startupProbe"):
        probe = _map(container.get(name))
        if probe:
            facts[_snake(name)] = _probe(probe)
    return {key: value for key, value in facts.items() if value}


def quantity(value: object) -> int | None:
    """Return a Kubernetes quantity such as `64Gi` as a whole number, or None when it is none."""
    found = _QUANTITY.fullmatch(str(value).strip()) if value is not None else None
    if found is None:
        return None
    unit = found[2] or ""
    scale = 1024 ** ("KMGTPE".index(unit[0].upper()) + 1) if unit.endswith("i") else _SCALE.get(unit, 1.0)
    return int(float(found[1]) * scale)


def _shm(spec: Mapping[str, Any], container: Mapping[str, Any], memory: int | None) -> int | str:
    mounts = {str(m.get("name")) for m in map(_map, _list(container.get("volumeMounts"))) if m.get("mountPath") == _SHM}
    if not mounts:
        return _DEFAULT_SHM_BYTES
    for volume in map(_map, _list(spec.get("volumes"))):
        directory = _map(volume.get("emptyDir"))
        if str(volume.get("name")) in mounts and directory.get("medium") == "Memory":
            size = quantity(directory.get("sizeLimit"))
            # Without a limit it may grow to what the pod may use.
            return size if size is not None else memory if memory is not None else ""
    return ""


def _probe(probe: Mapping[str, Any]) -> str:
    for kind, key in (("httpGet", "path"), ("tcpSocket", "port"), ("exec", "command"), ("grpc", "port")):
        if kind in probe:
            value = _map(probe[kind]).get(key)
            return f"{kind} {' '.join(map(str, value)) if isinstance(value, list) else value}"
    return "given"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _map(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, dict) else {}


def _list(data: Any) -> list[Any]:
    return data if isinstance(data, list) else []
