"""`pdops diagnose --watch`: judge again and again, and say what changed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from pdops.cli.ending import ended_by_sigterm
from pdops.cli.inputs import Inputs, cluster_of, live_source, open_played
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.history.ring import Ring
    from pdops.model.report import Report


class _Teller:
    """Prints a report when it differs from the one before."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self.last: Report | None = None

    def hear(self, ring: Ring) -> None:
        from pdops.diagnose.changes import changed, line
        from pdops.diagnose.encode import to_dict
        from pdops.diagnose.engine import diagnose
        from pdops.sources.redact import clean

        report = diagnose(ring.view())
        before, self.last = self.last, report
        if not changed(before, report):
            return
        if self._as_json:
            click.echo(json.dumps(to_dict(report), ensure_ascii=False, allow_nan=False))
        else:
            click.echo("\n".join(map(clean, line(before, report).split("\n"))))


def watch(inputs: Inputs, watch_s: float, *, as_json: bool) -> tuple[Report, bool]:
    """Print changes until a recording ends or Ctrl-C; return the last report and whether any target answered.

    Args:
        inputs: the source options.
        watch_s: how long live targets are watched before the first answer, and the judged window.
        as_json: print each changed diagnosis as JSON on one line.

    Raises:
        UsageError: the source has no time to watch.
    """
    kind = inputs.kind()
    if kind == "case":
        raise UsageError("a case does not change", where="--watch", hint="leave --watch out, or give --replay FILE")
    teller = _Teller(as_json=as_json)
    answered = _replay(inputs, teller) if kind == "replay" else asyncio.run(_until_told(inputs, watch_s, teller))
    assert teller.last is not None
    return teller.last, answered


def _replay(inputs: Inputs, teller: _Teller) -> bool:
    from pdops.cli.style import warn
    from pdops.diagnose.scan import STEP_S
    from pdops.history.ring import Ring

    assert inputs.replay is not None
    played = open_played(inputs.replay)
    record = played.record
    ring = Ring(cluster_of(inputs, record.cluster), interval_s=record.interval_s)
    # A window that is not yet full says nothing about the cluster.
    next_s = played.start_s + ring.window_s
    for frame in record.iter_frames():
        ring.add(frame)
        ring.take_notes(record.notes)
        if frame.at_s >= next_s:
            next_s = frame.at_s + STEP_S
            teller.hear(ring)
    if teller.last is None:
        teller.hear(ring)
    for warning in record.warnings:
        warn(warning)
    return True


async def _until_told(inputs: Inputs, watch_s: float, teller: _Teller) -> bool:
    async with ended_by_sigterm():
        return await _live(inputs, watch_s, teller)


async def _live(inputs: Inputs, watch_s: float, teller: _Teller) -> bool:
    from pdops.clock import WallClock
    from pdops.diagnose.scan import STEP_S
    from pdops.history.ring import Ring

    source = live_source(inputs)
    ring = Ring(source.cluster, interval_s=source.interval_s, window_s=min(60.0, max(watch_s, 3 * source.interval_s)))
    answered = False
    next_s: float | None = None
    began_s = WallClock().now()
    try:
        async for frame in source.frames():
            ring.cluster = source.cluster
            ring.add(frame)
            ring.take_notes(source.notes)
            answered = answered or any(s.error is None for s in frame.scrapes)
            next_s = frame.at_s + watch_s if next_s is None else next_s
            # A source with history begins in the past; what happened then is no news.
            if frame.at_s >= next_s and frame.at_s >= began_s - source.interval_s:
                next_s = frame.at_s + STEP_S
                teller.hear(ring)
    finally:
        await source.aclose()
    return answered
