"""Which releases a worker is made of, and which entries of the list of bad ones they fall under."""

from __future__ import annotations

from pdops.catalog.known_bad import KnownBad, known_bad
from pdops.diagnose.context import Context
from pdops.diagnose.fabric import uses
from pdops.diagnose.hosts import leaf
from pdops.diagnose.preflight import fact
from pdops.model.cluster import Worker

FACTS = {"nixl": "nixl_version", "lmcache": "lmcache_version", "mooncake": "mooncake_version"}
"""The fact that tells a component's version; the engine's own goes by `version`."""


def components(ctx: Context, worker: Worker) -> tuple[str, ...]:
    """Return what a worker is made of, as far as its connectors tell; NIXL is taken to be there until they do."""
    engine = worker.engine if worker.engine in ("vllm", "sglang") else "vllm" if worker.engine is None else None
    found = [engine] if engine else []
    if uses(ctx, worker.id, "nixl") is not False:
        found.append("nixl")
    found += [c for c in ("lmcache", "mooncake") if uses(ctx, worker.id, c)]
    listed = {component for entry in known_bad() for component in entry.versions}
    return tuple(c for c in found if c in listed)


def version(ctx: Context, worker: Worker, component: str) -> str | None:
    """Return the version of one component of a worker, or None when it was not read."""
    name = FACTS.get(component)
    if name is not None:
        return fact(ctx, worker.id, name)
    return fact(ctx, worker.id, "version") or worker.version


def hit(ctx: Context, worker: Worker, entry: KnownBad) -> bool:
    """Whether all versions of an entry, and its backend, are those of a worker."""
    ours = components(ctx, worker)
    for component in entry.versions:
        ours_is = version(ctx, worker, component) if component in ours else None
        if ours_is is None or not entry.covers(component, ours_is):
            return False
    # NIXL's backend is UCX where none is named.
    backends = leaf(ctx, worker.id, "backends") or "UCX"
    return entry.backend is None or entry.backend.casefold() in backends.casefold()
