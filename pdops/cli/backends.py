"""What may be changed: the deployment an inventory belongs to, else what its `operate:` and its router offer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pdops.cli.inputs import Inputs
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.actuate.backend import Backend
    from pdops.actuate.joined import Controls
    from pdops.actuate.local import Deployment
    from pdops.actuate.router_admin import RouterAdmin
    from pdops.model.frame import Probe
    from pdops.sources.inventory import Inventory


def backend_for(inputs: Inputs) -> Backend | None:
    """Return the backend of the inventory that is given with -c, or None where there is nothing that can be changed.

    Raises:
        InventoryError: the inventory is not valid.
    """
    if inputs.config is None or inputs.replay is not None:
        return None
    from pdops.clock import WallClock
    from pdops.reference.state import Home

    place = Home(inputs.config.absolute().parent)
    if place.file.is_file() and place.inventory.exists() and place.inventory.samefile(inputs.config):
        from pdops.actuate.local import LocalBackend
        from pdops.actuate.router_admin import PdopsRouter, VllmRouter
        from pdops.reference.operate import Operated
        from pdops.reference.running import Running
        from pdops.reference.spec import Profile

        running = Running.open(place)
        if running.spec.profile is Profile.SIM:
            why = "a simulated deployment has no router to change"
            return LocalBackend(Operated(place), None, WallClock(), time.sleep, no_router=why)
        router: RouterAdmin | None = None
        if running.spec.router is not None and running.spec.router.kind == "pdops":
            router = PdopsRouter(running.router_url, running.admin_token_file)
        elif running.spec.router is not None:
            router = VllmRouter(running.router_url, {e.url: e.id for e in running.spec.engines})
        return LocalBackend(Operated(place), router, WallClock(), time.sleep)
    inventory = inputs.inventory()
    return _of_inventory(inventory) if inventory is not None else None


def needed_backend(inputs: Inputs) -> Backend:
    """Return the backend of the inventory.

    Raises:
        UsageError: there is none.
    """
    found = backend_for(inputs)
    if found is None:
        raise UsageError(
            "nothing is known that could be changed",
            where=str(inputs.config or ""),
            hint="give -c with the inventory of a deployment of `pdops up`, or one that has `operate:` or a router with `admin:`",
        )
    return found


def _of_inventory(inventory: Inventory) -> Backend | None:
    """Return what an inventory names: pods, units or services with the router, else the router alone; and further controls."""
    from pdops.actuate.fences import FenceFile
    from pdops.actuate.joined import JoinedBackend
    from pdops.actuate.local import LocalBackend
    from pdops.actuate.router_admin import RouterBackend
    from pdops.clock import WallClock

    router = _router(inventory)
    memory = _memory(inventory)
    base: Backend | None = None
    if inventory.operate is not None:
        from pdops.cli.backend_kubernetes import kubernetes_backend

        base = kubernetes_backend(inventory, inventory.operate, router)
    elif (deployment := _units(inventory, memory)) is not None:
        base = LocalBackend(deployment, router, WallClock(), time.sleep, no_router=_no_router(inventory))
    elif router is not None:
        base = RouterBackend(router, _served(inventory), WallClock(), FenceFile(memory / "router.fence"))
    controls = _controls(inventory)
    if base is None or not controls:
        return base
    return JoinedBackend(base, controls, FenceFile(memory / "controls.fence"))


def _served(inventory: Inventory) -> dict[str, tuple[str, str]]:
    from pdops.model.cluster import Role

    spares = {s.id: (s.role.value, s.url) for s in inventory.units.spares} if inventory.units else {}
    workers = inventory.cluster.workers
    return {w.id: (w.role.value, w.url) for w in workers if w.role in (Role.PREFILL, Role.DECODE) and w.url} | spares


def _memory(inventory: Inventory) -> Path:
    """Return the folder where this user keeps what backends of a cluster must remember."""
    import hashlib

    from pdops.reference.folders import user_folder

    where = f"{inventory.cluster.name}\0{Path(inventory.path or '').absolute()}"
    name = hashlib.sha256(where.encode()).hexdigest()[:16]
    return user_folder("XDG_STATE_HOME", ".local/state") / "pdops" / "backends" / name


def _router(inventory: Inventory) -> RouterAdmin | None:
    from pdops.actuate.router_admin import PdopsRouter, VllmRouter
    from pdops.actuate.sglang_router import SglangRouter
    from pdops.clock import WallClock
    from pdops.model.cluster import Role

    ids = {url: worker for worker, (_, url) in _served(inventory).items()}
    for router in inventory.cluster.of_role(Role.ROUTER):
        given = inventory.admin.get(router.id)
        if router.engine == "pdops_router" and given is not None:
            return PdopsRouter(given.url.rstrip("/").removesuffix("/admin"), _path(given.secret.bearer_token_file))
        if router.engine == "vllm_router" and router.url:
            return VllmRouter(router.url, ids)
        if router.engine == "sglang_router" and router.url:
            token = _path(given.secret.bearer_token_file) if given is not None else None
            return SglangRouter(given.url if given is not None else router.url, ids, WallClock(), time.sleep, token)
    return None


def _no_router(inventory: Inventory) -> str:
    """Return why the inventory's router, where `_router` returns none, changes nothing."""
    from pdops.model.cluster import Role

    routers = inventory.cluster.of_role(Role.ROUTER)
    if not routers:
        return "the inventory has no router"
    first = routers[0]
    if first.engine == "pdops_router":
        return f"the inventory gives no admin: for {first.id}"
    if first.engine in ("vllm_router", "sglang_router"):
        return f"the inventory gives no url: for {first.id}"
    return f"{first.id} is a {first.engine or 'router of an unknown kind'}, which pdops cannot change"


def _units(inventory: Inventory, memory: Path) -> Deployment | None:
    from pdops.actuate.supervisors import Compose, Supervisor, Systemd
    from pdops.actuate.units import Managed, UnitDeployment

    units = inventory.units
    if units is None or units.supervisor is None:
        return None
    supervisor: Supervisor = Systemd(user=units.supervisor == "systemd-user")
    if units.supervisor == "compose":
        assert units.compose_file is not None
        supervisor = Compose(Path(units.compose_file), units.project)
    spares = {s.id: s for s in units.spares}
    known = {w.id: (w.role.value, w.url or "") for w in inventory.cluster.workers}
    managed = []
    for worker, unit in units.names.items():
        spare = spares.get(worker)
        role, url = (spare.role.value, spare.url) if spare is not None else known[worker]
        managed.append(Managed(id=worker, role=role, unit=unit, url=url, spare=spare is not None))
    return UnitDeployment(supervisor, managed, memory, units.kv_lease_s, lambda worker: _canary(inventory, worker))


def _canary(inventory: Inventory, worker: str) -> tuple[Probe, ...]:
    """Send a request through every pair of a worker, a spare that runs by now included."""
    from pdops.clock import WallClock
    from pdops.model.cluster import Endpoint, Worker
    from pdops.probe.of_worker import of_worker

    spare = next((s for s in inventory.units.spares if s.id == worker), None) if inventory.units else None
    fresh = None
    if spare is not None:
        ends = (Endpoint(f"{spare.url}/metrics"),)
        fresh = Worker(id=spare.id, role=spare.role, pool=spare.role.value, url=spare.url, endpoints=ends)
    return of_worker(inventory.cluster, worker, WallClock(), fresh)


def _controls(inventory: Inventory) -> list[Controls]:
    from pdops.actuate.engine_admin import EngineAdmin
    from pdops.actuate.stores import LmcacheBypass, MooncakeMaster
    from pdops.model.cluster import Role

    found: list[Controls] = []
    units = inventory.units
    stores = inventory.cluster.of_role(Role.KVSTORE)
    for store in stores:
        page = next((e.url for e in store.endpoints if e.engine in (None, "mooncake")), None)
        if store.engine == "mooncake" and page is not None:
            found.append(MooncakeMaster(store.id, page.removesuffix("/metrics")))
    if units is not None and units.lmcache_store is not None:
        found.append(LmcacheBypass(units.lmcache_store, units.lmcache_urls, units.lmcache_backend))
    if (
        units is not None
        and units.supervisor is not None
        and (engines := {w: url for w, (_, url) in _served(inventory).items()})
    ):
        found.append(EngineAdmin(engines))
    return found


def _path(text: str | None) -> Path | None:
    return Path(text) if text is not None else None
