"""Pools of a Kubernetes namespace as a backend."""

from __future__ import annotations

from collections.abc import Callable

from pdops.actuate.backend import Capabilities, Effect, Fence, Params, Seen, State
from pdops.actuate.kubernetes_api import Api
from pdops.actuate.kubernetes_change import Changes, routed_by_label
from pdops.actuate.kubernetes_drain import emptied
from pdops.actuate.kubernetes_lease import Leader
from pdops.actuate.kubernetes_may import Rights
from pdops.actuate.kubernetes_model import ROUTED, Operated, Pod
from pdops.actuate.kubernetes_offer import CORDON, Offer
from pdops.actuate.kubernetes_read import Pool, Reader
from pdops.actuate.kubernetes_store import ACTIONS as STORE_ACTIONS
from pdops.actuate.kubernetes_store import Store
from pdops.actuate.kubernetes_write import Writer
from pdops.actuate.router_admin import SETTINGS, RouterAdmin, routed_values, set_of
from pdops.errors import ActionError
from pdops.model.frame import Probe

Canary = Callable[[str], tuple[Probe, ...]]


class KubernetesBackend:
    """Changes the pools of one namespace: scale, restart, drain, and cordon by the router or by a label.

    Args:
        api: the namespace.
        operated: its pools.
        router: the admin API in front of them, None without one.
        address: where a worker serves, by its id.
        canary: sends a request through every pair of a worker, None where nobody can.
        holder: the name of this process in the lease; no other may have it.
    """

    def __init__(
        self, api: Api, operated: Operated, router: RouterAdmin | None, *, address: Callable[[str], str],
        canary: Canary | None, holder: str,
    ) -> None:  # fmt: skip
        self._api, self._operated, self._router = api, operated, router
        self._address, self._canary = address, canary
        self._reader, self._rights = Reader(api, operated), Rights(api)
        self._offer = Offer(api, operated, self._reader, self._rights)
        self._leader = Leader(api, operated.lease, holder)
        writer = Writer(api, self._leader)
        self._changes = Changes(api, self._reader, writer, self._leader)
        self._writer = writer
        self._store = Store(operated, self._reader, writer, self._changes) if operated.store is not None else None

    @property
    def name(self) -> str:
        """What people call it."""
        return f"kubernetes {self._api.server} {self._api.namespace}"

    def capabilities(self) -> Capabilities:
        """Return what the account, the workloads and the router allow."""
        routes = self._router.capabilities() if self._router is not None else None
        return self._offer.capabilities(routes, canary=self._canary is not None)

    def observe(self) -> State:
        """Return what the namespace and the router tell."""
        values = self._reader.observe()
        roles = {
            s.split("/")[1]: str(v.value) for s, v in values.items() if s.startswith("worker/") and s.endswith("/role")
        }
        if self._router is not None:
            values |= routed_values(self._router, roles)
            values |= self._inflight(tuple(roles))
        else:
            values |= self._by_label()
        if self._store is not None:
            values |= self._store.observe()
        return State(at_s=self._api.clock.now(), values=values)

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:
        """Do one action while holding the lease. See `Backend.apply`."""
        if (refusal := self.capabilities().refusal(action)) is not None:
            raise ActionError(f"{action} is not offered", where=self.name, why=refusal, hint="plan something else")
        self._leader.take(fence)
        try:
            return self._do(action, params)
        finally:
            self._leader.give_back()

    def _do(self, action: str, params: Params) -> Effect:
        if action in SETTINGS:
            assert self._router is not None, "offered only with a router"
            return set_of(self._router, action, params)
        worker = str(params.get("worker"))
        if action == "pool.scale-out":
            return self._changes.scale_out(self._pool(str(params.get("role"))), worker, params.get("replicas"))
        if action == "pool.scale-in":
            return self._scale_in(str(params.get("role")), worker, params)
        if action in STORE_ACTIONS:
            assert self._store is not None, "offered only with one"
            return self._store.apply(action, str(params.get("store")), params.get("starts"))
        if action == "router.add":
            role = next((r for r in self._operated.pools if self._find(worker, r)), None)
            if role is None:
                raise self._unknown(worker)
            return self._by_router(action, worker, role)
        if action == "router.remove":
            return self._by_router(action, worker, "")
        role, found = self._one(worker)
        if action in CORDON:
            return self._cordon(found, action == "worker.cordon")
        if action == "pair.canary":
            assert self._canary is not None, "offered only with one"
            probes = self._canary(worker)
            good = sum(p.ok is True for p in probes)
            return Effect(changed=False, detail=f"{good} of {len(probes)} pairs answered right", probes=probes)
        if action == "worker.drain":
            # Emptiness over a whole lease is verified by who asked; here it only must get nothing new.
            held = self._held(worker)
            return Effect(changed=False, detail=f"{held if held is not None else '?'} in flight")
        return self._changes.restart(self._pool(role), worker, params.get("starts"))

    def _scale_in(self, role: str, worker: str, params: Params) -> Effect:
        replicas = params.get("replicas")
        effect = self._changes.may_scale_in(self._pool(role), worker, replicas)
        if effect is None:
            found = self._find(worker, role)
            if found is not None:
                self._empty(found)
            effect = self._changes.scale_in(self._pool(role), worker, replicas)
        # An autoscaler that was only allowed to end it may keep it for a while.
        gone = self._router is not None and self._find(worker, role) is None
        if gone and self.capabilities().refusal("router.remove") is None:
            self._by_router("router.remove", worker, role)
        return effect

    def _empty(self, found: Pod) -> None:
        known = self._router.workers() if self._router is not None else {}
        routed = found.name in known if self._router is not None else routed_by_label(found)
        if not routed and not found.ready:
            # One that never served and that nobody routes to holds nothing.
            return
        if routed:
            if (refusal := self.capabilities().refusal("worker.cordon")) is not None:
                raise ActionError(
                    "new requests cannot be kept away from it", where=found.name, why=refusal, hint="use another router"
                )
            self._cordon(found, True)
        lease_s = self._operated.kv_lease_s

        def held() -> int | None:
            # Who is not routed gets nothing; what still runs in it is waited for by the pod itself as it ends.
            return self._held(found.name) if routed else 0

        emptied(found.name, found.role, held, self._leader, self._api.clock, self._api.sleep, lease_s)

    def _cordon(self, found: Pod, wanted: bool) -> Effect:
        if self._router is not None:
            return self._by_router("worker.cordon" if wanted else "worker.uncordon", found.name, found.role)
        if routed_by_label(found) is not wanted:
            return Effect(changed=False, detail=f"{found.name} is so already")
        return self._writer.mark(found, "labels", ROUTED, "false" if wanted else "true")

    def _by_router(self, action: str, worker: str, role: str) -> Effect:
        assert self._router is not None, "offered only with a router"
        self._leader.keep()
        return self._router.set(action, worker, role, self._address(worker) if action == "router.add" else "")

    def _held(self, worker: str) -> int | None:
        seen = self._inflight((worker,)).get(f"worker/{worker}/inflight")
        return seen.value if seen is not None and isinstance(seen.value, int) else None

    def _inflight(self, workers: tuple[str, ...]) -> dict[str, Seen]:
        if self._router is None:
            return {}
        source = f"router {self._router.url}"
        try:
            known = self._router.workers()
        except ActionError as error:
            return {f"worker/{w}/inflight": Seen(None, source, str(error)) for w in workers}
        found = {}
        for worker in workers:
            there = known.get(worker)
            held = there.inflight if there is not None else None
            why = "" if held is not None else f"the router does not {'know it' if there is None else 'say'}"
            found[f"worker/{worker}/inflight"] = Seen(held, source, why)
        return found

    def _by_label(self) -> dict[str, Seen]:
        if self._offer.why_no_label() is not None:
            return {}
        pods = [p for role in self._operated.pools for p in self._reader.pool(role).pods or ()]
        return {f"worker/{p.name}/cordoned": Seen(not routed_by_label(p), f"label {ROUTED}") for p in pods}

    def _pool(self, role: str) -> Pool:
        if role not in self._operated.pools:
            raise ActionError("no such pool", where=role, hint="the inventory names the workloads")
        return self._reader.pool(role)

    def _find(self, worker: str, role: str) -> Pod | None:
        pool = self._pool(role)
        if pool.pods is None:
            # Not to be seen is not to be gone.
            raise ActionError("the pods cannot be read", where=role, why=pool.why, hint="check the account's rights")
        return next((p for p in pool.pods if p.name == worker), None)

    def _one(self, worker: str) -> tuple[str, Pod]:
        for role in self._operated.pools:
            if (found := self._find(worker, role)) is not None:
                return role, found
        raise self._unknown(worker)

    def _unknown(self, worker: str) -> ActionError:
        return ActionError("no such pod", where=worker, why=f"not in {self._api.namespace}", hint="`kubectl get pods`")
