"""The part of an inventory that says what may be changed, and through whom: units, services, spares, a store's bypass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pdops.model.cluster import Role
from pdops.sources.inventory_names import Id
from pdops.sources.validate import Strict, Text, Url, refuse, shown

_UNIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@\\-]{0,246}\.service")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_PROJECT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_BACKEND = re.compile(r"[A-Za-z0-9_.-]{1,63}")


def _matching(pattern: re.Pattern[str], what: str, hint: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise refuse(f"{shown(value)} is not {what}", hint)
        return value

    return AfterValidator(check)


UnitName = Annotated[str, _matching(_UNIT, "the name of a service unit", "write it in full, as pd-prefill@0.service")]
Service = Annotated[str, _matching(_SERVICE, "the name of a service", "use letters, digits and . _ -")]
Project = Annotated[str, _matching(_PROJECT, "the name of a project", "use lower case letters, digits and _ -")]
StoreBackend = Annotated[str, _matching(_BACKEND, "the name of a backend", "as LMCache's /bypass/list shows it")]


LeaseS = Annotated[float, Field(ge=1, le=3600)]
"""kv_lease_duration of the prefill workers, in seconds."""


class SystemdEntry(Strict):
    """Workers and stores that are systemd units of this machine; `user` means the user's own manager."""

    units: Annotated[dict[Id, UnitName], Field(min_length=1)]
    user: bool = False
    kv_lease_s: LeaseS = 30.0


class ComposeEntry(Strict):
    """Workers and stores that are services of a Docker Compose project, one container each."""

    file: Text
    project: Project
    services: Annotated[dict[Id, Service], Field(min_length=1)]
    kv_lease_s: LeaseS = 30.0


class SpareEntry(Strict):
    """A worker that is started when its pool is to grow; it is no part of the cluster while it does not run."""

    id: Id
    role: Literal[Role.PREFILL, Role.DECODE]
    url: Url


class LmcacheEntry(Strict):
    """LMCache's internal API of every engine process, which can leave a store out."""

    store: Id
    urls: Annotated[tuple[Url, ...], Field(min_length=1, max_length=1024)]
    backend: StoreBackend = "RemoteBackend"


class UnitsEntry(Strict):
    """What runbooks may change of units, services and a store's bypass."""

    systemd: SystemdEntry | None = None
    compose: ComposeEntry | None = None
    spare: tuple[SpareEntry, ...] = ()
    lmcache: LmcacheEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spare:
    """A worker that may be started."""

    id: str
    role: Role
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What may be changed. `names` of units or services are by worker id, of the kind `supervisor`; `compose_file` is None for systemd."""

    supervisor: Literal["systemd", "systemd-user", "compose"] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    compose_file: str | None = None
    project: str = ""
    spares: tuple[Spare, ...] = ()
    lmcache_store: str | None = None
    lmcache_urls: tuple[str, ...] = ()
    lmcache_backend: str = ""
    kv_lease_s: float = 30.0


def units_of(entry: UnitsEntry, folder: str) -> Units:
    """Return an entry as it is used; a relative file is beside the inventory."""
    units: Mapping[str, str] = {}
    supervisor: Literal["systemd", "systemd-user", "compose"] | None = None
    if entry.systemd is not None:
        units, supervisor = dict(entry.systemd.units), "systemd-user" if entry.systemd.user else "systemd"
    elif entry.compose is not None:
        units, supervisor = dict(entry.compose.services), "compose"
    store, given = entry.lmcache, entry.systemd or entry.compose
    return Units(
        supervisor=supervisor, names=units,
        compose_file=str(PurePath(folder, entry.compose.file)) if entry.compose is not None else None,
        project=entry.compose.project if entry.compose is not None else "",
        spares=tuple(Spare(id=s.id, role=Role(s.role), url=s.url) for s in entry.spare),
        lmcache_store=store.store if store is not None else None,
        lmcache_urls=tuple(store.urls) if store is not None else (),
        lmcache_backend=store.backend if store is not None else "", kv_lease_s=given.kv_lease_s if given is not None else 30.0,
    )  # fmt: skip


def problem(
    entry: UnitsEntry, workers: Iterable[tuple[str, Role, str | None]]
) -> tuple[tuple[str | int, ...], str, str] | None:
    """Return the place, reason and hint of what does not fit the workers (id, role, address), or None."""
    known = {worker: (role, url) for worker, role, url in workers}
    kind, units = ("systemd", entry.systemd.units) if entry.systemd is not None else ("compose", {})
    if entry.compose is not None:
        units = entry.compose.services
    key = "units" if kind == "systemd" else "services"
    spares = {s.id for s in entry.spare}
    for index, spare in enumerate(entry.spare):
        place: tuple[str | int, ...] = ("spare", index)
        if spare.id in known:
            return place, f"{spare.id} is a worker already", "a spare does not run, so it is not among the workers"
        if not re.fullmatch(rf"{spare.role}-[0-9]+", spare.id):
            return place, f"{spare.id} is no name that a new worker gets", f"call it {spare.role}-1, {spare.role}-2 …"
        if spare.id not in units:
            return place, f"nobody starts {spare.id}", "name its unit or service under operate"
    for worker, unit in units.items():
        if worker in spares:
            continue
        role, url = known.get(worker, (None, None))
        if role not in (Role.PREFILL, Role.DECODE, Role.KVSTORE):
            return (
                (kind, key),
                f"{worker} is no prefill, decode or kvstore worker of this inventory",
                "list it under workers",
            )
        if url is None and role is not Role.KVSTORE:
            return (kind, key), f"{worker} has no url, so nobody can ask whether it serves", "give it a url"
        if list(units.values()).count(unit) > 1:
            return (kind, key), f"{unit} is given twice", "one unit is one worker"
    store = entry.lmcache.store if entry.lmcache is not None else None
    if store is not None and known.get(store, (None, None))[0] is not Role.KVSTORE:
        return ("lmcache", "store"), f"{store} is no kvstore of this inventory", "list the store under workers"
    return None
