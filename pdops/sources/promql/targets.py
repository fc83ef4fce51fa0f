"""Tell which target of the server is which worker, and whether it answers the server's scrapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from pdops.model.cluster import CLIENT, ROUTER, Cluster, Role, Worker
from pdops.sources.promql.api import Row, plain

SERVER = "prometheus"
"""The worker id under which the server's own aggregates come."""
MAX_WORKERS = 4096
SHOWN = 5
"""Names listed in a message."""
_ID = re.compile(r"[^A-Za-z0-9._-]")
_ROLES = {role.value: role for role in Role}

Labels = tuple[tuple[str, str], ...]
Owner = tuple[str, str]
"""Namespace and pod, or nothing and instance: targets of one owner are one worker."""


@dataclass(frozen=True, slots=True)
class Target:
    """One `up` series; `worker` None when nobody knows whose it is."""

    labels: Labels
    instance: str
    role_value: str
    worker: str | None

    @property
    def name(self) -> str:
        """What a message calls it."""
        return plain(self.instance or ",".join(f"{k}={v}" for k, v in self.labels), 80)


@dataclass(frozen=True, slots=True)
class Placement:
    """Which worker every target is.

    `main` are the instances that speak for a worker: the one at its serving address, or all of its targets. `pools`
    gives the pool and role of a value of the role label. `unplaced` are targets that belong to no worker, `twice`
    instances with more than one `up` series of a job. `known` holds the workers found so far where there is no
    inventory, so that a target keeps its id.
    """

    cluster: Cluster
    targets: tuple[Target, ...]
    main: Mapping[str, str]
    pools: Mapping[str, tuple[str, Role]]
    unplaced: tuple[Target, ...] = ()
    twice: tuple[str, ...] = ()
    known: Mapping[Owner, Worker] = field(default_factory=dict)
    _names: Mapping[str, str] = field(default_factory=dict)

    def pool(self, value: str) -> str | None:
        """Return the pool a value of the role label stands for, or None."""
        found = self.pools.get(value)
        return found[0] if found is not None else None

    def target(self, instance: str) -> str | None:
        """Return the worker an instance speaks for, or None."""
        return self.main.get(instance)

    def resolve(self, label: str) -> str:
        """Return the worker id for an id, a URL, host:port or pod name; another label as it is."""
        return self._names.get(label) or self._names.get(netloc(label)) or label


def netloc(url: str) -> str:
    """Return host:port of a URL, in lower case, with the scheme's own port where none is given; empty for no URL."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return ""
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if host and port else host


def labels_of(row: Row) -> Labels:
    """Return the labels of a row without its name, as a key."""
    return tuple(sorted((k, v) for k, v in row.labels.items() if k != "__name__"))


def place(
    rows: Iterable[Row],
    role_label: str,
    inventory: Cluster | None,
    name: str,
    known: Mapping[Owner, Worker] = MappingProxyType({}),
) -> Placement:
    """Tell the workers of all `up` series.

    With an inventory a target is the worker whose address is its `instance`, or whose id is its `pod`. Without one,
    every target whose role label has a role becomes a worker of the cluster `name`; the others are left `unplaced`,
    never guessed.
    """
    keys = sorted({labels_of(row) for row in rows})
    owners: dict[Owner, Worker] = {}
    if inventory is None:
        owners = _discover([dict(k) for k in keys], role_label, known)
    cluster = inventory or Cluster(name=name, workers=tuple(owners.values()))
    addresses = {
        netloc(url): w.id for w in reversed(cluster.workers) for url in (*(e.url for e in w.endpoints), w.url or "")
    }
    addresses.pop("", None)
    names = dict(addresses)
    targets: list[Target] = []
    seen: Counter[tuple[str, str]] = Counter()
    for key in keys:
        labels = dict(key)
        instance, pod = labels.get("instance", ""), labels.get("pod", "")
        seen[labels.get("job", ""), instance] += 1
        if inventory is None:
            owner = owners.get(_owner(labels))
            found = owner.id if owner is not None else None
        else:
            ids = (i for i in (pod, instance, _clean(pod)) if cluster.get(i) is not None)
            found = addresses.get(netloc(instance)) or next(ids, None)
        targets.append(Target(key, instance, labels.get(role_label, ""), found))
        if found is not None:
            names |= {n: found for n in (instance, pod) if n}
    serving = {netloc(w.url): w.id for w in cluster.workers if w.url} if inventory is not None else {}
    return Placement(
        cluster,
        tuple(targets),
        _main(targets, serving),
        _pools(cluster),
        tuple(t for t in targets if t.worker is None),
        tuple(sorted(instance for (_, instance), n in seen.items() if n > 1)),
        dict(list({**known, **owners}.items())[-MAX_WORKERS:]),
        names | {w.id: w.id for w in cluster.workers},
    )


def _main(targets: list[Target], serving: Mapping[str, str]) -> dict[str, str]:
    at_address = {t.instance: t.worker for t in targets if t.worker and serving.get(netloc(t.instance)) == t.worker}
    spoken_for = set(at_address.values())
    others = {t.instance: t.worker for t in targets if t.worker and t.worker not in spoken_for}
    return {**at_address, **others}


def _pools(cluster: Cluster) -> dict[str, tuple[str, Role]]:
    """Map pool names and, where a role has one pool, role names."""
    out: dict[str, tuple[str, Role]] = {}
    for role in Role:
        pools = cluster.pools(role)
        if len(pools) == 1:
            out[role.value] = (pools[0], role)
        out |= {pool: (pool, role) for pool in pools}
    return out


def _discover(found: list[dict[str, str]], role_label: str, known: Mapping[Owner, Worker]) -> dict[Owner, Worker]:
    workers: dict[Owner, Worker] = {}
    taken = {CLIENT, ROUTER, SERVER} | {w.id for w in known.values()}
    for labels in found:
        role = _ROLES.get(labels.get(role_label, ""))
        owner = _owner(labels)
        if role is None or not owner[1] or owner in workers:
            continue
        before = known.get(owner)
        if before is not None and before.role is role:
            workers[owner] = before
            continue
        ident = stem = _clean(owner[1])
        number = 2
        while ident in taken:
            ident, number = f"{stem[:58]}-{number}", number + 1
        taken.add(ident)
        workers[owner] = Worker(
            id=ident,
            role=role,
            pool=role.value,
            url=f"http://{labels['instance']}" if labels.get("instance") else None,
            node=labels.get("node"),
            zone=labels.get("zone"),
        )
    return workers


def _owner(labels: Mapping[str, str]) -> Owner:
    pod = labels.get("pod", "")
    return (labels.get("namespace", ""), pod) if pod else ("", labels.get("instance", ""))


def _clean(text: str) -> str:
    return _ID.sub("-", text)[:63]
