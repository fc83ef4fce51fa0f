"""`pdops exporter`: one scrape gives every engine's signals under one name, and what engines do not give."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pdops.cli.inputs import Inputs, live_source, source_options
from pdops.cli.style import Number
from pdops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from prometheus_client import CollectorRegistry

    from pdops.clock import Clock
    from pdops.model.cluster import Cluster
    from pdops.model.frame import Probe

PORT = 9464
"""Port OpenTelemetry's specification gives to Prometheus exporters; NIXL, LMCache and Prometheus all default to 9090."""


@click.command(
    "exporter",
    epilog="Examples:\n\n"
    "\b\n  pdops exporter -c pdops.yaml\n"
    "  pdops exporter --target prefill=http://127.0.0.1:8000 --target decode=http://127.0.0.1:8001 --once\n"
    "  pdops exporter -c pdops.yaml --otlp http://collector:4318",
)
@source_options(case=False, replay=False, prometheus=False, interval_s=5.0)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port; 0 takes a free one."
)
@click.option("--otlp", metavar="URL", help="Also push to this OTLP/HTTP receiver.")
@click.option(
    "--push-every",
    "push_s",
    type=Number(1, 3600),
    default=15.0,
    show_default=True,
    metavar="S",
    help="Seconds between pushes.",
)
@click.option("--gpu/--no-gpu", default=True, show_default=True, help="Read the GPUs of this host through NVML.")
@click.option(
    "--canary",
    "canary_s",
    type=Number(10, 86400),
    metavar="S",
    help="Send canaries every S seconds: a tiny request through every router and up to 16 pairs. Off by default.",
)
@click.option(
    "--journal",
    "journal_path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also export the runbook runs of this journal, which is only read.",
)
@click.option("--once", is_flag=True, help="Print the page of one look and end.")
def command(
    inputs: Inputs,
    host: str,
    port: int,
    otlp: str | None,
    push_s: float,
    gpu: bool,
    canary_s: float | None,
    journal_path: Path | None,
    once: bool,
) -> int:
    """Serve canonical pdops_* metrics of a whole cluster at /metrics.

    Engines are read in the background; a scrape is answered from what was last seen. Counters start at zero with this
    process and never fall when an engine restarts. A worker that does not answer keeps pdops_worker_up 0, its presence,
    restarts and the age of its last page, and no value of its own.
    """
    if once and otlp is not None:
        raise UsageError("--once pushes nothing", hint="leave out --once, or --otlp")
    if once and canary_s is not None:
        raise UsageError("--once sends no canaries", hint="ask once with `pdops canary`, or leave out --once")
    return asyncio.run(_run(inputs, host, port, otlp, push_s, gpu, canary_s, journal_path, once))


async def _run(
    inputs: Inputs,
    host: str,
    port: int,
    otlp: str | None,
    push_s: float,
    gpu: bool,
    canary_s: float | None,
    journal_path: Path | None,
    once: bool,
) -> int:
    from prometheus_client import CollectorRegistry

    from pdops.clock import WallClock
    from pdops.errors import UnreachableError
    from pdops_exporters import serve
    from pdops_exporters.collector import ClusterCollector
    from pdops_exporters.page import write
    from pdops_exporters.watched import Watched

    source = live_source(_engines(inputs), whole_pages=True, follow=True)
    clock = WallClock()
    watched = Watched(source.cluster, interval_s=source.interval_s, monotonic=clock.monotonic)
    registry = CollectorRegistry()
    ClusterCollector(watched.snapshot, registry)
    if gpu:
        _gpus(registry, source.cluster, clock)
    if journal_path is not None:
        from pdops.runbook.metrics import RunbookCollector

        RunbookCollector(journal_path, clock, registry)
    if once:
        try:
            # A second look tells what moved; the first one knows levels only.
            frames = source.frames()
            for _ in range(2):
                watched.add(await anext(frames))
        finally:
            await source.aclose()
        snapshot = watched.snapshot()
        if snapshot is None or not snapshot.pages:
            raise UnreachableError("no target answered", hint="check addresses and ports")
        click.echo(write(registry).decode(), nl=False)
        return 0
    stop = asyncio.Event()
    got: list[int] = []
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        got.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    async with _canaries(source.cluster, clock, canary_s) as probes, serve.watching(source, watched, probes) as follow:
        runner = await serve.listen(serve.app(registry, watched, follow), host, port)
        try:
            bound = runner.addresses[0][:2]
            click.echo(f"pdops exporter: http://{bound[0]}:{bound[1]}/metrics", err=True)
            await _until(stop, follow, registry, otlp, push_s)
        finally:
            await runner.cleanup()
    return 130 if signal.SIGINT in got else 0


async def _until(
    stop: asyncio.Event, follow: asyncio.Task[None], registry: CollectorRegistry, otlp: str | None, push_s: float
) -> None:
    """Wait for a signal or the end of the source; push in between when asked."""
    from pdops_exporters.otlp import OtlpPush

    push = OtlpPush(registry, otlp, every_s=push_s) if otlp else None
    waiter = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set() and not follow.done():
            await asyncio.wait({waiter, follow}, timeout=push_s / 2 if push else None, return_when="FIRST_COMPLETED")
            if push is not None:
                await asyncio.to_thread(push.refresh)
        if follow.done() and not follow.cancelled():
            follow.result()
    finally:
        waiter.cancel()
        if push is not None:
            await asyncio.to_thread(push.close)


def _engines(inputs: Inputs) -> Inputs:
    """Return the options when they name engines.

    Raises:
        UsageError: they name a Prometheus server only. It gives rates of pools, of which no counter can be made.
    """
    inventory = None if inputs.prometheus is not None else inputs.inventory()
    alone = inventory is not None and inventory.prometheus is not None and not inventory.cluster.workers
    if inputs.prometheus is None and not alone:
        return inputs
    raise UsageError(
        "the exporter reads engines, not Prometheus",
        where=inputs.prometheus or str(inputs.config),
        why="what a Prometheus server has it has already, and rates of pools make no counters",
        hint="give -c pdops.yaml that lists workers, or --target ROLE=URL; `pdops diagnose --prometheus` reads the server",
    )


@contextlib.asynccontextmanager
async def _canaries(
    cluster: Cluster, clock: Clock, every_s: float | None
) -> AsyncIterator[Callable[[], tuple[Probe, ...]]]:
    """Send canaries until the block ends, when asked to; gives what takes their results."""
    if every_s is None:
        yield tuple
        return
    from pdops_exporters.canaries import Canaries

    canaries = Canaries(cluster, clock, every_s)
    task = asyncio.create_task(canaries.run(), name="exporter-canaries")
    try:
        yield canaries.take
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _gpus(registry: CollectorRegistry, cluster: Cluster, clock: Clock) -> None:
    from pdops_exporters.gpu import GpuCollector, open_nvml
    from pdops_exporters.owners import LocalOwners

    nvml, reason = open_nvml()
    GpuCollector(nvml, registry, owner=LocalOwners(cluster, clock.monotonic), reason=reason)
