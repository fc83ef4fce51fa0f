"""Routers' admin APIs: which workers they know, and changing that; found by asking what a router can do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import requests

from pdops.actuate.backend import Capabilities, Effect, Fence, Params, Seen, State
from pdops.clock import Clock
from pdops.errors import ActionError

TIMEOUT_S = (2.0, 10.0)
"""To connect and to answer, in seconds: a router that needs longer for a list of workers is not well."""
_LIMIT = 4 << 20
_PIECE = 1 << 16
ACTIONS = ("router.add", "router.remove", "worker.cordon", "worker.uncordon")


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


class _Http:
    def __init__(self, url: str, token_file: Path | None) -> None:
        self.url, self._token_file = url.rstrip("/"), token_file

    def ask(self, method: str, path: str, content: object = None, *, fine: tuple[int, ...] = ()) -> tuple[int, Any]:
        """Return status and JSON; statuses of `fine` are answers too."""
        headers = {}
        try:
            if self._token_file is not None:
                headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='utf-8').strip()}"
            with requests.Session() as session:
                # An admin call goes where the inventory says, through no proxy and to no other address.
                session.trust_env = False
                answer = session.request(
                    method, self.url + path, json=content, headers=headers, timeout=TIMEOUT_S, allow_redirects=False,
                    stream=True,
                )  # fmt: skip
                body = b""
                # Not `raw`, whose errors for an answer that stalls or is cut off are none of those caught here.
                for piece in answer.iter_content(_PIECE):
                    body += piece
                    if len(body) >= _LIMIT:
                        break
        except (OSError, requests.RequestException) as error:
            raise ActionError(
                "the router does not answer",
                where=self.url,
                why=str(error)[:300],
                hint="check its address and token file",
            ) from error
        try:
            told = json.loads(body) if body else None
        except ValueError:
            told = body[:300].decode("utf-8", "replace")
        if not (200 <= answer.status_code < 300 or answer.status_code in fine):
            raise ActionError(
                f"the router says {answer.status_code}",
                where=f"{self.url}{path}",
                why=str(told)[:300],
                hint="see its log",
            )
        return answer.status_code, told


class PdopsRouter(_Http):
    """The admin API of `pdops router`.

    Args:
        url: of the router.
        token_file: what it was started with as --admin-token-file.
    """

    def capabilities(self) -> Capabilities:
        """Offer everything when the list of workers can be read with this token."""
        try:
            self.workers()
        except ActionError as error:
            return Capabilities(frozenset(), dict.fromkeys(ACTIONS, str(error)))
        return Capabilities(frozenset(ACTIONS))

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
            status, _ = self.ask("DELETE", f"/admin/workers/{quote(worker, safe='')}", fine=(404,))
            return Effect(changed=status != 404, detail=f"{worker} is not routed")
        wanted = action == "worker.cordon"
        if there is not None and there.cordoned is wanted:
            return Effect(changed=False, detail=f"{worker} is so already")
        self.ask("POST", f"/admin/workers/{quote(worker, safe='')}/{'cordon' if wanted else 'uncordon'}")
        return Effect(changed=True, detail=f"{worker} is {'cordoned' if wanted else 'not cordoned'}")


class VllmRouter(_Http):
    """vllm-router in its static prefill/decode mode: workers can be taken out, and never put back before a restart.

    So it has no cordon, which is a removal that can be taken back.

    Args:
        url: of the router.
        ids: address of a worker to its id; the router knows addresses only.
    """

    def __init__(self, url: str, ids: Mapping[str, str]) -> None:
        super().__init__(url, None)
        self._ids = {address.rstrip("/"): worker for address, worker in ids.items()}

    def capabilities(self) -> Capabilities:
        """Offer removal where the list of workers can be read."""
        one_way = "this router cannot take a worker back before it is restarted"
        missing = dict.fromkeys(("router.add", "worker.cordon", "worker.uncordon"), one_way)
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
    """Return what a router tells of workers, as values of a state; those it does not know are not routed.

    Args:
        admin: the router.
        ids: every worker of the cluster, id to role.
    """
    source = f"router {admin.url}"
    try:
        there = admin.workers()
    except ActionError as error:
        return {f"worker/{w}/{part}": Seen(None, source, str(error)) for w in ids for part in ("routed", "cordoned")}
    values = {}
    for worker in {*ids, *there}:
        known = there.get(worker)
        values[f"worker/{worker}/routed"] = Seen(known is not None, source)
        cordoned = known.cordoned if known is not None else False
        why = "" if cordoned is not None else "the router does not say"
        values[f"worker/{worker}/cordoned"] = Seen(cordoned, source, why)
    return values


class RouterBackend:
    """A cluster of which only the router can be changed.

    Args:
        admin: the router.
        workers: id of each worker to its role and address.
        clock: where time comes from.
    """

    def __init__(self, admin: RouterAdmin, workers: Mapping[str, tuple[str, str]], clock: Clock) -> None:
        self._admin, self._workers, self._clock = admin, dict(workers), clock

    @property
    def name(self) -> str:
        """What people call it."""
        return f"router {self._admin.url}"

    def capabilities(self) -> Capabilities:
        """Return what the router offers."""
        return self._admin.capabilities()

    def observe(self) -> State:
        """Return what the inventory and the router tell."""
        values = {f"worker/{w}/role": Seen(role, "inventory") for w, (role, _) in self._workers.items()}
        values |= routed_values(self._admin, {w: role for w, (role, _) in self._workers.items()})
        return State(at_s=self._clock.now(), values=values)

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:  # noqa: ARG002  routers know no fences
        """Do one of the router's actions. See `Backend.apply`; the router itself turns no older fence away."""
        worker = str(params.get("worker"))
        if worker not in self._workers:
            raise ActionError("no such worker", where=worker, hint="add it to the inventory")
        if (refusal := self.capabilities().refusal(action)) is not None:
            raise ActionError(f"{action} is not offered", where=self.name, why=refusal, hint="use another backend")
        return self._admin.set(action, worker, *self._workers[worker])
