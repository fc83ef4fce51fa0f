"""`pdops preflight`: what must match between prefill and decode and hold on each host, before traffic shows it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.diagnose.preflight_report import PreflightReport
    from pdops.model.cluster import Cluster, Secret
    from pdops.sources.facts.collected import Collected
    from pdops.sources.facts.live import Known
    from pdops.sources.inventory import Inventory

_FAIL_ON = {"fail": ("fail",), "unknown": ("fail", "unknown"), "warn": ("fail", "unknown", "warn")}


@dataclass(slots=True)
class _Read:
    cluster: Cluster
    collected: Collected
    answered: bool = True
    notes: list[str] = field(default_factory=list)


@click.command(
    "preflight",
    epilog="Examples:\n\n"
    "\b\n  pdops preflight\n"
    "  pdops preflight -c pdops.yaml --fail-on unknown\n"
    "  pdops preflight --target prefill=http://10.0.3.11:8000 --target decode=http://10.0.3.12:8000 --json\n"
    "  pdops preflight --manifest prefill.yaml --manifest decode.yaml",
)
@click.option("-c", "--config", type=click.Path(path_type=Path), help="Inventory file (pdops.yaml).")
@click.option("--target", "targets", multiple=True, metavar="ROLE=URL", help="A worker; may be repeated.")
@click.option(
    "--manifest",
    "manifests",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rendered Kubernetes YAML, judged offline; may be repeated.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of a reference deployment; default: the one that `pdops up` started.",
)
@click.option("--server-info", is_flag=True, help="Also ask engines for /server_info (development mode only).")
@click.option("--json", "as_json", is_flag=True, help="Print the published JSON (see `pdops schema preflight`).")
@click.option("--full", is_flag=True, help="Cut nothing, and say what does not apply and why.")
@click.option(
    "--fail-on",
    type=click.Choice(list(_FAIL_ON)),
    default="fail",
    show_default=True,
    help="Least outcome that makes the exit status 1; warn includes unknown.",
)
@click.pass_context
def command(
    ctx: click.Context,
    config: Path | None,
    targets: tuple[str, ...],
    manifests: tuple[Path, ...],
    state_dir: Path | None,
    server_info: bool,
    as_json: bool,
    full: bool,
    fail_on: str,
) -> int:
    """Check what must match between prefill and decode, and what each host must allow.

    Reads metrics pages, versions, command lines and environments of processes on this machine, start logs and the
    machine itself; with --manifest only the files. What cannot be read is listed as unknown.

    Exit status: 0 nothing to fix, 1 an outcome at or above --fail-on, 2 usage, 3 nothing could be read.
    """
    _one_source(config, targets, manifests, state_dir)
    read = _manifests(manifests) if manifests else _live(config, targets, state_dir, server_info)
    report = _judge(read)
    _print(report, as_json, full)
    if not read.answered:
        click.echo("pdops: nothing could be read of any worker", err=True)
        click.echo("hint: check addresses and ports; `curl URL/metrics` shows what a target says", err=True)
        ctx.exit(3)
    return 1 if any(check.status in _FAIL_ON[fail_on] for check in report.checks) else 0


def _one_source(
    config: Path | None, targets: tuple[str, ...], manifests: tuple[Path, ...], state_dir: Path | None
) -> None:
    given = [
        name
        for name, value in (
            ("-c", config),
            ("--target", targets),
            ("--manifest", manifests),
            ("--state-dir", state_dir),
        )
        if value
    ]
    if len(given) > 1:
        raise UsageError("more than one source is given", why=" and ".join(given), hint="give one of them")


def _manifests(paths: tuple[Path, ...]) -> _Read:
    from pdops.sources.facts.manifest import read_manifests
    from pdops.sources.facts.resolve import resolve

    read = read_manifests(paths)
    if (why := _one_sided(read.cluster)) is not None:
        raise UsageError(
            "there is nothing to compare",
            where=", ".join(map(str, paths)),
            why="; ".join([why, *read.notes]),
            hint="give a prefill and a decode workload; the role is read from a label that ends in role, from kv_role, "
            "or from the workload's name",
        )
    for worker in read.cluster.workers:
        resolve(read.collected, worker)
    return _Read(read.cluster, read.collected, notes=read.notes)


def _live(config: Path | None, targets: tuple[str, ...], state_dir: Path | None, server_info: bool) -> _Read:
    import asyncio

    from pdops.cli.inputs import warned
    from pdops.clock import WallClock
    from pdops.sources.facts.live import Known, LiveReader
    from pdops.sources.inventory import from_targets, load_inventory

    if targets or config is not None:
        inventory = warned(from_targets(targets) if targets else load_inventory(config or ""))
        cluster, known = inventory.cluster, Known(admin=_admin(inventory), server_info=server_info)
    else:
        cluster, known = _deployment(state_dir, server_info)
    if not cluster.workers:
        raise UsageError(
            "there is no worker to look at",
            where=str(config),
            why="the inventory lists none",
            hint="list workers in it, or give --target ROLE=URL",
        )
    reader = LiveReader(cluster, WallClock(), known)
    collected = asyncio.run(reader.collect())
    alone = _one_sided(cluster)
    notes = [] if alone is None else [f"{alone}: what must match between prefill and decode is not checked"]
    return _Read(cluster, collected, answered=bool(reader.answered), notes=notes)


def _one_sided(cluster: Cluster) -> str | None:
    """Return why the workers make no pair of prefill and decode, None when they do."""
    from pdops.model.cluster import Role

    absent = [role for role in (Role.PREFILL, Role.DECODE) if not cluster.of_role(role)]
    if not absent:
        return None
    engines = [w for w in cluster.workers if w.role not in (Role.ROUTER, Role.KVSTORE)]
    shown = ", ".join(f"{w.id} ({w.role})" for w in engines[:8]) + (" and more" if len(engines) > 8 else "")
    return f"no {' and no '.join(absent)} worker among {shown or 'them'}"


def _deployment(state_dir: Path | None, server_info: bool) -> tuple[Cluster, Known]:
    from pdops.reference.state import home
    from pdops.sources.facts.live import Known
    from pdops.sources.inventory import load_inventory

    place = home(state_dir=state_dir)
    state = place.read()
    if state is None:
        if state_dir is not None:
            from pdops.errors import DeploymentError

            raise DeploymentError("no deployment is up", where=str(place.path), hint="start one with `pdops up`")
        raise UsageError(
            "no source is given",
            hint="give -c pdops.yaml, --target prefill=URL --target decode=URL or --manifest FILE, or start `pdops up`",
        )
    from pdops.actuate.processes import alive

    pids = {name: ref.pid for name in state.processes if (ref := state.ref(name)) is not None and alive(ref)}
    logs = {name: place.log(name) for name in state.processes}
    inventory = load_inventory(place.inventory)
    return inventory.cluster, Known(pids=pids, logs=logs, admin=_admin(inventory), server_info=server_info)


def _admin(inventory: Inventory) -> dict[str, tuple[str, Secret]]:
    return {name: (entry.url, entry.secret) for name, entry in inventory.admin.items()}


def _judge(read: _Read) -> PreflightReport:
    from pdops.clock import WallClock
    from pdops.diagnose.preflight_report import Reason, report
    from pdops.diagnose.preflight_run import run_preflight
    from pdops.model.series import Window
    from pdops.model.times import rfc3339
    from pdops.model.view import View

    now = WallClock().now()
    view = View(
        cluster=read.cluster,
        at_s=now,
        start_s=now,
        now=Window(now, now),
        base=None,
        series={},
        facts=read.collected.facts,
    )
    unread = [Reason(u.worker, u.key, u.why) for u in read.collected.still_unread()]
    return report(
        run_preflight(view), cluster=read.cluster.name, at=rfc3339(now), unread=unread, notes=dict.fromkeys(read.notes)
    )


def _print(report: PreflightReport, as_json: bool, full: bool) -> None:
    if as_json:
        from pdops.diagnose.preflight_report import to_json

        click.echo(to_json(report), nl=False)
        return
    from pdops.cli.style import styler, width
    from pdops.diagnose.preflight_text import render

    click.echo(render(report, width=width(), style=styler(sys.stdout), full=full), nl=False)
