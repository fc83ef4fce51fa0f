"""Requests to a Kubernetes API server: bounded in time and size, with what went wrong said by verb and resource."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from pdops.clock import Clock
from pdops.errors import ActionError, BusyError
from pdops.sources.redact import redact_urls

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Object = dict[str, Any]
Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]
TIMEOUT_S = (3.0, 10.0)
"""To connect and to wait for the next bytes, in seconds."""
ANSWER_S = 30.0
"""The longest one answer may take as a whole, in seconds; watches have a limit of their own."""
PATIENCE_S = 20.0
"""How long a server that says "too many requests" is waited for in one call, in seconds, all its waits together."""
_LIMIT = 16 << 20
_PIECE = 1 << 16
_PAGE = 500
_PAGES = 20
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


class ApiError(ActionError):
    """The API server said no, or nothing. `status` is its HTTP status, None when there was no answer."""

    def __init__(self, what: str, *, status: int | None, where: str, why: str, hint: str) -> None:
        super().__init__(what, where=where, why=why, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object by API group and version, plural name, and part of it that has an address of its own."""

    api: str
    plural: str
    sub: str = ""

    @property
    def group(self) -> str:
        """The API group; the core group is an empty text."""
        return self.api.rpartition("/")[0]

    def __str__(self) -> str:
        of = f" of {self.group}" if self.group else ""
        return f"{self.plural}/{self.sub}{of}" if self.sub else f"{self.plural}{of}"


PODS = Resource("v1", "pods")
SERVICES = Resource("v1", "services")
QUOTAS = Resource("v1", "resourcequotas")
STATEFUL_SETS = Resource("apps/v1", "statefulsets")
DEPLOYMENTS = Resource("apps/v1", "deployments")
AUTOSCALERS = Resource("autoscaling/v2", "horizontalpodautoscalers")
BUDGETS = Resource("policy/v1", "poddisruptionbudgets")
LEASES = Resource("coordination.k8s.io/v1", "leases")
REVIEWS = Resource("authorization.k8s.io/v1", "selfsubjectaccessreviews")


class Api:
    """One namespace of an API server.

    Args:
        client: knows the server, its certificate and how to log in.
        namespace: all requests stay inside it.
        clock: where time comes from.
        sleep: waits seconds.
    """

    def __init__(self, client: ApiClient, namespace: str, clock: Clock, sleep: Callable[[float], None]) -> None:
        self._client, self.namespace, self.clock, self.sleep = client, namespace, clock, sleep
        # Connections are kept for the next request; nobody but this object knows when there is none any more.
        weakref.finalize(self, client.rest_client.close)

    @property
    def server(self) -> str:
        """Address of the server."""
        return redact_urls(str(self._client.configuration.host))

    def get(self, resource: Resource, name: str) -> Object:
        """Return one object. See `call` for what is raised."""
        return self.call("get", resource, name)

    def list(self, resource: Resource, selector: str = "") -> tuple[list[Object], str]:
        """Return all objects that carry the labels, and the resource version of the list.

        Raises:
            ApiError: see `call`; also when there are more than can be looked through.
        """
        found: list[Object] = []
        query = {"limit": str(_PAGE)} | ({"labelSelector": selector} if selector else {})
        for _ in range(_PAGES):
            page = self.call("list", resource, query=query)
            found += page.get("items") or []
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return found, str(meta.get("resourceVersion", ""))
            query["continue"] = meta["continue"]
        raise ApiError(
            f"there are too many {resource}", status=None, where=self.server, why=f"more than {len(found)}",
            hint="narrow the labels",
        )  # fmt: skip

    def call(
        self, verb: Verb, resource: Resource, name: str = "", *, body: Object | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Object:  # fmt: skip
        """Send one request and return the object that comes back; "too many requests" is waited for as told, in bounds.

        Raises:
            ApiError: it was refused or not answered; `status` tells which.
            BusyError: the server takes no more requests now; nothing was done.
        """
        end = self.clock.monotonic() + PATIENCE_S
        while True:
            response = self._send(verb, resource, name, body, query, TIMEOUT_S[1])
            status = int(response.status)
            try:
                told = self._read(response, f"{verb} {resource}")
            finally:
                response.close()
            if 200 <= status < 300:
                if "kind" not in told:
                    raise self._nonsense(f"{verb} {resource}")
                return told
            if status != 429:
                raise self._refused(status, told, verb, resource, name)
            # The server turned it away before it did anything, so that sending it again is safe for every verb.
            wait_s = _seconds(response.headers.get("Retry-After"))
            if self.clock.monotonic() + wait_s > end:
                raise BusyError(
                    "the API server takes no more requests now", where=self.server,
                    why=f"{verb} {resource}: try again in {wait_s:g} s", hint="wait; `pdops runbook resume` goes on",
                )  # fmt: skip
            self.sleep(wait_s)

    def watch(self, resource: Resource, selector: str, version: str, limit_s: float) -> Iterator[tuple[str, Object]]:
        """Yield what happens to objects after a resource version, as (type, object), `limit_s` seconds at the most.

        Raises:
            ApiError: status 410 when the version is too old: list again.
        """
        query = {
            "watch": "1", "resourceVersion": version, "labelSelector": selector, "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(limit_s))),
        }  # fmt: skip
        response = self._send("watch", resource, "", None, query, limit_s + TIMEOUT_S[1])
        what = f"watch {resource}"
        try:
            if response.status != 200:
                raise self._refused(int(response.status), self._read(response, what), "watch", resource, "")
            for line in self._lines(response, what, self.clock.monotonic() + limit_s + TIMEOUT_S[1]):
                event = _object(line)
                kind, seen = str(event.get("type")), event.get("object")
                if not isinstance(seen, dict):
                    raise self._nonsense(what)
                if kind == "ERROR":
                    raise self._refused(int(seen.get("code") or 500), seen, "watch", resource, "")
                yield kind, seen
        finally:
            response.close()

    def _send(
        self, verb: Verb, resource: Resource, name: str, body: Object | None, query: Mapping[str, str] | None,
        read_s: float,
    ) -> Any:  # fmt: skip
        from urllib3.exceptions import HTTPError

        method = _METHODS.get(verb, "GET")
        headers = {"Accept": "application/json"}
        if body is not None:
            kind = "merge-patch+json" if verb == "patch" else "json"
            headers["Content-Type"] = f"application/{kind}"
        try:
            method, url, headers, sent, *_ = self._client.param_serialize(
                method, self._path(resource, name), query_params=sorted((query or {}).items()), header_params=headers,
                body=body, auth_settings=["BearerToken"],
            )  # fmt: skip
            return self._client.call_api(
                method, url, headers, sent, _request_timeout=(TIMEOUT_S[0], read_s)
            ).response  # fmt: skip
        except (HTTPError, OSError) as error:
            raise self._silent(f"{verb} {resource}", error) from error

    def _path(self, resource: Resource, name: str) -> str:
        root = "/apis/" if "/" in resource.api else "/api/"
        # A review asks about a namespace and lives in none.
        space = "" if resource is REVIEWS else f"/namespaces/{quote(self.namespace, safe='')}"
        path = f"{root}{resource.api}{space}/{resource.plural}"
        if name:
            path += f"/{quote(name, safe='')}"
        return f"{path}/{resource.sub}" if resource.sub else path

    def _read(self, response: Any, what: str) -> Object:
        return _object(b"".join(self._pieces(response, what, self.clock.monotonic() + ANSWER_S)))

    def _lines(self, response: Any, what: str, end: float) -> Iterator[bytes]:
        rest = b""
        for piece in self._pieces(response, what, end):
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line for line in whole if line.strip())

    def _pieces(self, response: Any, what: str, end: float) -> Iterator[bytes]:
        from urllib3.exceptions import HTTPError

        size = 0
        try:
            while piece := response.read1(_PIECE):
                size += len(piece)
                if size > _LIMIT or self.clock.monotonic() > end:
                    raise self._silent(what, ValueError("the answer does not end" if size <= _LIMIT else "too large"))
                yield piece
        except (HTTPError, OSError) as error:
            raise self._silent(what, error) from error

    def _silent(self, what: str, error: Exception) -> ApiError:
        return ApiError(
            f"the API server does not answer to {what}", status=None, where=self.server, why=str(error)[:300],
            hint="check the context, the network and the login with `kubectl get pods`",
        )  # fmt: skip

    def _nonsense(self, what: str) -> ApiError:
        return ApiError(
            f"the API server's answer to {what} makes no sense", status=None, where=self.server, why="no object",
            hint="is it a Kubernetes API server?",
        )  # fmt: skip

    def _refused(self, status: int, told: Object, verb: Verb, resource: Resource, name: str) -> ApiError:
        what = f"{verb} {resource}" + (f" {name}" if name else "")
        if status == 403:
            hint = f"allow it in the account's Role: {verb} on {resource}"
            return ApiError(f"the account may not {what}", status=status, where=self.server, why=_why(told), hint=hint)
        hint = "log in again" if status == 401 else "look at it with kubectl"
        return ApiError(
            f"the API server says {status} to {what}", status=status, where=self.server, why=_why(told), hint=hint
        )


def _object(body: bytes) -> Object:
    try:
        told = json.loads(body)
    except ValueError:
        return {"message": body[:300].decode("utf-8", "replace")}
    return told if isinstance(told, dict) else {"message": str(told)[:300]}


def _why(told: Object) -> str:
    return str(told.get("message") or told.get("reason") or "")[:300]


def _seconds(text: str | None) -> float:
    """Return what Retry-After says, in seconds; a second where it says nothing that can be waited for."""
    given = int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else 1
    return float(max(given, 1))
