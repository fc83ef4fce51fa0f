"""Which releases a worker is made of, and which entries of the list of bad ones they fall under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

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
    return tuple(c for c in found if c in _listed())


@lru_cache(maxsize=1)
def _listed() -> frozenset[str]:
    return frozenset(component for entry in known_bad() for component in entry.versions)


def version(ctx: Context, worker: Worker, component: str) -> str | None:
    """Return the version of one component of a worker, or None when it was not read."""
    name = FACTS.get(component)
    if name is not None:
        return fact(ctx, worker.id, name)
    return fact(ctx, worker.id, "version") or worker.version


@dataclass(frozen=True, slots=True)
class Build:
    """What a worker is made of: versions by component, as far as they were read, and the NIXL backends in use."""

    versions: Mapping[str, str]
    backends: str

    def falls_under(self, entry: KnownBad) -> bool:
        """Whether all versions of an entry, and its backend, are those of this worker."""
        for component in entry.versions:
            if component not in self.versions or not entry.covers(component, self.versions[component]):
                return False
        return entry.backend is None or entry.backend.casefold() in self.backends.casefold()


def build(ctx: Context, worker: Worker) -> Build:
    """Return what a worker is made of."""
    read = {c: found for c in components(ctx, worker) if (found := version(ctx, worker, c)) is not None}
    # NIXL's backend is UCX where none is named.
    return Build(read, leaf(ctx, worker.id, "backends") or "UCX")
