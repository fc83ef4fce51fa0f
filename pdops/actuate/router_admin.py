"""Routers' admin APIs: which workers they know, and changing that; found by asking what a router can do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from pdops.actuate.admin_http import AdminHttp
from pdops.actuate.backend import Capabilities, Effect, Fence, Params, Seen, State, Value
from pdops.actuate.fences import FenceFile
from pdops.clock import Clock
from pdops.errors import ActionError, FencedError

ACTIONS = ("router.add", "router.remove", "worker.cordon", "worker.uncordon")
SETTINGS = {
    "router.policy": "policy",
    "router.admit": "admit_ratio",
    "router.salt": "salt_ratio",
    "router.limit": "limit",
}
"""Actions that set something of the router itself, and what they set; a limit is named by the action's own parameter."""
_LIVE = ("policy", "admit_ratio", "salt_ratio", "queue_limit", "max_inflight_prefill", "max_inflight_decode")
START_OPTIONS = dict.fromkeys(SETTINGS, "the router reads it when it starts, and its admin API cannot change it")
"""Why a router's settings are not changed while it runs, where they are not."""
_ONLY = "only the router can be changed here; what else may be is named under operate of the inventory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A worker as a router knows it; None where the router does not say."""

    role: str | None
    url: str
    cordoned: bool | None
    up: bool | None
    inflight: int | None


class RouterAdmin(Protocol):
    """What backends need of a router."""

    cordons_by_removal: bool
    """Whether a cordon of it is a removal that can be taken back."""

    @property
    def url(self) -> str:
        """Where it is."""
        ...

    def capabilities(self) -> Capabilities:
        """Return which of the router's actions it offers now."""
        ...

    def workers(self) -> Mapping[str, Known]:
        """Return the workers by id, or by address where it knows no ids.

        Raises:
            ActionError: it does not tell.
        """
        ...

    def set(self, action: str, worker: str, role: str, url: str) -> Effect:
        """Do one of its actions; what is so already is no error.

        Raises:
            ActionError: it could not be done.
        """
        ...

    def settings(self) -> Mapping[str, Value]:
        """Return what of the router itself can be changed while it runs, by name; nothing where nothing can.

        Raises:
            ActionError: it does not tell.
        """
        ...

    def change(self, name: str, value: Value) -> Effect:
        """Set one of those.

        Raises:
            ActionError: it could not be done.
        """
        ...


class PdopsRouter(AdminHttp):
    """The admin API of `pdops router`.

    Args:
        url: of the router.
        token_file: what it was started with as --admin-token-file.
    """

    who, cordons_by_removal = "the router", False

    def capabilities(self) -> Capabilities:
        """Offer what can be read with this token: the list of workers, and the settings."""
        offered: set[str] = set()
        missing: dict[str, str] = {}
        try:
            self.workers()
            offered |= {*ACTIONS}
            known = self.settings()
        except ActionError as error:
            return Capabilities(frozenset(), dict.fromkeys((*ACTIONS, *SETTINGS), str(error)))
        if all(name in known for name in _LIVE):
            offered |= {*SETTINGS}
        else:
            missing = START_OPTIONS
        return Capabilities(frozenset(offered), missing)

    def settings(self) -> Mapping[str, Value]:
        """Return what can be changed while it runs. See `RouterAdmin.settings` for what is raised."""
        _, told = self.ask("GET", "/admin/settings")
        if not isinstance(told, dict):
            raise ActionError("the router's settings make no sense", where=self.url, hint="is it a pdops router?")
        return {name: told[name] for name in _LIVE if isinstance(told.get(name), str | int | float)}

    def change(self, name: str, value: Value) -> Effect:
        """Set one of those. See `RouterAdmin.change`."""
        if self.settings().get(name) == value:
            return Effect(changed=False, detail=f"{name} is {value} already")
        _, told = self.ask("POST", "/admin/settings", {name: value})
        now = told.get(name) if isinstance(told, dict) else None
        if now != value:
            raise ActionError(
                "the router kept another value", where=name, why=f"{now}, not {value}", hint="see its log"
            )
        return Effect(changed=True, detail=f"{name} is {value}")

    def workers(self) -> Mapping[str, Known]:
        """Return the workers by id. See `RouterAdmin.workers` for what is raised."""
        _, told = self.ask("GET", "/admin/workers")
        try:
            return {
                w["id"]: Known(role=w["role"], url=w["url"], cordoned=w["cordoned"], up=w["up"], inflight=w["inflight"])
                for w in told["workers"]
            }
        except (KeyError, TypeError) as error:
            raise ActionError(
                "the router's list of workers makes no sense", where=self.url, hint="is it a pdops router?"
            ) from error

    def set(self, action: str, worker: str, role: str, url: str) -> Effect:
        """Do one of the actions. See `RouterAdmin.set`."""
        there = self.workers().get(worker)
        if action == "router.add":
            if there is not None:
                if there.url.rstrip("/") != url.rstrip("/"):
                    raise ActionError(
                        "the router has another worker of that id", where=worker, why=there.url, hint="remove it first"
                    )
                return Effect(changed=False, detail=f"{worker} is routed")
            self.ask("POST", "/admin/workers", {"id": worker, "role": role, "url": url})
            return Effect(changed=True, detail=f"{worker} is routed")
        if action == "router.remove":
            if there is None:
                return Effect(changed=False, detail=f"{worker} is not routed")
            status, _ = self.ask("DELETE", f"/admin/workers/{quote(worker, safe='')}", fine=(404,))
            return Effect(changed=status != 404, detail=f"{worker} is not routed")
        wanted = action == "worker.cordon"
        if there is not None and there.cordoned is wanted:
            return Effect(changed=False, detail=f"{worker} is so already")
        self.ask("POST", f"/admin/workers/{quote(worker, safe='')}/{'cordon' if wanted else 'uncordon'}")
        return Effect(changed=True, detail=f"{worker} is {'cordoned' if wanted else 'not cordoned'}")


class Unchanging:
    """A router of which nothing but its workers can be changed while it runs."""

    def settings(self) -> Mapping[str, Value]:
        """Return nothing: it tells none, and none can be changed."""
        return {}

    def change(self, name: str, value: Value) -> Effect:  # noqa: ARG002  the protocol's
        """Refuse. See `RouterAdmin.change`."""
        raise ActionError(f"{name} cannot be changed", why="this router has no way to", hint="restart it")


class VllmRouter(Unchanging, AdminHttp):
    """vllm-router in its static prefill/decode mode: workers can be taken out, and never put back before a restart.

    So it has no cordon, which is a removal that can be taken back.

    Args:
        url: of the router.
        ids: address of a worker to its id; the router knows addresses only.
    """

    who, cordons_by_removal = "the router", False

    def __init__(self, url: str, ids: Mapping[str, str]) -> None:
        super().__init__(url)
        self._ids = {address.rstrip("/"): worker for address, worker in ids.items()}

    def capabilities(self) -> Capabilities:
        """Offer removal where the list of workers can be read."""
        one_way = "this router cannot take a worker back before it is restarted"
        missing = START_OPTIONS | dict.fromkeys(("router.add", "worker.cordon", "worker.uncordon"), one_way)
        try:
            self.workers()
        except ActionError as error:
            return Capabilities(frozenset(), {**missing, "router.remove": str(error)})
        return Capabilities(frozenset({"router.remove"}), missing)

    def workers(self) -> Mapping[str, Known]:
        """Return the workers by id. See `RouterAdmin.workers` for what is raised."""
        _, told = self.ask("GET", "/workers")
        try:
            entries = told["workers"] if isinstance(told, dict) else told
            found = {}
            for entry in entries:
                url = str(entry["url"]).rstrip("/")
                role = entry.get("role") or entry.get("worker_type")
                found[self._ids.get(url, url)] = Known(
                    role=str(role).lower() if role else None, url=url, cordoned=False, up=entry.get("is_healthy"), inflight=entry.get("load"),
                )  # fmt: skip
        except (KeyError, TypeError, AttributeError) as error:
            raise ActionError(
                "the router's list of workers makes no sense", where=self.url, hint="is it a vllm-router?"
            ) from error
        return found

    def set(self, action: str, worker: str, role: str, url: str) -> Effect:  # noqa: ARG002  the protocol's
        """Remove a worker. See `RouterAdmin.set`."""
        refusal = self.capabilities().refusal(action)
        if refusal is not None:
            raise ActionError(
                f"{action} is not offered", where=self.url, why=refusal, hint="restart the router with another list"
            )
        there = self.workers().get(worker)
        if there is None:
            return Effect(changed=False, detail=f"{worker} is not routed")
        self.ask("DELETE", f"/workers/{quote(there.url, safe='')}", fine=(404,))
        return Effect(changed=True, detail=f"{worker} is not routed")


def routed_values(admin: RouterAdmin, ids: Mapping[str, str]) -> dict[str, Seen]:
    """Return what a router tells of workers and of itself, as values of a state; those it does not know are not routed.

    Args:
        admin: the router.
        ids: every worker of the cluster, id to role.
    """
    source = f"router {admin.url}"
    try:
        there, itself = admin.workers(), admin.settings()
    except ActionError as error:
        return {f"worker/{w}/{part}": Seen(None, source, str(error)) for w in ids for part in ("routed", "cordoned")}
    values = {f"router/{name}": Seen(value, source) for name, value in itself.items()}
    for worker in {*ids, *there}:
        known = there.get(worker)
        values[f"worker/{worker}/routed"] = Seen(known is not None, source)
        # Where a cordon is a removal, who is not listed is cordoned.
        cordoned = known.cordoned if known is not None else admin.cordons_by_removal
        why = "" if cordoned is not None else "the router does not say"
        values[f"worker/{worker}/cordoned"] = Seen(cordoned, source, why)
    return values


class RouterBackend:
    """A cluster of which only the router can be changed.

    Args:
        admin: the router.
        workers: id of each worker to its role and address.
        clock: where time comes from.
        fences: keeps older runs away, which routers themselves do not; None lets everybody in.
    """

    def __init__(
        self, admin: RouterAdmin, workers: Mapping[str, tuple[str, str]], clock: Clock, fences: FenceFile | None = None
    ) -> None:
        self._admin, self._workers, self._clock, self._fences = admin, dict(workers), clock, fences

    @property
    def name(self) -> str:
        """What people call it."""
        return f"router {self._admin.url}"

    def capabilities(self) -> Capabilities:
        """Return what the router offers."""
        told = self._admin.capabilities()
        return Capabilities(told.offered, told.missing, _ONLY)

    def observe(self) -> State:
        """Return what the inventory and the router tell."""
        values = {f"worker/{w}/role": Seen(role, "inventory") for w, (role, _) in self._workers.items()}
        values |= routed_values(self._admin, {w: role for w, (role, _) in self._workers.items()})
        return State(at_s=self._clock.now(), values=values)

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:
        """Do one of the router's actions. See `Backend.apply`."""
        worker = str(params.get("worker"))
        if action not in SETTINGS and worker not in self._workers:
            raise ActionError("no such worker", where=worker, hint="add it to the inventory")
        if (refusal := self.capabilities().refusal(action)) is not None:
            raise ActionError(f"{action} is not offered", where=self.name, why=refusal, hint="use another backend")
        with self._fences.alone(fence.number) if self._fences is not None else nullcontext(True) as first:
            if not first:
                raise FencedError("another run has been here since", where=self.name, hint="see `pdops runbook log`")
            if action in SETTINGS:
                return set_of(self._admin, action, params)
            return self._admin.set(action, worker, *self._workers[worker])


def set_of(admin: RouterAdmin, action: str, params: Params) -> Effect:
    """Do an action of `SETTINGS`.

    Raises:
        ActionError: it could not be done.
    """
    name = str(params.get("limit")) if action == "router.limit" else SETTINGS[action]
    return admin.change(name, params.get("value"))
