"""`pdops schema`: the JSON Schema of every format that others rely on."""

from __future__ import annotations

import json
from typing import Any

import click

NAMES = (
    "audit",
    "bench-diagnosis",
    "canary",
    "case",
    "diagnosis",
    "down",
    "drill-run",
    "drills",
    "explain",
    "explain-list",
    "inventory",
    "notification",
    "plan",
    "preflight",
    "recording-header",
    "render",
    "respond",
    "rules-check",
    "run",
    "runbook",
    "runbook-lint",
    "runbooks",
    "runs",
    "sim",
    "status",
    "top",
    "truth",
)


@click.command("schema", epilog="Example: pdops schema diagnosis > diagnosis.schema.json")
@click.argument("name", required=False, type=click.Choice(NAMES), metavar=f"[{'|'.join(NAMES)}]")
def command(name: str | None) -> int:
    """Print the JSON Schema of a format; without a name, list them."""
    if name is None:
        for each in NAMES:
            click.echo(each)
        return 0
    click.echo(json.dumps(_schema(name), indent=1, ensure_ascii=False))
    return 0


def _schema(name: str) -> dict[str, Any]:
    if name == "diagnosis":
        from pdops.diagnose.encode import schema as diagnosis

        return diagnosis()
    if name == "preflight":
        from pdops.diagnose.preflight_report import schema as preflight

        return preflight()
    if name in ("explain", "explain-list"):
        from pdops.diagnose.explain_json import schema as explain

        return explain(name)
    if name == "bench-diagnosis":
        from pdops.bench.encode import schema as bench_diagnosis

        return bench_diagnosis()
    if name == "canary":
        from pdops.probe.encode import schema as canary

        return canary()
    if name in ("drills", "drill-run"):
        from pdops.reference.drills import schema as drills

        return drills.listing() if name == "drills" else drills.running()
    if name in ("down", "render", "status"):
        from pdops.reference import schemas

        return {"down": schemas.down, "render": schemas.render, "status": schemas.status}[name]()
    if name == "rules-check":
        from pdops.grafana.rules.check import schema as rules_check

        return rules_check()
    if name == "notification":
        from pdops.actuate.notify import schema as notification

        return notification()
    if name in ("audit", "plan", "run", "runbook", "runbook-lint", "runbooks", "runs"):
        from pdops.runbook import encode

        return {
            "audit": encode.audit_schema,
            "run": encode.run_schema,
            "runs": encode.runs_schema,
            "plan": encode.plan_schema,
            "runbook": encode.runbook_schema,
            "runbook-lint": encode.lint_schema,
            "runbooks": encode.listing_schema,
        }[name]()
    if name == "respond":
        from pdops.respond.status import schema as respond

        return respond()
    if name == "top":
        from pdops_tui.encode import schema as top

        return top()
    if name == "sim":
        from pdops.sim.spec import SimFile
        from pdops.sources.schemas import DIALECT

        return {"$schema": DIALECT, **SimFile.model_json_schema()}
    from pdops.sources.schemas import schema

    return schema(name)
