"""Load the inventory: from `pdops.yaml`, or from `--target` flags."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from pdops.catalog.load import catalog
from pdops.errors import InventoryError
from pdops.model.cluster import Cluster, Endpoint, Role, Secret, Worker
from pdops.sources.detect import SIDE_ENGINES
from pdops.sources.inventory_model import (
    InventoryFile,
    KubernetesEntry,
    LogSource,
    PrometheusEntry,
    WithSecrets,
    WorkerEntry,
)
from pdops.sources.inventory_operate import KubernetesOperate, operated
from pdops.sources.operate_units import Units, problem, units_of
from pdops.sources.redact import redact_urls
from pdops.sources.validate import build, did_you_mean, shown, web_address
from pdops.sources.yamlfile import Document, parse_yaml, read_yaml

_WHAT = "inventory cannot be used"
_DEFAULT_PATH = "/metrics"
_NO_SECRET = Secret()
_PATHS = frozenset({"file", "bearer_token_file", "password_file", "ca", "cert", "key"})
"""Keys of a log source that are files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A server that scrapes the cluster already."""

    url: str
    selector: str = "{}"
    role_label: str = "role"
    secret: Secret = _NO_SECRET


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """Where workers are discovered: a label selector per role, in one namespace."""

    namespace: str
    roles: Mapping[Role, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """Where a worker takes administrative requests."""

    url: str
    secret: Secret = _NO_SECRET


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Who is in the cluster, where data is read, and what may be changed. `admin` is by worker id; `path` is None without a file.

    `warnings` are sentences about what can be used and is likely a mistake.
    """

    cluster: Cluster
    prometheus: Prometheus | None = None
    kubernetes: Kubernetes | None = None
    operate: KubernetesOperate | None = None
    admin: Mapping[str, Admin] = field(default_factory=dict)
    path: str | None = None
    warnings: tuple[str, ...] = ()
    units: Units | None = None


def load_inventory(path: str | os.PathLike[str]) -> Inventory:
    """Read `pdops.yaml`. Relative paths of secrets and log files are relative to the folder of the file.

    Raises:
        InventoryError: the file cannot be read or is not valid; says file and line, what was expected, and a hint.
    """
    return _inventory(read_yaml(os.fspath(path), error=InventoryError, what=_WHAT))


def parse_inventory(text: str, path: str = "pdops.yaml") -> Inventory:
    """Read an inventory from text; `path` is used for messages and relative paths. See `load_inventory`."""
    return _inventory(parse_yaml(text, path=path, error=InventoryError, what=_WHAT))


def from_targets(targets: Sequence[str], *, name: str = "targets") -> Inventory:
    """Make an inventory of `ROLE=URL` texts: ids ROLE-N in the order given, pool = role, engine to be detected.

    Raises:
        InventoryError: a target has no role, an unknown role or a bad URL, is given twice, or there is none.
    """
    if not targets:
        raise InventoryError(_WHAT, where="--target", why="no target is given", hint="add --target ROLE=URL")
    workers: list[Worker] = []
    seen: dict[str, str] = {}
    for text in targets:
        word, equals, rest = text.partition("=")
        where = f"--target {shown(text) if '@' not in rest else word + '=…'}"
        if not equals:
            raise InventoryError(
                _WHAT, where=where, why="expected ROLE=URL", hint="such as prefill=http://10.0.3.11:8000"
            )
        if word not in list(Role):
            why = f"unknown role {shown(word)}"
            raise InventoryError(_WHAT, where=where, why=why, hint=did_you_mean(word, list(Role), label="roles"))
        try:
            url = web_address(rest)
        except PydanticCustomError as problem:
            context = problem.context or {}
            raise InventoryError(_WHAT, where=where, why=context["why"], hint=context["hint"]) from None
        number = sum(1 for w in workers if w.role == word)
        serving, page = _pages(url, None)
        worker_id = f"{word}-{number}"
        if page in seen:
            why = f"{seen[page]} has the same address"
            raise InventoryError(_WHAT, where=where, why=why, hint="give each worker once")
        seen[page] = worker_id
        workers.append(Worker(id=worker_id, role=Role(word), pool=word, url=serving, endpoints=(Endpoint(page),)))
    return Inventory(cluster=Cluster(name=name, workers=tuple(workers)), warnings=same_addresses(workers))


def _inventory(document: Document) -> Inventory:
    file = build(InventoryFile, document, error=InventoryError, what=_WHAT)
    folder = os.path.dirname(os.path.abspath(document.path))
    _check_workers(file, document)
    if file.operate is not None and (wrong := problem(file.operate, [(w.id, w.role, w.url) for w in file.workers])):
        place, why, hint = wrong
        raise InventoryError(_WHAT, where=document.where("operate", *place), why=why, hint=hint)
    model = file.model
    workers = tuple(_worker(entry, folder) for entry in file.workers)
    return Inventory(
        cluster=Cluster(
            name=file.cluster,
            workers=workers,
            slo=file.slo.slo(),
            model=model.name if model else None,
            kv_bytes_per_token=model.kv_bytes_per_token if model else None,
            link_bytes_per_s=file.links.baseline_bytes_per_s,
        ),
        prometheus=_prometheus(file.prometheus, folder) if file.prometheus else None,
        kubernetes=_kubernetes(file.discovery.kubernetes) if file.discovery else None,
        operate=operated(file.operate, folder),
        admin={
            entry.id: Admin(url=entry.admin.url, secret=_secret(entry.admin, folder))
            for entry in file.workers
            if entry.admin is not None
        },
        path=document.path,
        warnings=same_addresses(workers),
        units=units_of(file.operate, folder) if file.operate is not None else None,
    )


def same_addresses(workers: Iterable[Worker]) -> tuple[str, ...]:
    """Return a warning for every worker whose address is that of another, written differently.

    Names are not resolved: what only DNS knows to be the same is not seen. Workers of one host may share its pages.
    """
    seen: dict[tuple[str, str, int, str], Worker] = {}
    found = []
    for worker in workers:
        places = {place: url for url in _own(worker) if (place := _place(url)) is not None}
        twin = next(((seen[place], url) for place, url in places.items() if place in seen), None)
        if twin is not None:
            other, url = twin
            also = next(u for u in _own(other) if _place(u) == _place(url))
            found.append(
                redact_urls(
                    f"{worker.id} ({url}) and {other.id} ({also}) have the same address: one worker counts twice"
                )
            )
        for place in places:
            seen.setdefault(place, worker)
    return tuple(found)


def _own(worker: Worker) -> tuple[str, ...]:
    """Return the addresses of a worker that no other can have; a page of which nobody says whose it is may be its host's."""
    pages = [
        page.url
        for place, page in enumerate(worker.endpoints)
        if page.engine not in SIDE_ENGINES and (page.engine is not None or place == 0)
    ]
    return tuple(pages) if worker.url is None else (worker.url, *pages)


def _place(url: str) -> tuple[str, str, int, str] | None:
    """Return scheme, host, port and path as a server sees them; None for what is no URL."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        host = str(mapped or address)
    loopback = host == "localhost" or host == "::1"
    query = f"?{parts.query}" if parts.query else ""
    path = parts.path.rstrip("/") + query
    return parts.scheme, "127.0.0.1" if loopback else host, port or {"https": 443}.get(parts.scheme, 80), path


def _prometheus(entry: PrometheusEntry, folder: str) -> Prometheus:
    return Prometheus(
        url=entry.url, selector=entry.selector, role_label=entry.role_label, secret=_secret(entry, folder)
    )


def _kubernetes(entry: KubernetesEntry) -> Kubernetes:
    return Kubernetes(namespace=entry.namespace, roles=entry.roles)


def _check_workers(file: InventoryFile, document: Document) -> None:
    if not file.workers and file.discovery is None and file.prometheus is None:
        why = "there are no workers, no discovery and no prometheus"
        raise InventoryError(_WHAT, where=document.where("workers"), why=why, hint="list at least one worker")
    ids: dict[str, int] = {}
    urls: dict[str, int] = {}
    for index, entry in enumerate(file.workers):
        if entry.url is None and entry.metrics is None:
            where, why = document.where("workers", index), f"worker {entry.id!r} has neither url nor metrics"
            raise InventoryError(_WHAT, where=where, why=why, hint="add url: http://host:port")
        for key, value, known in (("id", entry.id, ids), ("url", entry.url, urls)):
            if value is None:
                continue
            first = known.setdefault(value, index)
            if first != index:
                line = document.where("workers", first, key).rpartition(":")[2]
                where, why = (
                    document.where("workers", index, key),
                    f"{key} {value!r} is given twice, first on line {line}",
                )
                raise InventoryError(_WHAT, where=where, why=why, hint=f"give every worker its own {key}")


def _worker(entry: WorkerEntry, folder: str) -> Worker:
    serving, page = _pages(entry.url, entry.engine) if entry.url is not None else (None, None)
    if isinstance(entry.metrics, str):
        endpoints: Iterable[Endpoint] = (Endpoint(entry.metrics, entry.engine),)
    elif entry.metrics is not None:
        endpoints = (Endpoint(page.url, page.engine) for page in entry.metrics)
    else:
        assert page is not None
        endpoints = (Endpoint(page, entry.engine),)
    return Worker(
        id=entry.id,
        role=entry.role,
        pool=entry.pool or entry.role.value,
        url=serving,
        endpoints=tuple(endpoints),
        engine=entry.engine,
        version=entry.version,
        node=entry.node,
        zone=entry.zone,
        logs=tuple(_log(log, folder) for log in entry.logs),
        secret=_secret(entry, folder),
    )


def _log(entry: LogSource, folder: str) -> dict[str, str]:
    return {k: os.path.join(folder, v) if k in _PATHS else v for k, v in entry.place().items()}


def _pages(url: str, engine: str | None) -> tuple[str, str]:
    """Return (serving address, address of its metrics); an address that already names the page is understood."""
    path = catalog().engines[engine].path if engine is not None else _DEFAULT_PATH
    if urlsplit(url).path.endswith(path):
        return url.removesuffix(path), url
    return url, url + path


def _secret(entry: WithSecrets, folder: str) -> Secret:
    found = entry.secret()

    def near(path: str | None) -> str | None:
        return None if path is None else os.path.join(folder, path)

    return Secret(
        bearer_token_file=near(found.bearer_token_file),
        username=found.username,
        password_file=near(found.password_file),
        ca=near(found.ca),
        cert=near(found.cert),
        key=near(found.key),
    )
