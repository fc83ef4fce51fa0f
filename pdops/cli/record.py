"""`pdops record`: keep what a cluster says, for later."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from pdops.cli.inputs import Inputs, live_source, source_options
from pdops.cli.style import Number
from pdops.errors import UsageError


@click.command(
    "record",
    epilog="Examples:\n\n\b\n  pdops record -c pdops.yaml -o incident.pdrec\n"
    "  pdops record --target prefill=http://10.0.3.11:8000 --target decode=http://10.0.3.12:8000 -o x.pdrec --for 120",
)
@source_options(case=False, replay=False)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="File to write (*.pdrec)."
)
@click.option("--for", "for_s", type=Number(min=1), metavar="S", help="Stop after so many seconds; else at Ctrl-C.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(inputs: Inputs, output: Path, for_s: float | None, force: bool) -> int:
    """Record every series pdops reads, with events, facts and log lines, until Ctrl-C or --for.

    The file can be read up to its last ten seconds even if this process is killed.
    """
    if output.exists() and not force:
        raise UsageError(
            "the output file exists already", where=str(output), hint="choose another name, or --force to replace it"
        )
    frames = asyncio.run(_record(inputs, output, for_s, force))
    click.echo(f"{output}: {frames} frames, {output.stat().st_size / 1000:.0f} kB", err=True)
    return 0


async def _record(inputs: Inputs, output: Path, for_s: float | None, force: bool) -> int:
    from pdops.cli.style import progress
    from pdops.errors import UnreachableError
    from pdops.sources.recording import RecordingWriter

    source = live_source(inputs)
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        if task is not None:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup a terminal that goes away ends nothing.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
    count = 0
    answered = False
    first_s: float | None = None
    try:
        with (
            RecordingWriter(output, source.cluster, interval_s=source.interval_s, overwrite=force) as writer,
            progress("recording", for_s or 0.0) as tick,
        ):
            async for frame in source.frames():
                writer.write(frame)
                count += 1
                answered = answered or any(s.error is None for s in frame.scrapes)
                first_s = frame.at_s if first_s is None else first_s
                tick(frame.at_s - first_s)
                if for_s is not None and frame.at_s - first_s >= for_s:
                    break
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        await source.aclose()
    if not answered:
        raise UnreachableError(
            "no target answered",
            where=str(output),
            why="the recording holds only failures",
            hint="check addresses and ports",
        )
    return count
