"""Backends over the double of an API server, with a double of a router's admin API in front of the pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pdops.actuate.backend import Capabilities, Effect, Fence, Value
from pdops.actuate.kubernetes import KubernetesBackend
from pdops.actuate.kubernetes_api import Api
from pdops.actuate.kubernetes_connect import connect
from pdops.actuate.kubernetes_model import Operated, Workload
from pdops.actuate.router_admin import ACTIONS, SETTINGS, Known
from pdops.clock import VirtualClock
from pdops.reference.render.rbac import operator_rules
from tests.actuate.kubernetes_double import SPACE, TOKEN, KubernetesDouble, serving
from tests.reference.render.plans import PLANS

POOLS = {role: Workload(kind="StatefulSet", name=role) for role in ("prefill", "decode")}
RULES: list[dict[str, Any]] = operator_rules(PLANS["1p1d"][0])


@dataclass
class RouterDouble:
    """A router's admin API in memory; `held` are requests in flight by worker."""

    url: str = "http://router"
    cordons_by_removal: bool = False
    cordoned: dict[str, bool] = field(default_factory=dict)
    held: dict[str, int | None] = field(default_factory=dict)
    done: list[tuple[str, str]] = field(default_factory=list)
    meanwhile: Callable[[], None] | None = None
    without: frozenset[str] = frozenset()

    def capabilities(self) -> Capabilities:
        missing = dict.fromkeys(SETTINGS, "the router's admin API cannot change it")
        return Capabilities(frozenset(ACTIONS) - self.without, missing | dict.fromkeys(self.without, "it cannot"))

    def settings(self) -> Mapping[str, Value]:
        return {}

    def change(self, name: str, value: Value) -> Effect:
        raise AssertionError(f"{name} {value}")

    def workers(self) -> Mapping[str, Known]:
        return {
            w: Known(role=w.rpartition("-")[0], url=f"http://{w}", cordoned=c, up=True, inflight=self.held.get(w, 0))
            for w, c in self.cordoned.items()
        }

    def set(self, action: str, worker: str, role: str, url: str) -> Effect:
        self.done.append((action, worker))
        if self.meanwhile is not None:
            self.meanwhile()
        if action == "router.remove":
            return Effect(changed=self.cordoned.pop(worker, None) is not None)
        self.cordoned[worker] = action == "worker.cordon"
        return Effect(changed=True)


class Kit:
    """One API server and as many backends as a test wants.

    Args:
        path: a folder of the test.
        rules: of the account; None allows everything.
    """

    def __init__(self, path: Path, rules: list[dict[str, Any]] | None = None) -> None:
        self.clock = VirtualClock(1_800_000_000.0)
        self.double = KubernetesDouble(self.clock, rules)
        self.router = RouterDouble()
        self._path = path
        self._open = ExitStack()
        self.url = self._open.enter_context(serving(self.double))

    def __enter__(self) -> Kit:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def pools(self, prefill: int = 2, decode: int = 2, **more: Any) -> None:
        """Make both pools, known to the router."""
        for role, count in (("prefill", prefill), ("decode", decode)):
            self.double.workload(role, count, **more)
            self.router.cordoned |= {f"{role}-{i}": False for i in range(count)}

    def autoscaler(self, role: str, low: int, high: int, wish: int, **meta: Any) -> None:
        """Give a pool an autoscaler whose load asks for `wish` workers."""
        target = {"kind": "StatefulSet", "name": role}
        spec = {"scaleTargetRef": target, "minReplicas": low, "maxReplicas": high}
        obj = {"metadata": {"name": role, **meta}, "spec": spec, "status": {"wish": wish}}
        self.double.put("horizontalpodautoscalers", obj)

    def api(self, kind: type[Api] = Api) -> Api:
        """Connect as people do: by a kubeconfig. `kind` is for ones that do something wrong."""
        clock = self.clock
        file = self._path / "kubeconfig"
        file.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": "c",
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": {"token": TOKEN}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": SPACE}}],
                }
            )
        )  # fmt: skip
        made = connect(kubeconfig=str(file), context=None, namespace=None, clock=clock, sleep=clock.advance)
        return made if kind is Api else kind(made._client, made.namespace, clock, clock.advance)

    def backend(
        self, holder: str = "me", *, router: bool = True, api: Api | None = None, canary: Any = None, **operated: Any
    ) -> KubernetesBackend:
        """Return a backend of its own."""
        asked = Operated(**({"pools": POOLS, "max_replicas": {"prefill": 4, "decode": 4}} | operated))
        return KubernetesBackend(
            api or self.api(), asked, self.router if router else None, address=lambda w: f"http://{w}.x", canary=canary,
            holder=holder,
        )  # fmt: skip

    def meanwhile(self, verb: str, resource: str, *changes: Callable[[], None]) -> None:
        """Let others act right before the next such calls are carried out."""
        self.double.before[verb, resource] = list(changes)


def out(backend: KubernetesBackend, replicas: int, number: int = 1, role: str = "prefill") -> Effect:
    """Add one worker to a pool."""
    params = {"role": role, "worker": f"{role}-{replicas - 1}", "replicas": replicas}
    return backend.apply("pool.scale-out", params, Fence("run", number))


def kits(path: Path, rules: list[dict[str, Any]] | None = None) -> Iterator[Kit]:
    """Yield a kit, for fixtures."""
    with Kit(path, rules) as kit:
        yield kit
