"""What may be changed: the deployment an inventory belongs to, what it says it operates, else its router."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from pdops.cli.inputs import Inputs
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.actuate.backend import Backend
    from pdops.actuate.router_admin import RouterAdmin
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

        running = Running.open(place)
        router: RouterAdmin | None = None
        if running.spec.router is not None and running.spec.router.kind == "pdops":
            router = PdopsRouter(running.router_url, running.admin_token_file)
        elif running.spec.router is not None:
            router = VllmRouter(running.router_url, {e.url: e.id for e in running.spec.engines})
        return LocalBackend(Operated(place), router, WallClock(), time.sleep)
    inventory = inputs.inventory()
    if inventory is not None and inventory.operate is not None:
        from pdops.cli.backend_kubernetes import kubernetes_backend

        return kubernetes_backend(inventory, inventory.operate, _admin(inventory))
    return _router(inventory) if inventory is not None else None


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
            hint="give -c with the inventory of a deployment of `pdops up`, one with `operate:`, or one whose router has `admin:`",
        )
    return found


def _router(inventory: Inventory) -> Backend | None:
    from pdops.actuate.router_admin import RouterBackend
    from pdops.clock import WallClock

    admin = _admin(inventory)
    return RouterBackend(admin, _serving(inventory), WallClock()) if admin is not None else None


def _serving(inventory: Inventory) -> dict[str, tuple[str, str]]:
    """Return role and address of each engine, by id."""
    from pdops.model.cluster import Role

    return {
        w.id: (w.role.value, w.url)
        for w in inventory.cluster.workers
        if w.role in (Role.PREFILL, Role.DECODE) and w.url
    }


def _admin(inventory: Inventory) -> RouterAdmin | None:
    """Return the admin API of the first router that has one."""
    from pdops.actuate.router_admin import PdopsRouter, VllmRouter
    from pdops.model.cluster import Role

    for router in inventory.cluster.of_role(Role.ROUTER):
        given = inventory.admin.get(router.id)
        if router.engine == "pdops_router" and given is not None:
            return PdopsRouter(given.url.rstrip("/").removesuffix("/admin"), _path(given.secret.bearer_token_file))
        if router.engine == "vllm_router" and router.url:
            return VllmRouter(router.url, {url: worker for worker, (_, url) in _serving(inventory).items()})
    return None


def _path(text: str | None) -> Path | None:
    return Path(text) if text is not None else None
