"""A version in use, or a combination of them, is known to misbehave."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.catalog.known_bad import KnownBad, known_bad
from pdops.diagnose.context import Context
from pdops.diagnose.fabric import uses
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import leaf
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, fact, must, not_applicable, unread, warn
from pdops.model.cluster import Role, Worker

META = CheckMeta(
    id="startup/known-bad",
    title="No version in use is known to misbehave",
    causes=(*sorted({entry.cause for entry in known_bad()} - {"version-skew"}), "version-skew"),
    needs=(),
    tier=Tier.PAIR,
    no_alert=NO_ALERT,
    preflight=True,
)

NOTHING = "version-skew"
"""The cause that stands for none found, and for versions that could not be read."""
_FACTS = {"nixl": "nixl_version", "lmcache": "lmcache_version", "mooncake": "mooncake_version"}
_FIX = "let pdops read the engine's version page and environment, or give the version as a fact"


def check(ctx: Context) -> Iterator[Finding]:
    """Hold the versions of every engine against the list."""
    workers = ctx.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED)
    if not workers:
        yield not_applicable(NOTHING, "the inventory has no engine")
        return
    for entry in known_bad():
        hit = [w for w in workers if _hit(ctx, w, entry)]
        if hit:
            yield _finding(ctx, entry, hit)
    unknown: dict[str, list[str]] = {}
    told: dict[str, None] = {}
    for worker in workers:
        for component in _components(ctx, worker):
            version = _version(ctx, worker, component)
            if version is None:
                unknown.setdefault(f"{component}: its version was not read", []).append(worker.id)
            elif all(e.covers(component, version) is None for e in known_bad() if component in e.versions):
                unknown.setdefault(f"{component} {version!r} is no version that compares", []).append(worker.id)
            else:
                told[f"{component} {version}"] = None
    for why, names in unknown.items():
        component = why.partition(":")[0].partition(" ")[0]
        yield unread(NOTHING, names, _FACTS.get(component, "version"), why, _FIX)
    if told and not any(_hit(ctx, w, e) for w in workers for e in known_bad()):
        yield agrees(NOTHING, f"not on the list: {', '.join(told)}")


def _components(ctx: Context, worker: Worker) -> tuple[str, ...]:
    """Return what a worker is made of, as far as its connectors tell; NIXL is taken to be there until they do."""
    engine = worker.engine if worker.engine in ("vllm", "sglang") else "vllm" if worker.engine is None else None
    found = [engine] if engine else []
    if uses(ctx, worker.id, "nixl") is not False:
        found.append("nixl")
    found += [c for c in ("lmcache", "mooncake") if uses(ctx, worker.id, c)]
    listed = {component for entry in known_bad() for component in entry.versions}
    return tuple(c for c in found if c in listed)


def _version(ctx: Context, worker: Worker, component: str) -> str | None:
    name = _FACTS.get(component)
    if name is not None:
        return fact(ctx, worker.id, name)
    return fact(ctx, worker.id, "version") or worker.version


def _hit(ctx: Context, worker: Worker, entry: KnownBad) -> bool:
    ours = _components(ctx, worker)
    for component in entry.versions:
        version = _version(ctx, worker, component) if component in ours else None
        if version is None or not entry.covers(component, version):
            return False
    # NIXL's backend is UCX where none is named.
    backends = leaf(ctx, worker.id, "backends") or "UCX"
    return entry.backend is None or entry.backend.casefold() in backends.casefold()


def _finding(ctx: Context, entry: KnownBad, workers: list[Worker]) -> Finding:
    seen = [Seen(w.id, _FACTS.get(c, "version"), _version(ctx, w, c)) for w in workers for c in entry.versions]
    spec = ", ".join(f"{component} {versions}" for component, versions in entry.versions.items())
    # What only users reported, or what hangs on more than versions, may not hit here.
    sure = entry.evidence != "reported" and entry.where is None
    say = must if sure else warn
    narrowed = f" on {entry.where}" if entry.where else ""
    return say(
        entry.cause, seen, f"not {spec}{narrowed}: {entry.what}", entry.fix, f"read {entry.source} ({entry.evidence})"
    )
