"""HTTP: alerts in, status out, and what people may decide from afar. Every answer is JSON, errors included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from pdops.errors import JournalError, PdopsError, RefusedError, UsageError
from pdops.respond.alerts import BodyError, TooLargeError, max_bytes, read_delivery, short, too_large, unpacked
from pdops.respond.service import Service
from pdops.respond.status import page, run_status, to_json
from pdops.respond.tokens import Person, Role
from pdops.respond.troubles import NOBODY
from pdops.runbook.journal import Run
from pdops.runbook.timeline import run_json

BODY_S = 10.0
"""A body that comes slower is not waited for; Alertmanager itself gives up after ten seconds."""
MAX_WAITING = 64
"""Requests with a body that are taken at once."""
_RETRY_S = 5
"""When to come again with what could not be written down, in seconds."""
_CODINGS = ("gzip", "deflate", "identity")
_ALERTS = "/alerts"
_RUN = "{run:[A-Za-z0-9._-]{1,128}}"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SHOWN = 200
"""Runs in a list, the newest."""


def app(service: Service) -> web.Application:
    """Return the web application; whoever serves it leaves bodies packed, as `listen` does."""
    made = web.Application(client_max_size=max_bytes(service.settings.max_alerts), middlewares=[_told(service)])
    api = _Api(service)
    made.add_routes(
        [
            web.get("/healthz", api.healthz),
            web.get("/metrics", api.metrics),
            web.get("/status", api.needs(Role.VIEWER, api.status)),
            web.get("/runs", api.needs(Role.VIEWER, api.runs)),
            web.get(f"/runs/{_RUN}", api.needs(Role.VIEWER, api.run)),
            web.post(_ALERTS, api.needs(Role.OPERATOR, api.alerts)),
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
                self._not_taken(request, NOBODY, 401, "no valid token")
                return answer
            if not person.role.may(role):
                self._not_taken(request, person.name, 403, f"it is {person.role}")
                return _error(403, f"{person.name} is {person.role}", f"this needs {role}")
            try:
                return await handler(request, person)
            except _REFUSALS as error:
                answer = _refusal(error)
                self._not_taken(request, person.name, answer.status, short(str(error)))
                return answer

        return handle

    def _not_taken(self, request: web.Request, who: str, status: int, why: str) -> None:
        if request.path == _ALERTS and request.method == "POST":
            self._service.troubles.refused(who, status, why)
            if who != NOBODY:
                self._service.ask_soon()

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
        runs, total = await self._service.intake(lambda i: i.journal.newest(cluster, SHOWN))
        return web.json_response({"runs": [_brief(run) for run in runs], "shown": len(runs), "total": total})

    async def run(self, request: web.Request, _person: Person) -> web.Response:
        name = request.match_info["run"]
        return web.json_response(await self._service.intake(lambda i: run_json(i.journal, i.run(name))))

    async def alerts(self, request: web.Request, person: Person) -> web.Response:
        delivery = read_delivery(await self._body(request), self._service.settings.max_alerts)
        taken = await self._service.take(delivery, person.name)
        if taken.truncated:
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
        coding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in _CODINGS:
            raise BodyError(415, f"Content-Encoding {short(coding)} is not understood", f"send {', '.join(_CODINGS)}")
        if self._waiting.locked():
            raise BodyError(503, "too many requests at once", "send it again")
        async with self._waiting:
            try:
                return unpacked(
                    await asyncio.wait_for(request.read(), BODY_S), coding, max_bytes(self._service.settings.max_alerts)
                )
            except TimeoutError:
                raise BodyError(408, f"the body did not come within {BODY_S:g} s", "send it again") from None
            except (web.HTTPRequestEntityTooLarge, TooLargeError):
                if request.path != _ALERTS:
                    raise BodyError(413, "a body that is too large", _FREEZE_HINT) from None
                raise too_large("a body that is too large", self._service.settings.max_alerts) from None
            except web.RequestPayloadError as error:
                raise BodyError(400, f"the body cannot be read: {error.__cause__ or error}", "send it again") from None
            except ConnectionError:
                raise BodyError(400, "the connection ended before the body did", "send it again") from None


def _told(service: Service) -> Any:
    @web.middleware
    async def middleware(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            answer = await handler(request)
        except _REFUSALS as error:
            answer = _refusal(error)
        service.answers[answer.status] += 1
        if request.content.exception() is not None:
            # What is left of such a body is not read on: the server would end in a traceback.
            answer.force_close()
            request.content.feed_eof()
        return answer

    return middleware


_REFUSALS = (BodyError, web.HTTPException, PdopsError)


def _refusal(error: Exception) -> web.Response:
    """Return what is answered to an error of `_REFUSALS`."""
    match error:
        case BodyError():
            return _error(error.status, str(error), error.hint)
        case web.HTTPException():
            return _error(error.status, error.reason, "GET /status, POST /alerts, GET /runs")
        case JournalError():
            # Whoever delivers must come again; whoever names a run that is not there need not.
            gone = error.what == "no such run"
            return _error(404 if gone else 409 if error.what in _ENDED else 503, str(error), error.hint)
        case RefusedError():
            return _error(409, str(error), error.hint)
        case UsageError():
            return _error(400, str(error), error.hint)
        case PdopsError():
            return _error(503, str(error), error.hint)
    raise error


_ENDED = frozenset({"the run has ended", "a run cannot go there"})


def _error(status: int, what: str, hint: str) -> web.Response:
    more = {503: {"Retry-After": str(_RETRY_S)}, 415: {"Accept-Encoding": ", ".join(_CODINGS)}}.get(status)
    return web.json_response({"error": short(what), "hint": hint}, status=status, headers=more)


_FREEZE_HINT = 'send {"why": "TEXT"}, or no body'


def _why(body: bytes) -> str:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise BodyError(400, "not JSON", _FREEZE_HINT) from None
    why = given.get("why", "") if isinstance(given, dict) else None
    if not isinstance(why, str):
        raise BodyError(422, "not a JSON object whose why is text", _FREEZE_HINT)
    return short(why)


def _brief(run: Run) -> dict[str, Any]:
    status = run_status(run)
    return {name: getattr(status, name) for name in status.__dataclass_fields__}
