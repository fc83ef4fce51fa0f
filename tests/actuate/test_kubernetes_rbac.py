"""The Role we render allows exactly the calls that the backend makes: none is missing, none is unused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pdops.actuate.backend import Fence
from pdops.actuate.kubernetes_model import LEASE, ROUTED, Workload
from pdops.reference.render import Settings, render
from pdops.reference.render.rbac import OPERATOR
from pdops.reference.spec import RouterSpec
from tests.actuate.kubernetes_double import Object
from tests.actuate.kubernetes_kit import Kit, out
from tests.reference.render.plans import plan


def rendered(router: bool) -> tuple[list[Object], dict[str, list[Object]]]:
    """Return the rules of the operator's Role, and all objects by kind, as they are in the files."""
    # Without a router there is no store either: two deployments that differ in all that matters.
    spec = replace(plan(2, 2, store=router), router=RouterSpec(port=1) if router else None)
    kinds: dict[str, list[Object]] = {}
    for path, text in render(spec, "kubernetes", Settings(exporter=False)).items():
        if path.startswith("base/") and path.endswith(".yaml") and "files/" not in path:
            for found in yaml.safe_load_all(text):
                kinds.setdefault(found["kind"], []).append(found)
    role = next(r for r in kinds["Role"] if r["metadata"]["name"] == OPERATOR)
    return role["rules"], kinds


def everything(kit: Kit, router: bool) -> None:
    """Do all that is offered, and what it leads to."""
    kit.pools(labels={ROUTED: "true"})
    for role in ("prefill", "decode"):
        kit.double.put("services", {"metadata": {"name": role}, "spec": {"selector": {"role": role, ROUTED: "true"}}})
        kit.double.put("poddisruptionbudgets", {"metadata": {"name": role}, "spec": {"selector": {"matchLabels": {"role": role}}}, "status": {"disruptionsAllowed": 1}})  # fmt: skip
    backend = kit.backend(router=router, max_replicas={}, **stored(kit, router))
    backend.observe()
    offered = backend.capabilities().offered
    assert {"pool.scale-out", "worker.cordon", "worker.uncordon", "worker.restart", "worker.drain"} <= offered
    for number, role in enumerate(("prefill", "decode"), 1):
        out(backend, 3, number, role)
        backend.apply("worker.cordon", {"worker": f"{role}-0"}, Fence("run", number))
        # Something else about the pod changes meanwhile, so that it has to be read again.
        kit.meanwhile(
            "delete", "pods", lambda r=role: kit.double.change("pods", f"{r}-0", lambda p: p["status"].update(n=1))
        )  # type: ignore[misc]
        kit.double.pods_linger = True
        kit.meanwhile("watch", "pods", lambda r=role: kit.double.end_pod(f"{r}-0"))  # type: ignore[misc]
        backend.apply("worker.restart", {"worker": f"{role}-0", "starts": 2}, Fence("run", number))
        kit.double.pods_linger = False
        backend.apply("worker.uncordon", {"worker": f"{role}-0"}, Fence("run", number))
        if router:
            kit.router.cordoned[f"{role}-2"] = False
            backend.apply("pool.scale-in", {"role": role, "worker": f"{role}-2", "replicas": 2}, Fence("run", number))

    if router:
        backend.apply("store.restart", {"store": "store-0", "starts": 2}, Fence("run", 9))
        backend.apply("store.stop", {"store": "store-0"}, Fence("run", 9))
        backend.apply("store.start", {"store": "store-0"}, Fence("run", 9))


def stored(kit: Kit, there: bool) -> dict[str, Any]:
    """Make a store where there is one."""
    if not there:
        return {}
    kit.double.workload("kvstore", 1, kind="Deployment", name="store")
    return {"store": Workload(kind="Deployment", name="store"), "store_id": "store-0"}


@pytest.mark.parametrize("router", [True, False])
def test_the_role_allows_exactly_what_is_called(tmp_path: Path, router: bool) -> None:
    rules, _ = rendered(router)
    with Kit(tmp_path, rules) as kit:
        everything(kit, router)
        called = set(kit.double.calls)
        assert kit.double.denied == []
    allowed: set[tuple[str, str, str, str]] = set()
    used: set[tuple[str, str, str, str]] = set()
    for rule in rules:
        for verb in rule["verbs"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", ["*"]):
                    key = (verb, rule["apiGroups"][0], resource, name)
                    allowed.add(key)
                    if any(c[:3] == key[:3] and name in ("*", c[3]) for c in called):
                        used.add(key)
    assert used == allowed
    assert not any("*" in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]] for rule in rules)


@pytest.mark.parametrize("router", [True, False])
def test_taking_any_single_right_away_is_noticed(tmp_path: Path, router: bool) -> None:
    """Every rule is needed: without any one of its verbs something is refused or not known any more."""
    rules, _ = rendered(router)
    for index, rule in enumerate(rules):
        for verb in rule["verbs"]:
            fewer = [*rules[:index], {**rule, "verbs": [v for v in rule["verbs"] if v != verb]}, *rules[index + 1 :]]
            with Kit(tmp_path, fewer) as kit:
                kit.pools(labels={ROUTED: "true"})
                for role in ("prefill", "decode"):
                    kit.double.put(
                        "services", {"metadata": {"name": role}, "spec": {"selector": {"role": role, ROUTED: "true"}}}
                    )
                backend = kit.backend(router=router, max_replicas={}, **stored(kit, router))
                whys = [*backend.capabilities().missing.values(), *(s.why for s in backend.observe().values.values())]
            what = rule["resources"][0]
            assert any(f"may not {verb} {what}" in why for why in whys), (verb, what)


@pytest.mark.parametrize("router", [True, False])
def test_the_account_is_bound_and_nothing_runs_as_it(router: bool) -> None:
    _, kinds = rendered(router)
    bindings = {b["roleRef"]["name"]: [s["name"] for s in b["subjects"]] for b in kinds["RoleBinding"]}
    assert bindings[OPERATOR] == [OPERATOR]
    assert OPERATOR in {a["metadata"]["name"] for a in kinds["ServiceAccount"]}
    for found in (*kinds["StatefulSet"], *kinds.get("Deployment", [])):
        assert found["spec"]["template"]["spec"]["serviceAccountName"] != OPERATOR
    assert "ClusterRole" not in kinds


def test_without_a_router_the_service_chooses_by_the_label_that_cordons() -> None:
    _, kinds = rendered(router=False)
    for name in ("prefill", "decode"):
        service = next(s for s in kinds["Service"] if s["metadata"]["name"] == name)
        workload = next(s for s in kinds["StatefulSet"] if s["metadata"]["name"] == name)
        assert service["spec"]["selector"][ROUTED] == "true"
        assert workload["spec"]["template"]["metadata"]["labels"][ROUTED] == "true"
        # A workload that chose by it would make a second pod of the name.
        assert ROUTED not in workload["spec"]["selector"]["matchLabels"]
    _, kinds = rendered(router=True)
    assert ROUTED not in str(kinds)
    assert LEASE in str(kinds["Role"])


CORE = ("v1", "apps/v1", "policy/v1", "networking.k8s.io/v1", "rbac.authorization.k8s.io/v1")


@pytest.mark.parametrize("router", [True, False])
def test_what_is_rendered_is_what_the_api_takes(router: bool) -> None:
    _, kinds = rendered(router)
    checked = [o for found in kinds.values() for o in found if o["apiVersion"] in CORE]
    for found in checked:
        kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)
    assert {"Role", "RoleBinding", "StatefulSet", "Service", "ServiceAccount"} <= {o["kind"] for o in checked}
