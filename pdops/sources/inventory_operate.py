"""What of an inventory pdops may change: the section `operate` of `pdops.yaml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pdops.sources.operate_units import UnitsEntry
from pdops.sources.validate import Strict, Text, refuse

_DNS = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
ObjectName = Annotated[str, Field(pattern=f"^{_DNS}$")]
Role = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOperate:
    """Pools of a Kubernetes namespace. `pools` is KIND/NAME by role, `store` that of the KV store; without a namespace that of the context counts.

    `max_replicas` is by role. `bounds` allows acting through an autoscaler. `kv_lease_s` is in seconds.
    """

    pools: Mapping[str, str]
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    max_replicas: Mapping[str, int] = field(default_factory=dict)
    bounds: bool = False
    kv_lease_s: float = 30.0
    lease: str = "pdops-operator"
    store: str | None = None


class KubernetesOperateEntry(Strict):
    """Pools of a Kubernetes namespace, by role: `StatefulSet/NAME` or `Deployment/NAME`."""

    namespace: ObjectName | None = None
    context: Text | None = None
    kubeconfig: Text | None = None
    pools: Annotated[
        dict[Role, Annotated[str, Field(pattern=f"^(StatefulSet|Deployment)/{_DNS}$")]], Field(min_length=1)
    ]
    store: Annotated[str, Field(pattern=f"^(StatefulSet|Deployment)/{_DNS}$")] | None = None
    max_replicas: dict[Role, Annotated[int, Field(ge=1, le=1000)]] = Field(default_factory=dict)
    autoscalers: Literal["leave", "bounds"] = "leave"
    kv_lease_s: Annotated[float, Field(ge=1, le=3600)] = 30.0
    lease: ObjectName = "pdops-operator"

    @model_validator(mode="after")
    def _pools(self) -> Self:
        named = [*self.pools.values(), *([self.store] if self.store is not None else [])]
        if len(set(named)) < len(named):
            raise refuse("two roles name the same workload", "give each role its own")
        for role in self.max_replicas:
            if role not in self.pools:
                raise refuse(
                    f"max_replicas names {role}, of which there is no pool", "add it to pools, or leave it out"
                )
        return self


class OperateEntry(UnitsEntry):
    """How the cluster is changed."""

    kubernetes: KubernetesOperateEntry | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [name for name in ("kubernetes", "systemd", "compose") if getattr(self, name) is not None]
        if len(given) > 1:
            raise refuse(f"{' and '.join(given)} are given", "one cluster is run by one of them")
        return self


def operated(entry: OperateEntry | None, folder: str) -> KubernetesOperate | None:
    """Return what of Kubernetes may be changed, None when nothing is; a kubeconfig is relative to `folder`."""
    given = entry.kubernetes if entry is not None else None
    if given is None:
        return None
    return KubernetesOperate(
        pools={str(role): text for role, text in given.pools.items()},
        namespace=given.namespace,
        context=given.context,
        kubeconfig=None if given.kubeconfig is None else os.path.join(folder, os.path.expanduser(given.kubeconfig)),
        max_replicas={str(role): most for role, most in given.max_replicas.items()},
        bounds=given.autoscalers == "bounds",
        kv_lease_s=given.kv_lease_s,
        lease=given.lease,
        store=given.store,
    )
