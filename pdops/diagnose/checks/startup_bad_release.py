"""Something is wrong, and a release in use is known to do just that."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.catalog.known_bad import known_bad
from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, Weighed
from pdops.diagnose.releases import FACTS, build
from pdops.diagnose.symptoms import picture
from pdops.model.cluster import Role
from pdops.model.report import Evidence

META = CheckMeta(
    id="startup/bad-release",
    title="A release in use is known for a fault, and something is wrong",
    causes=tuple(sorted({entry.cause for entry in known_bad()})),
    needs=(),
    tier=Tier.PAIR,
    no_alert="versions are no metric; they are compared when they are read",
)

_CAP = 0.45
"""Most by versions alone: many run the same release without meeting its fault."""


def check(ctx: Context) -> Iterator[Finding]:
    """Name the entries of the list of bad releases that fit, while there is a symptom to explain."""
    if not picture(ctx).symptoms:
        return
    workers = ctx.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED)
    builds = {w: build(ctx, w) for w in workers}
    for entry in known_bad():
        ours = [w for w, made in builds.items() if made.falls_under(entry)]
        if not ours:
            continue
        yield Finding(
            status=Status.FIRED,
            cause=entry.cause,
            scopes=tuple(ctx.scope(w.id) for w in ours),
            for_=tuple(
                Weighed(
                    Evidence(
                        signal=FACTS.get(component, "version"),
                        scope=ctx.scope(w.id),
                        observed=builds[w].versions[component],
                        expected=f"not {versions}: {entry.what}",
                        basis="config",
                    ),
                    MODERATE if entry.evidence == "reported" or entry.where else STRONG,
                    "release",
                )
                for w in ours[:3]
                for component, versions in entry.versions.items()
            ),
            next=(
                f"{entry.fix} ({entry.what}; {entry.evidence})",
                f"read {entry.source} and see whether it is the same picture",
            ),
            cap=_CAP,
        )
