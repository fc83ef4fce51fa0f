"""The admin API: workers come, go and are cordoned; settings that may change; drills."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from pdops.router.drills import Drill
from pdops.router.handler import error_response
from pdops.router.live import changed
from pdops.router.settings import RouterError, Settings, WorkerSpec, role_name, worker_id, worker_url, zone_name
from pdops.router.workers import DuplicateWorkerError, Registry, UnknownWorkerError, Worker

log = logging.getLogger(__name__)
_SENT = "send an object, as curl does with --json"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _LateError(RouterError):
    """A body that did not come in its time."""


class Live(Protocol):
    """Whose settings are shown and changed."""

    @property
    def settings(self) -> Settings:
        """Limits and choices as they are now."""
        ...

    def change(self, settings: Settings) -> None:
        """Let others hold from now on."""
        ...


class Admin:
    """Answers below `/admin`.

    Args:
        live: holds the settings.
        registry: the workers.
        drill: the fault that is on.
        token: what callers must bear; None switches the API off.
        persist: keeps the workers over a restart; raises RouterError when it cannot.
    """

    def __init__(
        self,
        live: Live,
        registry: Registry,
        drill: Drill,
        token: str | None,
        persist: Callable[[], None],
    ) -> None:
        self._live, self._registry, self._drill = live, registry, drill
        self._token, self._persist = token, persist
        self.look_at: Callable[[Worker], Awaitable[None]] | None = None

    def add_to(self, app: web.Application) -> None:
        """Add the routes."""
        routes: tuple[tuple[str, str, _Handler], ...] = (
            ("GET", "/admin/settings", self._shown),
            ("POST", "/admin/settings", self._change),
            ("GET", "/admin/workers", self._list),
            ("POST", "/admin/workers", self._add),
            ("DELETE", "/admin/workers/{id}", self._remove),
            ("POST", "/admin/workers/{id}/cordon", self._cordon),
            ("POST", "/admin/workers/{id}/uncordon", self._uncordon),
            ("GET", "/admin/drills", self._show_drill),
            ("POST", "/admin/drills", self._set_drill),
        )
        for method, path, handler in routes:
            app.router.add_route(method, path, self._guarded(handler))

    def _guarded(self, handler: _Handler) -> _Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            if self._token is None:
                return error_response(403, "the admin API is off; start the router with --admin-token-file")
            kind, _, given = request.headers.get("Authorization", "").partition(" ")
            right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token.encode())
            if kind.lower() != "bearer" or not right:
                answer = error_response(401, "expected Authorization: Bearer with the admin token")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
            try:
                return await handler(request)
            except UnknownWorkerError as error:
                return error_response(404, _told(error))
            except DuplicateWorkerError as error:
                return error_response(409, _told(error))
            except _LateError as error:
                return error_response(408, _told(error))
            except RouterError as error:
                return error_response(400, _told(error))

        return guarded

    async def _shown(self, _request: web.Request) -> web.Response:
        return web.json_response(self._live.settings.shown())

    async def _change(self, request: web.Request) -> web.Response:
        wanted = await self._object(request)
        self._live.change(changed(self._live.settings, wanted))
        log.warning("settings changed by the admin API: %s", {k: getattr(self._live.settings, k) for k in wanted})
        return await self._shown(request)

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response({"workers": [w.shown() for w in self._registry.workers.values()]})

    async def _add(self, request: web.Request) -> web.Response:
        wanted = await self._object(request)
        if unknown := set(wanted) - {"id", "role", "url", "zone"}:
            raise RouterError(
                "not a worker", why=f"unknown key {sorted(unknown)[0]!r}", hint="known are id, role, url, zone"
            )
        spec = WorkerSpec(
            id=worker_id(wanted.get("id")),
            role=role_name(wanted.get("role")),
            url=worker_url(wanted.get("url")),
            zone=zone_name(wanted.get("zone")),
        )
        worker = self._registry.add(spec)
        if self.look_at is not None:
            await self.look_at(worker)
        return self._changed(worker, "added", 201)

    async def _remove(self, request: web.Request) -> web.Response:
        return self._changed(self._registry.remove(worker_id(request.match_info["id"])), "removed", 200)

    async def _cordon(self, request: web.Request) -> web.Response:
        worker = self._registry.cordon(worker_id(request.match_info["id"]), cordoned=True)
        return self._changed(worker, "cordoned", 200)

    async def _uncordon(self, request: web.Request) -> web.Response:
        worker = self._registry.cordon(worker_id(request.match_info["id"]), cordoned=False)
        return self._changed(worker, "uncordoned", 200)

    def _changed(self, worker: Worker, what: str, status: int) -> web.Response:
        log.warning("worker %s %s by the admin API", worker.id, what)
        try:
            self._persist()
        except RouterError as error:
            # The change holds until the next start; whoever made it must know that it will be lost then.
            message = f"worker {worker.id} {what}, but this will be lost at a restart: {error}"
            return error_response(507, message)
        return web.json_response(worker.shown(), status=status)

    async def _show_drill(self, _request: web.Request) -> web.Response:
        self._drills_allowed()
        return web.json_response(self._drill.shown())

    async def _set_drill(self, request: web.Request) -> web.Response:
        self._drills_allowed()
        self._drill.switch(await self._object(request))
        log.warning("drill: %s", self._drill.shown())
        return web.json_response(self._drill.shown())

    def _drills_allowed(self) -> None:
        if not self._live.settings.allow_drills:
            raise UnknownWorkerError("drills are off", hint="start the router with --allow-drills")

    async def _object(self, request: web.Request) -> dict[str, object]:
        limit_s = self._live.settings.body_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                content = await request.json()
        except TimeoutError:
            raise _LateError(f"the body did not come within {limit_s:g} s", hint="send it again") from None
        except (ValueError, RecursionError) as error:
            raise RouterError("the body is not JSON", why=str(error), hint=_SENT) from None
        if not isinstance(content, dict):
            raise RouterError("the body is not a JSON object", hint=_SENT)
        return content


def _told(error: RouterError) -> str:
    return f"{error}; hint: {error.hint}" if error.hint else str(error)
