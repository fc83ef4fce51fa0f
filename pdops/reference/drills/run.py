"""List and run drills on a deployment that is up: what the command line calls."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pdops.reference.drills import judge, play
from pdops.reference.drills.crew import Programs
from pdops.reference.drills.deployment import Deployment
from pdops.reference.drills.plan import Drill, obstacles
from pdops.reference.drills.registry import DRILLS
from pdops.reference.running import Running

LIST_SCHEMA = "pdops/drills/v1"
RUN_SCHEMA = "pdops/drill-run/v1"


def listing(deployment: Deployment | None) -> dict[str, Any]:
    """Return every drill with what it needs and, when it cannot be run here, why; as published JSON.

    Without a deployment only this machine is looked at.
    """
    switch = deployment is not None and play.has_router_drills(deployment)
    found = []
    for drill in DRILLS.values():
        why = obstacles(drill, deployment, router_drills=switch)
        found.append(
            {
                "name": drill.name,
                "family": drill.family,
                "summary": drill.summary,
                "split": drill.split.value,
                "verdict": drill.expect.verdict.value,
                "layers": [layer.value for layer in drill.expect.layers_ok],
                "causes": list(drill.expect.causes),
                "least_s": round(drill.least_s),
                "needs": [need.value for need in drill.needs],
                "up": drill.up_command(),
                "available": not why,
                "why": list(why),
                "note": drill.note or None,
            }
        )
    return {
        "schema": LIST_SCHEMA,
        "deployment": deployment.spec.name if deployment is not None else None,
        "drills": found,
    }


def run(
    drill: Drill, running: Running, out: Path, hands: play.Hands, *, force: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Run a drill, keep its recording and truth in `out`, diagnose the recording; return what was seen, as JSON and as text.

    Raises:
        UsageError: the output files exist, or cannot be written.
        DeploymentError: the drill cannot be run, did not take effect, or could not be put back.
    """
    where = play.outputs(drill, out, force=force)
    with running.home.locked(f"run drill {drill.name}"):
        play.check(drill, running)
        # Beside where it goes, so that moving it is one step; and gone when the drill fails.
        with tempfile.TemporaryDirectory(prefix=".pdops-drill-", dir=out) as folder:
            part = Path(folder) / f"{drill.name}.pdrec"
            crew = Programs(Path(folder), f"{running.state.mark}#drill")
            stage, length_s = play.play(drill, running, crew, part, hands)
            played = play.keep(drill, stage, length_s, part, where)
            loads = crew.summaries()
    outcome = judge.compare(played.recording, played.truth)
    return {
        "schema": RUN_SCHEMA,
        "drill": drill.name,
        "split": drill.split.value,
        "recording": str(played.recording),
        "bytes": played.recording.stat().st_size,
        "truth": str(played.truth),
        "actions": list(played.actions),
        "windows": list(played.windows),
        "loads": loads,
        "diagnosis": outcome.document(),
    }, outcome.lines()
