"""What pods of a rendered deployment have in common: users, volumes, probes."""

from __future__ import annotations

from typing import Any

from pdops.reference.render import parts
from pdops.reference.render.labels import labels, metadata, selector
from pdops.reference.spec import DeploymentSpec

Object = dict[str, Any]
FILES = {"name": "files", "mountPath": "/etc/pdops", "readOnly": True}
GATE = {"name": "files", "mountPath": parts.GATE, "subPath": "gate.py", "readOnly": True}
TMP = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108  a volume of the pod's own
SECRETS = {"name": "secrets", "mountPath": "/run/secrets", "readOnly": True}
LOCKED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod(account: str, containers: list[Object], *, grace_s: int, token: bool = False) -> Object:
    """Return what every pod has: an account, time to end, a user that is not root."""
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


def deployment(spec: DeploymentSpec, name: str, inside: Object) -> Object:
    """Return a Deployment of one replica that ends before its successor starts."""
    body = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": selector(spec, name)},
        "template": {"metadata": {"labels": labels(spec, name)}, "spec": inside},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(spec, name, name), "spec": body}


def container(name: str, image: str, command: list[str], ports: dict[str, int]) -> Object:
    """Return a container that may do nothing but run."""
    return {
        "name": name,
        "image": image,
        "command": command,
        "ports": [{"name": n, "containerPort": p} for n, p in ports.items()],
        "securityContext": LOCKED,
    }


def waiting(name: str, image: str, budget: int, times: int, words: list[str]) -> Object:
    """Return an init container that waits for others, at most `budget` seconds, then fails and is tried again."""
    command = parts.gate("wait", f"--budget={budget}", f"--times={times}", *words)
    return {
        "name": name,
        "image": image,
        "command": command,
        "volumeMounts": [GATE],
        "securityContext": LOCKED,
        "resources": sizes("50m", "64Mi"),
    }


def config_map() -> Object:
    """Return the volume of our own files."""
    return {"name": "files", "configMap": {"name": "pdops-files"}}


def empty(name: str) -> Object:
    """Return an empty volume."""
    return {"name": name, "emptyDir": {}}


def secrets(spec: DeploymentSpec, *, optional: bool) -> Object:
    """Return the volume of secrets; engines start without them, the router does not."""

    def one(name: str, key: str, maybe: bool) -> Object:
        return {"secret": {"name": name, "optional": maybe, "items": [{"key": key, "path": key}]}}

    sources = [one("pdops-router-admin", "router_admin_token", optional)] if spec.router is not None else []
    if optional:
        sources.append(one("hf-token", "hf_token", True))
    return {"name": "secrets", "projected": {"defaultMode": 0o440, "sources": sources}}


def sizes(cpu: str, memory: str) -> Object:
    """Return what a small container asks for; memory is its limit, too."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


def tries(budget: int, every_s: int) -> int:
    """Return how many tries fill a budget in seconds."""
    return -(-budget // every_s)


def by_page(path: str, failures: int, every_s: int) -> Object:
    """Return a probe by an HTTP page."""
    return probe({"httpGet": {"path": path, "port": "http"}}, failures, every_s)


def by_command(words: list[str]) -> Object:
    """Return a handler that runs a command."""
    return {"exec": {"command": words}}


def probe(how: Object, failures: int, every_s: int) -> Object:
    """Return a probe."""
    return {**how, "periodSeconds": every_s, "timeoutSeconds": 10, "failureThreshold": failures}


def pre_stop(words: list[str]) -> Object:
    """Return what runs before a container is told to end."""
    return {"preStop": by_command(words)}


def in_shell(words: list[str]) -> list[str]:
    """Return a command whose variables a shell fills in; every word is ours and none holds a quote."""
    return ["/bin/sh", "-c", "exec " + " ".join(f'"{w}"' for w in words)]


def kept(text: str) -> str:
    """Return text that Kubernetes leaves as it is: `$(NAME)` would be filled in."""
    return text.replace("$(", "$$(")
