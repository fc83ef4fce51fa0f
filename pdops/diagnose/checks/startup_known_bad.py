"""A version in use, or a combination of them, is known to misbehave."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.catalog.known_bad import KnownBad, known_bad
from pdops.diagnose.context import Context
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.preflight import NO_ALERT, Seen, agrees, must, not_applicable, unread, warn
from pdops.diagnose.releases import FACTS, build, components
from pdops.diagnose.releases import version as version_of
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
_FIX = "let pdops read the engine's version page and environment, or give the version as a fact"


def check(ctx: Context) -> Iterator[Finding]:
    """Hold the versions of every engine against the list."""
    workers = ctx.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED)
    if not workers:
        yield not_applicable(NOTHING, "the inventory has no engine")
        return
    builds = [(w, build(ctx, w)) for w in workers]
    for entry in known_bad():
        ours = [w for w, made in builds if made.falls_under(entry)]
        if ours:
            yield _finding(ctx, entry, ours)
    unknown: dict[str, list[str]] = {}
    told: dict[str, None] = {}
    for worker in workers:
        for component in components(ctx, worker):
            version = version_of(ctx, worker, component)
            if version is None:
                unknown.setdefault(f"{component}: its version was not read", []).append(worker.id)
            elif all(e.covers(component, version) is None for e in known_bad() if component in e.versions):
                unknown.setdefault(f"{component} {version!r} is no version that compares", []).append(worker.id)
            else:
                told[f"{component} {version}"] = None
    for why, names in unknown.items():
        component = why.partition(":")[0].partition(" ")[0]
        yield unread(NOTHING, names, FACTS.get(component, "version"), why, _FIX)
    if told and not any(made.falls_under(e) for _, made in builds for e in known_bad()):
        yield agrees(NOTHING, f"not on the list: {', '.join(told)}")


def _finding(ctx: Context, entry: KnownBad, workers: list[Worker]) -> Finding:
    seen = [Seen(w.id, FACTS.get(c, "version"), version_of(ctx, w, c)) for w in workers for c in entry.versions]
    spec = ", ".join(f"{component} {versions}" for component, versions in entry.versions.items())
    # What only users reported, or what hangs on more than versions, may not hit here.
    sure = entry.evidence != "reported" and entry.where is None
    say = must if sure else warn
    narrowed = f" on {entry.where}" if entry.where else ""
    return say(
        entry.cause, seen, f"not {spec}{narrowed}: {entry.what}", entry.fix, f"read {entry.source} ({entry.evidence})"
    )
