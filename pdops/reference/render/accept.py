"""Which plans can be rendered."""

from __future__ import annotations

from pdops.errors import UsageError
from pdops.reference.spec import DeploymentSpec, Profile


def check(spec: DeploymentSpec, kind: str) -> None:
    """Refuse what would render but never start.

    Raises:
        UsageError: it is for the CPU profile, for another router, or engines of a role differ.
    """
    if spec.profile is not Profile.GPU:
        raise UsageError(
            f"the cpu profile cannot be rendered as {kind}",
            why="its engine lives in an environment that `pdops up` builds on one machine; the pinned engine image "
            "needs a GPU, so the manifests would never become ready",
            hint="pdops up --profile gpu --model NAME --render DIR, or start it here: pdops up --profile cpu",
        )
    if spec.router is not None and spec.router.kind != "pdops":
        raise UsageError(
            f"{spec.router.kind} cannot be rendered as {kind}",
            why="readiness, draining and alerts of the manifests are those of pdops' own router",
            hint="take --router pdops, or --router none and put yours in front",
        )
    if not (spec.prefills() and spec.decodes()):
        raise UsageError(
            "a prefill/decode deployment has at least one engine of each role",
            where=kind,
            hint="--prefill 1 --decode 1",
        )
    for of_role in (spec.prefills(), spec.decodes()):
        if len({(e.blocks, e.extra) for e in of_role}) > 1:
            raise UsageError(
                f"engines of one role differ, so they are no replicas: {', '.join(e.id for e in of_role)}",
                where=kind,
                hint="give all engines of a role the same options",
            )
        ids = [f"{of_role[0].role.value}-{n}" for n in range(len(of_role))]
        if [e.id for e in of_role] != ids:
            raise UsageError(
                f"workers must be called {', '.join(ids)}",
                where=kind,
                why="replicas are numbered from zero",
                hint="leave their names to pdops up",
            )
