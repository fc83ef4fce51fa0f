"""A double of a Kubernetes API server, on loopback: exactly what the backend relies on, and no more.

It keeps objects with uids and resource versions, refuses what is out of date (409), what no rule allows (403) and what
comes too early (429), forgets old events (410), and lets its workload and autoscaler controllers act after each change.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pdops.clock import VirtualClock

Object = dict[str, Any]
TOKEN = "token-of-the-operator"
SPACE = "pd"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_IDLE_S = 0.01
"""A watch without news ends after this, in real seconds, as an API server may end one at any time."""


class RefusedError(Exception):
    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


class KubernetesDouble:
    """An API server with one namespace.

    Args:
        clock: by which "too many requests" passes.
        rules: of the account's Role; None lets it do everything.
    """

    def __init__(self, clock: VirtualClock, rules: list[Object] | None = None) -> None:
        self.clock, self.rules = clock, rules
        self.lock = threading.RLock()
        self.objects: dict[tuple[str, str], Object] = {}
        self.calls: list[tuple[str, str, str, str]] = []
        self.denied: list[tuple[str, str, str, str]] = []
        self.sent: list[tuple[str, str]] = []
        self.events: list[tuple[int, str, str, Object]] = []
        self.version, self.oldest, self.uids = 100, 0, 0
        self.busy_until_s, self.retry_after = 0.0, "0"
        self.before: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self.pods_linger = False
        self.page_limit = 500

    # -- what tests arrange

    def workload(
        self,
        role: str,
        replicas: int,
        *,
        kind: str = "StatefulSet",
        name: str | None = None,
        gpus: int = 1,
        **meta: Any,
    ) -> None:
        """Make a pool whose pods are ready."""
        labels = {"app": "pdops", "role": role}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**labels, **meta.pop("labels", {})}},
                "spec": {
                    "terminationGracePeriodSeconds": 60,
                    "containers": [
                        {
                            "name": "engine",
                            "image": "vllm/vllm-openai:v0.32.0",
                            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
                        }
                    ],
                },
            },
        }
        plural = {"StatefulSet": "statefulsets", "Deployment": "deployments"}[kind]
        status = {"currentRevision": "r1", "updateRevision": "r1"} if kind == "StatefulSet" else {}
        self.put(
            plural,
            {"kind": kind, "metadata": {"name": name or role, "generation": 1, **meta}, "spec": spec, "status": status},
        )

    def put(self, plural: str, obj: Object) -> None:
        """Create or replace an object behind everybody's back."""
        with self.lock:
            name = obj["metadata"]["name"]
            known = (plural, name) in self.objects
            obj["metadata"].setdefault("uid", self._uid())
            obj.setdefault("kind", plural)
            self._store(plural, obj, "MODIFIED" if known else "ADDED")
            self._controllers()

    def change(self, plural: str, name: str, change: Callable[[Object], object]) -> None:
        """Let somebody else change an object."""
        with self.lock:
            obj = copy.deepcopy(self.objects[plural, name])
            change(obj)
            self._store(plural, obj, "MODIFIED")
            self._controllers()

    def get(self, plural: str, name: str) -> Object:
        with self.lock:
            return copy.deepcopy(self.objects[plural, name])

    def names(self, plural: str) -> list[str]:
        with self.lock:
            return sorted(n for p, n in self.objects if p == plural)

    def busy(self, seconds: float, retry_after: str) -> None:
        """Answer "too many requests" for a while."""
        self.busy_until_s, self.retry_after = self.clock.now() + seconds, retry_after

    def forget_events(self) -> None:
        """Keep no event up to now, as an API server does after some minutes."""
        with self.lock:
            self.oldest = self.version

    def end_pod(self, name: str) -> None:
        """Let a pod that lingers end."""
        with self.lock:
            self._remove("pods", name)
            self._controllers()

    def replicas(self, role: str, plural: str = "statefulsets") -> int:
        return int(self.get(plural, role)["spec"]["replicas"])

    def allowed(self, verb: str, group: str, resource: str, name: str) -> bool:
        """Say whether the rules allow a call."""
        if self.rules is None:
            return True
        for rule in self.rules:
            names = rule.get("resourceNames")
            # Creation has no name yet, so a rule that names objects never allows it.
            named = names is None or (name in names and verb != "create")
            if group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"] and named:
                return True
        return False

    # -- what the server does

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: Object) -> Object:
        url = urlsplit(target)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            raise RefusedError(401, "Unauthorized")
        if self.clock.now() < self.busy_until_s:
            raise RefusedError(429, "too many requests", {"Retry-After": self.retry_after})
        words = url.path.strip("/").split("/")
        group, words = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
        if words == ["selfsubjectaccessreviews"]:
            return self._review(body)
        if words[:1] != ["namespaces"] or words[1] != SPACE:
            raise RefusedError(404, f"no such path {url.path}")
        plural, name, sub = (*words[2:], "", "")[:3]
        verb = _VERBS.get(method) or ("get" if name else "watch" if query.get("watch") else "list")
        resource = f"{plural}/{sub}" if sub else plural
        self.calls.append((verb, group, resource, name))
        if not self.allowed(verb, group, resource, name):
            self.denied.append((verb, group, resource, name))
            raise RefusedError(
                403, f'{resource} "{name}" is forbidden: cannot {verb} resource "{resource}" in API group "{group}"'
            )
        for hook in self.before.pop((verb, resource), []):
            hook()
        with self.lock:
            return self._do(verb, plural, name, sub, query, body)

    def watch(self, target: str) -> Iterator[Object]:
        """Yield events of a watch that `answer` let through."""
        query = {k: v[0] for k, v in parse_qs(urlsplit(target).query).items()}
        plural = urlsplit(target).path.rpartition("/")[2]
        since = int(query["resourceVersion"])
        with self.lock:
            if since < self.oldest:
                yield {
                    "type": "ERROR",
                    "object": {
                        "kind": "Status",
                        "code": 410,
                        "reason": "Expired",
                        "message": "too old resource version",
                    },
                }
                return
            news = [e for e in self.events if e[0] > since and e[2] == plural]
        for version, kind, _, obj in news:
            if _chosen(obj, query.get("labelSelector", "")):
                yield {"type": kind, "object": obj}
            since = version
        threading.Event().wait(_IDLE_S)
        if query.get("allowWatchBookmarks"):
            yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(since)}}}

    def _do(self, verb: str, plural: str, name: str, sub: str, query: Mapping[str, str], body: Object) -> Object:
        if verb == "watch":
            return {}
        if verb == "list":
            return self._list(plural, query)
        if verb == "create":
            name = body["metadata"]["name"]
            if (plural, name) in self.objects:
                raise RefusedError(409, f'{plural} "{name}" already exists')
            body["metadata"]["uid"] = self._uid()
            return self._store(plural, body, "ADDED")
        if (plural, name) not in self.objects:
            raise RefusedError(404, f'{plural} "{name}" not found')
        now = copy.deepcopy(self.objects[plural, name])
        if verb == "get":
            return _scale(now) if sub == "scale" else now
        if verb == "delete":
            self._check(now, body.get("preconditions") or {})
            self._delete(plural, name)
            self._controllers()
            return {"kind": "Status", "status": "Success"}
        self._check(now, body.get("metadata") or {})
        if sub == "scale":
            now["spec"]["replicas"] = body["spec"].get("replicas", 0)
        elif verb == "patch":
            _merge(now, body)
        else:
            now = {**now, **body, "metadata": {**now["metadata"], **body.get("metadata", {})}}
        if plural in ("statefulsets", "deployments"):
            now["metadata"]["generation"] += 1
        stored = self._store(plural, now, "MODIFIED")
        self._controllers()
        return _scale(stored) if sub == "scale" else stored

    def _check(self, now: Object, wanted: Object) -> None:
        for key in ("uid", "resourceVersion"):
            if wanted.get(key) and wanted[key] != now["metadata"][key]:
                raise RefusedError(409, f"Precondition failed: {key} is {now['metadata'][key]}, not {wanted[key]}")

    def _list(self, plural: str, query: Mapping[str, str]) -> Object:
        found = [
            o
            for (p, _), o in sorted(self.objects.items())
            if p == plural and _chosen(o, query.get("labelSelector", ""))
        ]
        start, size = int(query.get("continue") or 0), min(int(query["limit"]), self.page_limit)
        meta: Object = {"resourceVersion": str(self.version)}
        if start + size < len(found):
            meta["continue"] = str(start + size)
        return {"kind": "List", "metadata": meta, "items": copy.deepcopy(found[start : start + size])}

    def _review(self, body: Object) -> Object:
        about = body["spec"]["resourceAttributes"]
        resource = about["resource"] + (f"/{about['subresource']}" if about.get("subresource") else "")
        allowed = about["namespace"] == SPACE and self.allowed(
            about["verb"], about["group"], resource, about.get("name", "")
        )
        return {**body, "status": {"allowed": allowed}}

    def _store(self, plural: str, obj: Object, kind: str) -> Object:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[plural, obj["metadata"]["name"]] = obj
        self.events.append((self.version, kind, plural, copy.deepcopy(obj)))
        return copy.deepcopy(obj)

    def _delete(self, plural: str, name: str) -> None:
        if plural == "pods" and self.pods_linger:
            obj = copy.deepcopy(self.objects[plural, name])
            obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._store(plural, obj, "MODIFIED")
            return
        self._remove(plural, name)

    def _remove(self, plural: str, name: str) -> None:
        self.version += 1
        obj = self.objects.pop((plural, name))
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, "DELETED", plural, copy.deepcopy(obj)))

    def _uid(self) -> str:
        self.uids += 1
        return f"uid-{self.uids}"

    # -- its controllers

    def _controllers(self) -> None:
        for plural, name in list(self.objects):
            if plural == "horizontalpodautoscalers":
                self._autoscale(name)
        for plural, name in list(self.objects):
            if plural in ("statefulsets", "deployments"):
                self._pods_of(plural, name)

    def _autoscale(self, name: str) -> None:
        """Set what the load asks for (`status.wish`), within the bounds: whatever others set is put back."""
        scaler = self.objects["horizontalpodautoscalers", name]
        target = scaler["spec"]["scaleTargetRef"]
        plural = {"StatefulSet": "statefulsets", "Deployment": "deployments"}[target["kind"]]
        wanted = max(scaler["spec"].get("minReplicas", 1), min(scaler["spec"]["maxReplicas"], scaler["status"]["wish"]))
        workload = copy.deepcopy(self.objects[plural, target["name"]])
        if workload["spec"]["replicas"] != wanted:
            workload["spec"]["replicas"] = wanted
            self._store(plural, workload, "MODIFIED")

    def _pods_of(self, plural: str, name: str) -> None:
        owner = self.objects[plural, name]
        wanted, template = owner["spec"]["replicas"], owner["spec"]["template"]
        mine = {
            n: o for (p, n), o in self.objects.items() if p == "pods" and o["metadata"]["owner"] == f"{plural}/{name}"
        }
        if plural == "statefulsets":
            right = [f"{name}-{i}" for i in range(wanted)]
            extra = [n for n in mine if n not in right]
        else:
            # The cheapest go first.
            cost = "controller.kubernetes.io/pod-deletion-cost"
            order = sorted(mine, key=lambda n: int((mine[n]["metadata"].get("annotations") or {}).get(cost, 0)))
            extra = order[: max(0, len(mine) - wanted)]
            right = [n for n in order if n not in extra]
            right += [f"{name}-x{self.uids + 1 + i}" for i in range(wanted - len(right))]
        for gone in extra:
            if "deletionTimestamp" not in mine[gone]["metadata"]:
                self._delete("pods", gone)
        for new in right:
            if new in mine:
                continue
            meta = {
                "name": new,
                "uid": self._uid(),
                "labels": dict(template["metadata"]["labels"]),
                "owner": f"{plural}/{name}",
            }
            status = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"restartCount": 0}],
            }
            self._store(
                "pods",
                {"kind": "Pod", "metadata": meta, "spec": copy.deepcopy(template["spec"]), "status": status},
                "ADDED",
            )
        status = owner["status"]
        fresh = {"observedGeneration": owner["metadata"]["generation"], "updatedReplicas": wanted}
        if any(status.get(k) != v for k, v in fresh.items()):
            owner = copy.deepcopy(owner)
            owner["status"] |= fresh
            self._store(plural, owner, "MODIFIED")


def _scale(workload: Object) -> Object:
    meta = {k: workload["metadata"][k] for k in ("name", "uid", "resourceVersion")}
    there = workload["spec"]["replicas"]
    # An API server leaves a zero out here.
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": meta,
        "spec": {"replicas": there} if there else {},
    }


def _merge(now: Object, change: Object) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(now.setdefault(key, {}), value)
        else:
            now[key] = value


def _chosen(obj: Object, selector: str) -> bool:
    labels = obj["metadata"].get("labels") or {}
    return all(labels.get(k) == v for k, _, v in (t.partition("=") for t in selector.split(",") if t))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    double: KubernetesDouble

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        self.double.sent.append((self.command, self.path))
        try:
            told, status, headers = self.double.answer(self.command, self.path, self.headers, body), 200, {}
        except RefusedError as error:
            told = {"kind": "Status", "code": error.status, "message": str(error)}
            status, headers = error.status, dict(error.headers)
        if status == 200 and "watch=1" in self.path:
            return self._stream()
        text = json.dumps(told).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(text))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)
        return None

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815  names that http.server looks for

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self.double.watch(self.path):
            line = json.dumps(event).encode() + b"\n"
            # In two pieces: nothing says that an event comes in one.
            for piece in (line[:7], line[7:]):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(double: KubernetesDouble) -> Iterator[str]:
    """Serve a double on loopback and yield its address."""
    handler = type("Handler", (_Handler,), {"double": double})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
