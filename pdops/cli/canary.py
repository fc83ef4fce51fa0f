"""`pdops canary`: one tiny request with a known answer through every pair and every router."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.cli.style import Number, styler
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.model.cluster import Cluster
    from pdops.probe.report import CanaryReport, Result

_UNREACHABLE = 3


@click.command(
    "canary",
    epilog="Examples:\n\n\b\n  pdops canary -c pdops.yaml\n"
    "  pdops canary --target prefill=http://10.0.3.11:8000 --target decode=http://10.0.3.12:8000\n"
    "  pdops canary --name default --pair 'prefill-0>decode-1' --no-router --json",
)
@click.option("-c", "--config", type=click.Path(path_type=Path, dir_okay=False), help="Inventory file (pdops.yaml).")
@click.option("--target", "targets", multiple=True, metavar="ROLE=URL", help="A worker; may be repeated.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="State directory of a deployment of `pdops up`.",
)
@click.option(
    "--name", metavar="NAME", help="Name of a deployment of `pdops up`; without any source, the one called default."
)
@click.option("--pair", "asked", multiple=True, metavar="P>D", help="Only this pair; may be repeated.")
@click.option("--no-router", is_flag=True, help="Ask the pairs only.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(1, 600),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Longest time for the requests of one canary.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("unknown", "wrong", "never")),
    default="unknown",
    show_default=True,
    help="Exit with 1 when a verdict is at least this bad.",
)
@click.option("--json", "as_json", is_flag=True, help="Print pdops/canary/v1.")
def command(
    config: Path | None,
    targets: tuple[str, ...],
    state_dir: Path | None,
    name: str | None,
    asked: tuple[str, ...],
    no_router: bool,
    timeout_s: float,
    fail_on: str,
    as_json: bool,
) -> int:
    """Send one tiny request through every (prefill, decode) pair, and one through each router.

    Right means: the text is prefill's own greedy continuation of the same prompt, it ended as it should, the KV of the
    prompt really came from prefill (by decode's counters of tokens and bytes), and decode computed none of it. What
    cannot be told is unknown, which is not right.

    Exits with 0 when all are right, 1 when not (see --fail-on), 3 when nothing answered.
    """
    cluster = _cluster(config, targets, state_dir, name)
    report = asyncio.run(_run(cluster, asked, timeout_s, routers=not no_router))
    if as_json:
        from pdops.probe.encode import to_json

        click.echo(to_json(report), nl=False)
    else:
        for line in _lines(report):
            click.echo(line)
    if not report.reachable:
        click.echo("pdops: no worker answered", err=True)
        click.echo("hint: check that the cluster runs, and the addresses in the inventory", err=True)
        return _UNREACHABLE
    bad = {"never": set[str](), "wrong": {"wrong"}, "unknown": {"wrong", "unknown"}}[fail_on]
    return 1 if report.status.value in bad else 0


def _cluster(config: Path | None, targets: tuple[str, ...], state_dir: Path | None, name: str | None) -> Cluster:
    from pdops.cli.inputs import warned
    from pdops.sources.inventory import from_targets, load_inventory

    flags = ("-c", config), ("--target", targets), ("--state-dir", state_dir), ("--name", name)
    given = [flag for flag, value in flags if value]
    if len(given) > 1:
        raise UsageError("more than one source is given", why=" and ".join(given), hint="give one of them")
    if targets:
        return warned(from_targets(targets)).cluster
    if config is not None:
        return warned(load_inventory(config)).cluster
    from pdops.reference.state import home

    place = home(name or "default", state_dir)
    if place.inventory.is_file():
        return load_inventory(place.inventory).cluster
    if state_dir is None and name is None:
        hint = "give -c pdops.yaml or --target prefill=URL --target decode=URL, or start a deployment with `pdops up`"
        raise UsageError("no source is given", hint=hint)
    raise UsageError(
        "no deployment is there", where=str(place.path), why="it holds no pdops.yaml", hint="start one: pdops up"
    )


async def _run(cluster: Cluster, asked: tuple[str, ...], timeout_s: float, *, routers: bool) -> CanaryReport:
    import sys

    from pdops.clock import WallClock
    from pdops.model.cluster import Role
    from pdops.probe.canary import Canary, CanarySettings
    from pdops.probe.choose import chosen_pairs

    pairs = chosen_pairs(cluster, asked)
    total = len(pairs) + (len(cluster.of_role(Role.ROUTER)) if routers else 0)
    done = 0

    def told(result: Result) -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            end = "\r\x1b[K" if done == total else ""
            click.echo(f"\r\x1b[K{done}/{total} {result.name} {result.status}{end}", nl=False, err=True)

    canary = Canary(cluster, WallClock(), CanarySettings(timeout_s=timeout_s))
    return await canary.run(pairs, routers=routers, told=told)


def _lines(report: CanaryReport) -> list[str]:
    import sys

    dress = styler(sys.stdout)
    looks = {"ok": "good", "wrong": "bad", "unknown": "warn"}
    wide = max((len(result.name) for result in report.results), default=0)
    lines = []
    for result in report.results:
        word = dress(f"{result.status.value:<7}", looks[result.status.value])
        first = result.seconds.first_token
        ttft = f", first token {first:.2f} s" if first is not None else ""
        lines.append(f"{word}  {result.name:<{wide}}  {result.duration_s:.2f} s{ttft}")
        for check in result.checks:
            if check.status.value != "ok":
                lines.append(f"         {check.status.value}: {check.why}")
        lines += [f"         next: {sentence}" for sentence in result.next]
    lines += [dress(f"note: {note}", "dim") for note in report.notes]
    found = [result.status.value for result in report.results]
    lines.append(", ".join(f"{found.count(word)} {word}" for word in looks))
    return lines
