"""Render a deployment as manifests: pure functions from its plan to texts by path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pdops.reference.render import compose, kubernetes
from pdops.reference.render.settings import Settings
from pdops.reference.render.write import Written, write
from pdops.reference.spec import DeploymentSpec

Kind = Literal["compose", "kubernetes"]
KINDS: tuple[Kind, ...] = ("compose", "kubernetes")


def render(spec: DeploymentSpec, kind: Kind, settings: Settings | None = None) -> Mapping[str, str]:
    """Return the files of a deployment by path.

    Raises:
        UsageError: the plan is for the CPU profile, for another router, or engines of a role differ.
    """
    made = compose.render if kind == "compose" else kubernetes.render
    return made(spec, settings or Settings())


__all__ = ["KINDS", "Kind", "Settings", "Written", "render", "write"]
