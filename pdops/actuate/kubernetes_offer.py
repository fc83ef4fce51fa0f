"""What the Kubernetes backend offers, and for the rest why not: the account, the workloads or the router do not allow it."""

from __future__ import annotations

from pdops.actuate.backend import Capabilities
from pdops.actuate.kubernetes_api import AUTOSCALERS, LEASES, PODS, SERVICES, Api
from pdops.actuate.kubernetes_may import Need, Rights
from pdops.actuate.kubernetes_model import ROUTED, Operated, Workload
from pdops.actuate.kubernetes_read import Reader
from pdops.actuate.kubernetes_store import ACTIONS as STORE_ACTIONS
from pdops.actuate.router_admin import ACTIONS as ROUTER_ACTIONS
from pdops.actuate.router_admin import SETTINGS
from pdops.errors import PdopsError

CORDON = ("worker.cordon", "worker.uncordon")
_NEVER = {
    "store.bypass": "the engines' store connector has no switch for it",
    "store.use": "the engines' store connector has no switch for it",
    "worker.start": "a workload starts its own pods; add one with pool.scale-out",
    "worker.stop": "a workload makes a stopped pod again; take one out with pool.scale-in",
    "worker.reconfigure": "options are in the manifests; change and apply them",
    "autoscaler.pause": "an autoscaler has no switch; where the inventory allows it its bounds are set",
    "autoscaler.resume": "an autoscaler has no switch; where the inventory allows it its bounds are set",
}


class Offer:
    """Finds out what can be done.

    Args:
        api: whom it would be done to.
        operated: which pools.
        reader: reads them.
        rights: asks what the account may do.
    """

    def __init__(self, api: Api, operated: Operated, reader: Reader, rights: Rights) -> None:
        self._api, self._operated, self._reader, self._rights = api, operated, reader, rights

    def capabilities(self, routes: Capabilities | None, *, canary: bool) -> Capabilities:
        """Return what is offered with a router that offers `routes`, None without one, and with or without canaries."""
        missing = dict(_NEVER)
        missing |= dict(routes.missing) if routes is not None else {}
        whys = {name: self._why_not(name) for name in ("pool.scale-out", "pool.scale-in", "worker.restart")}
        whys |= {"worker.drain": None, "pair.canary": None if canary else "no pairs are known to send one through"}
        if routes is None:
            whys |= dict.fromkeys((*ROUTER_ACTIONS, *SETTINGS), "the inventory gives no router with an admin API")
            whys |= dict.fromkeys(CORDON, self.why_no_label())
            whys["pool.scale-in"] = "without a router's admin API nobody tells whether a worker is empty"
        else:
            whys |= {name: routes.refusal(name) for name in (*ROUTER_ACTIONS, *SETTINGS)}
        store = self._operated.store
        whys |= dict.fromkeys(STORE_ACTIONS, "the inventory names no workload of a KV store")
        if store is not None:
            whys |= {name: self._rights.missing(_store_needs(store, name)) for name in STORE_ACTIONS}
        lease = self._rights.missing(self._lease_needs())
        missing |= {name: str(why or lease) for name, why in whys.items() if why or lease}
        return Capabilities(frozenset(whys.keys() - missing.keys()), missing)

    def _why_not(self, action: str) -> str | None:
        for role, workload in self._operated.pools.items():
            sized = action.startswith("pool.")
            if not sized and workload.kind != "StatefulSet":
                return f"pods of {workload} are called otherwise after a restart"
            if action == "pool.scale-out" and (workload.kind != "StatefulSet" or workload.name != role):
                return f"a new pod of {workload} is not called {role}-N, so nobody knows it beforehand"
        return self._rights.missing(self._needs(action))

    def _needs(self, action: str) -> tuple[Need, ...]:
        look: list[Need] = [("list", PODS, "")]
        if action == "worker.restart":
            return (*look, ("get", PODS, ""), ("delete", PODS, ""), ("watch", PODS, ""))
        for workload in self._operated.pools.values():
            look += [("get", workload.resource, workload.name)]
            look += [("get", workload.scale, workload.name), ("update", workload.scale, workload.name)]
            if action == "pool.scale-in" and workload.kind == "Deployment":
                look += [("patch", PODS, "")]
        look.append(("list", AUTOSCALERS, ""))
        if self._operated.bounds:
            look.append(("update", AUTOSCALERS, ""))
        return (*look, ("watch", PODS, "")) if action == "pool.scale-in" else tuple(look)

    def _lease_needs(self) -> tuple[Need, ...]:
        name = self._operated.lease
        return (("get", LEASES, name), ("update", LEASES, name), ("create", LEASES, ""))

    def why_no_label(self) -> str | None:
        """Return why workers cannot be cordoned by a label, None when they can."""
        if why := self._rights.missing((("list", SERVICES, ""), ("get", PODS, ""), ("patch", PODS, ""))):
            return why
        try:
            for role in self._operated.pools:
                pods = self._reader.pool(role).pods
                if not pods:
                    return f"no pod of {role} can be read"
                if not self._reader.selected(pods[0].labels):
                    return f"no Service chooses the pods of {role} by the label {ROUTED}"
        except PdopsError as error:
            return str(error)
        return None


def _store_needs(workload: Workload, action: str) -> tuple[Need, ...]:
    look: tuple[Need, ...] = (("get", workload.resource, workload.name), ("list", PODS, ""), ("watch", PODS, ""))
    if action == "store.restart":
        return (*look, ("get", PODS, ""), ("delete", PODS, ""))
    return (*look, ("get", workload.scale, workload.name), ("update", workload.scale, workload.name))
