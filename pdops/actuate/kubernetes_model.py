"""What of Kubernetes objects matters here: pools, their pods, and the names that pdops gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pdops.actuate.kubernetes_api import DEPLOYMENTS, STATEFUL_SETS, Resource

Object = dict[str, Any]
WorkloadKind = Literal["StatefulSet", "Deployment"]
ROUTED = "pdops.dev/routed"
"""Label of pods and selector of a Service: a worker that has another value than `true` gets no new requests from it."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation by which a Deployment chooses the pod that goes first; the lowest does."""
LEASE = "pdops-operator"
GPU = "nvidia.com/gpu"
RESOURCES: Mapping[str, Resource] = {"StatefulSet": STATEFUL_SETS, "Deployment": DEPLOYMENTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The object that keeps the workers of a pool: `kind` and `name`."""

    kind: WorkloadKind
    name: str

    @property
    def resource(self) -> Resource:
        """Where it is found."""
        return RESOURCES[self.kind]

    @property
    def scale(self) -> Resource:
        """Where its number of replicas is set."""
        return Resource(self.resource.api, self.resource.plural, "scale")

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operated:
    """Which part of a cluster is changed, and how.

    `pools` is by role. `max_replicas` is how far a pool may grow, by role. `bounds` allows acting through an autoscaler.
    `kv_lease_s` is how long prefill keeps KV that nobody pulled, in seconds. `store` keeps the one pod of the KV store,
    whose id is `store_id`.
    """

    pools: Mapping[str, Workload]
    max_replicas: Mapping[str, int] = field(default_factory=dict)
    bounds: bool = False
    kv_lease_s: float = 30.0
    lease: str = LEASE
    store: Workload | None = None
    store_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A worker's pod. `restarts` are those of its first container."""

    name: str
    uid: str
    version: str
    role: str
    labels: Mapping[str, str]
    phase: str
    ready: bool | None
    ending: bool
    unplaced: bool
    restarts: int
    image: str
    grace_s: float
    gpus: int


def selector_text(workload: Object) -> str:
    """Return the selector of a workload as the API takes it; empty when it has none that can be written so."""
    chosen = (workload.get("spec") or {}).get("selector") or {}
    labels = [f"{k}={v}" for k, v in sorted((chosen.get("matchLabels") or {}).items())]
    for one in chosen.get("matchExpressions") or []:
        key, values = one.get("key"), ",".join(one.get("values") or [])
        texts = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        if one.get("operator") not in texts:
            return ""
        labels.append(str(texts[one["operator"]]))
    return ",".join(labels)


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether labels carry all that a selector wants; one that wants nothing selects nothing here."""
    return bool(selector) and all(labels.get(k) == v for k, v in selector.items())


def pod(role: str, found: Object) -> Pod:
    """Read a pod; what is missing in it reads as not ready and not placed."""
    meta, spec, status = found.get("metadata") or {}, found.get("spec") or {}, found.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    containers = spec.get("containers") or [{}]
    counts = [int(c.get("restartCount") or 0) for c in status.get("containerStatuses") or []]
    limits = [((c.get("resources") or {}).get("limits") or {}).get(GPU, 0) for c in containers]
    grace = spec.get("terminationGracePeriodSeconds")
    return Pod(
        name=str(meta.get("name", "")),
        uid=str(meta.get("uid", "")),
        version=str(meta.get("resourceVersion", "")),
        role=role,
        labels=meta.get("labels") or {},
        phase=str(status.get("phase", "")),
        ready={"True": True, "False": False}.get((conditions.get("Ready") or {}).get("status", "False")),
        ending=meta.get("deletionTimestamp") is not None,
        unplaced=(conditions.get("PodScheduled") or {}).get("reason") == "Unschedulable",
        restarts=sum(counts),
        image=str(containers[0].get("image", "")),
        grace_s=float(30 if grace is None else grace),
        gpus=sum(int(n) for n in limits if str(n).isdigit()),
    )


def rolling(workload: Object) -> tuple[bool | None, str]:
    """Return whether a workload is inside a rollout, and why so or why that is not known."""
    meta, spec, status = (workload.get(part) or {} for part in ("metadata", "spec", "status"))
    seen, wanted = status.get("observedGeneration"), meta.get("generation")
    if not isinstance(seen, int) or not isinstance(wanted, int):
        return None, "its controller has not looked at it yet"
    if seen < wanted:
        return True, "its controller has not seen the newest change"
    now, fresh = status.get("currentRevision"), status.get("updateRevision")
    if now is not None and now != fresh:
        return True, f"revision {fresh} replaces {now}"
    updated, there = status.get("updatedReplicas") or 0, int(spec["replicas"])
    if workload.get("kind") == "Deployment" and updated < there:
        return True, f"{updated} of {there} are as they should be"
    return False, ""


def first_ordinal(workload: Object) -> int:
    """Return the number of a StatefulSet's first pod."""
    return int(((workload.get("spec") or {}).get("ordinals") or {}).get("start") or 0)
