"""What pdops' accounts may do in the namespace of a rendered deployment."""

from __future__ import annotations

from typing import Any

from pdops.actuate.kubernetes_model import LEASE
from pdops.reference.render.labels import ENGINES, metadata
from pdops.reference.spec import DeploymentSpec

Object = dict[str, Any]
_GROUP = "rbac.authorization.k8s.io"
READER = "pdops-reader"
OPERATOR = "pdops-operator"


def roles(spec: DeploymentSpec) -> list[Object]:
    """Return a role that may look at pods, and one that may change pools, with their bindings."""
    looks = [_rule("", ["pods"], ["get", "list", "watch"])]
    return [*_role(spec, READER, looks), *_role(spec, OPERATOR, operator_rules(spec))]


def operator_rules(spec: DeploymentSpec) -> list[Object]:
    """Return exactly what the Kubernetes backend calls: sizes of the engines' pools, single pods, its own lease."""
    pods = ["get", "list", "watch", "delete"]
    # Without a router workers are cordoned by a label, which a Service asks for.
    by_label = [] if spec.router is not None else [_rule("", ["services"], ["list"])]
    return [
        _rule("", ["pods"], [*pods, "patch"] if by_label else pods),
        *by_label,
        _rule("", ["resourcequotas"], ["list"]),
        _rule("apps", ["statefulsets"], ["get"], ENGINES),
        _rule("apps", ["statefulsets/scale"], ["get", "update"], ENGINES),
        *(_STORE if spec.store is not None else []),
        _rule("autoscaling", ["horizontalpodautoscalers"], ["list"]),
        _rule("policy", ["poddisruptionbudgets"], ["list"]),
        # A rule for one name cannot allow making it.
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "update"], (LEASE,)),
    ]


def _rule(group: str, resources: list[str], verbs: list[str], names: tuple[str, ...] = ()) -> Object:
    rule: Object = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule | ({"resourceNames": list(names)} if names else {})


_STORE = [
    _rule("apps", ["deployments"], ["get"], ("store",)),
    _rule("apps", ["deployments/scale"], ["get", "update"], ("store",)),
]


def _role(spec: DeploymentSpec, name: str, rules: list[Object]) -> list[Object]:
    meta = metadata(spec, name, "access")
    return [
        {"apiVersion": f"{_GROUP}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name}],
        },
    ]
