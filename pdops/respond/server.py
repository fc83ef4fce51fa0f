"""HTTP: alerts in, status out, and what people may decide from afar. Every answer is JSON, errors included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from pdops.errors import FencedError, JournalError, PdopsError, RefusedError, UsageError
from pdops.respond.alerts import MAX_BODY_BYTES, BodyError, read_delivery, short
from pdops.respond.service import Service
from pdops.respond.status import page, run_status, to_json
from pdops.respond.tokens import Person, Role
from pdops.runbook.journal import Run
from pdops.runbook.timeline import run_json

BODY_S = 10.0
"""A body that comes slower is not waited for; Alertmanager itself gives up after ten seconds."""
MAX_WAITING = 64
"""Requests with a body that are taken at once."""
_RUN = "{run:[A-Za-z0-9._-]{1,128}}"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SHOWN = 200
"""Runs in a list, the newest."""


def app(service: Service) -> web.Application:
    """Return the web application."""
    made = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_told(service)])
    api = _Api(service)
    made.add_routes(
        [
            web.get("/healthz", api.healthz),
            web.get("/metrics", api.metrics),
            web.get("/status", api.needs(Role.VIEWER, api.status)),
            web.get("/runs", api.needs(Role.VIEWER, api.runs)),
            web.get(f"/runs/{_RUN}", api.needs(Role.VIEWER, api.run)),
            web.post("/alerts", api.needs(Role.OPERATOR, api.alerts)),
            web.post(f"/runs/{_RUN}/approve", api.needs(Role.APPROVER, api.approve)),
            web.post(f"/runs/{_RUN}/abort", api.needs(Role.OPERATOR, api.abort)),
            web.post(f"/runs/{_RUN}/resume", api.needs(Role.OPERATOR, api.resume)),
            web.post("/freeze", api.needs(Role.OPERATOR, api.freeze)),
            web.post("/thaw", api.needs(Role.ADMIN, api.thaw)),
        ]
    )
    return made


class _Api:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting = asyncio.Semaphore(MAX_WAITING)

    def needs(self, role: Role, handler: Callable[[web.Request, Person], Awaitable[web.StreamResponse]]) -> _Handler:
        """Return a handler that only lets in who has a role."""

        async def handle(request: web.Request) -> web.StreamResponse:
            person = self._service.settings.tokens.who(request.headers.get("Authorization"))
            if person is None:
                answer = _error(401, "no valid token", "send Authorization: Bearer TOKEN")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
            if not person.role.may(role):
                return _error(403, f"{person.name} is {person.role}", f"this needs {role}")
            return await handler(request, person)

        return handle

    async def healthz(self, _: web.Request) -> web.Response:
        failure = self._service.failure()
        if failure is not None:
            return _error(503, "a part of it has ended", "start it again")
        return web.json_response({"ok": True})

    async def metrics(self, _: web.Request) -> web.Response:
        body = page(await self._service.status(), dict(self._service.answers))
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def status(self, _request: web.Request, _person: Person) -> web.Response:
        return web.Response(text=to_json(await self._service.status()), content_type="application/json")

    async def runs(self, _request: web.Request, _person: Person) -> web.Response:
        cluster = self._service.settings.cluster
        runs = await self._service.intake(lambda i: [r for r in i.journal.runs() if r.cluster == cluster][-SHOWN:])
        return web.json_response({"runs": [_brief(run) for run in runs]})

    async def run(self, request: web.Request, _person: Person) -> web.Response:
        name = request.match_info["run"]
        return web.json_response(await self._service.intake(lambda i: run_json(i.journal, i.run(name))))

    async def alerts(self, request: web.Request, person: Person) -> web.Response:
        delivery = read_delivery(await self._body(request))
        taken = await self._service.take(delivery, person.name)
        if taken.truncated and self._service.manager.there:
            self._service.ask_soon()
        told = {"new": taken.new, "known": taken.known, "invalid": taken.invalid, "truncated": taken.truncated}
        return web.json_response(told)

    async def approve(self, request: web.Request, person: Person) -> web.Response:
        run = await self._service.intake(lambda i: i.approve(request.match_info["run"], person))
        self._service.wake()
        return web.json_response(_brief(run))

    async def abort(self, request: web.Request, person: Person) -> web.Response:
        run = await self._service.intake(lambda i: i.abort(request.match_info["run"], person))
        if not run.ended:
            self._service.carry_on(run.id)
        return web.json_response(_brief(run))

    async def resume(self, request: web.Request, person: Person) -> web.Response:
        run = await self._service.intake(lambda i: i.resumable(request.match_info["run"], person))
        self._service.carry_on(run.id)
        return web.json_response(_brief(run), status=202)

    async def freeze(self, request: web.Request, person: Person) -> web.Response:
        body = await self._body(request)
        why = _why(body) if body else ""
        return web.json_response({"frozen": await self._service.intake(lambda i: i.freeze(person, why))})

    async def thaw(self, _request: web.Request, person: Person) -> web.Response:
        return web.json_response({"frozen": await self._service.intake(lambda i: i.thaw(person))})

    async def _body(self, request: web.Request) -> bytes:
        if self._waiting.locked():
            raise BodyError(503, "too many requests at once")
        async with self._waiting:
            try:
                return await asyncio.wait_for(request.read(), BODY_S)
            except TimeoutError:
                raise BodyError(408, f"the body did not come within {BODY_S:g} s") from None


def _told(service: Service) -> Any:
    @web.middleware
    async def middleware(request: web.Request, handler: _Handler) -> web.StreamResponse:
        answer = await _answered(request, handler)
        service.answers[answer.status] += 1
        return answer

    return middleware


async def _answered(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except BodyError as error:
        return _error(error.status, str(error), "send what Alertmanager's webhook sends")
    except web.HTTPException as error:
        return _error(error.status, error.reason, "GET /status, POST /alerts, GET /runs")
    except FencedError as error:
        return _error(409, str(error), error.hint)
    except RefusedError as error:
        return _error(409, str(error), error.hint)
    except JournalError as error:
        # Whoever delivers must come again; whoever names a run that is not there need not.
        return _error(
            404 if error.what == "no such run" else 409 if error.what in _ENDED else 503, str(error), error.hint
        )
    except UsageError as error:
        return _error(400, str(error), error.hint)
    except PdopsError as error:
        return _error(503, str(error), error.hint)


_ENDED = frozenset({"the run has ended", "a run cannot go there"})


def _error(status: int, what: str, hint: str) -> web.Response:
    return web.json_response({"error": short(what), "hint": hint}, status=status)


def _why(body: bytes) -> str:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BodyError(400, "not JSON") from None
    why = given.get("why", "") if isinstance(given, dict) else None
    if not isinstance(why, str):
        raise BodyError(422, 'expected {"why": "TEXT"}')
    return short(why)


def _brief(run: Run) -> dict[str, Any]:
    status = run_status(run)
    return {name: getattr(status, name) for name in status.__dataclass_fields__}
