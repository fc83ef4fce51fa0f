"""Judge whatever source the options name, once."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from pdops.cli.ending import ended_by_sigterm
from pdops.cli.inputs import Inputs, cluster_of, live_source, open_played
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.diagnose.scan import Judged
    from pdops.model.view import Note


def judge(inputs: Inputs, at: str | None, watch_s: float) -> tuple[Judged, bool]:
    """Return what was seen with its report, and whether any target answered.

    Raises:
        UsageError: the options exclude each other, or `at` is not a time in the recording.
    """
    kind = inputs.kind()
    if at is not None and kind != "replay":
        raise UsageError("--at needs --replay", hint="live sources are judged now")
    if kind == "case":
        return _case(inputs), True
    if kind == "replay":
        return _replay(inputs, at), True
    return asyncio.run(_until_told(inputs, watch_s))


def _case(inputs: Inputs) -> Judged:
    from pdops.diagnose.engine import diagnose
    from pdops.diagnose.scan import Judged
    from pdops.sources.case import case_view, load_case

    assert inputs.case is not None
    view, aside = case_view(load_case(inputs.case))
    report = diagnose(view)
    return Judged(view, dataclasses.replace(report, missing=report.missing + aside))


def _replay(inputs: Inputs, at: str | None) -> Judged:
    from pdops.cli.style import warn
    from pdops.diagnose import scan

    assert inputs.replay is not None
    played = open_played(inputs.replay)
    record = played.record
    cluster = cluster_of(inputs, record.cluster)
    if at is None:
        judged = scan.strongest(record.iter_frames(), cluster, interval_s=record.interval_s)
    else:
        at_s = moment(at, played.start_s, played.end_s)
        judged = scan.at(record.iter_frames(), cluster, at_s, interval_s=record.interval_s)
    for warning in record.warnings:
        warn(warning)
    return _with_damage(judged, record.notes)


def _with_damage(judged: Judged, notes: tuple[Note, ...]) -> Judged:
    """Add what reading the whole file found wrong: the instant that was judged may lie before it."""
    from pdops.diagnose.engine import lost
    from pdops.diagnose.scan import Judged

    if not notes:
        return judged
    view = dataclasses.replace(judged.view, notes=judged.view.notes + notes)
    return Judged(view, dataclasses.replace(judged.report, missing=lost(notes) + judged.report.missing))


def moment(text: str, start_s: float, end_s: float) -> float:
    """Return Unix seconds of `--at`, which must lie inside the recording."""
    from pdops.model.times import parse_rfc3339, rfc3339

    try:
        seconds = float(text)
        at_s = end_s + seconds if text.startswith("-") else start_s + seconds
    except ValueError:
        try:
            at_s = parse_rfc3339(text)
        except ValueError as error:
            raise UsageError(
                "--at is not a time", where=repr(text), hint="give seconds or 2026-11-29T12:00:00Z"
            ) from error
    if not start_s <= at_s <= end_s + 1:
        raise UsageError(
            "--at lies outside the recording",
            where=text,
            why=f"it runs {end_s - start_s:.0f} s from {rfc3339(start_s)}",
            hint="give 0 to its length, or a negative number from its end",
        )
    return at_s


async def _until_told(inputs: Inputs, watch_s: float) -> tuple[Judged, bool]:
    async with ended_by_sigterm():
        return await _live(inputs, watch_s)


async def _live(inputs: Inputs, watch_s: float) -> tuple[Judged, bool]:
    from pdops.cli.style import progress
    from pdops.clock import WallClock
    from pdops.diagnose.engine import diagnose
    from pdops.diagnose.scan import Judged
    from pdops.history.ring import Ring

    source = live_source(inputs)
    ring = Ring(source.cluster, interval_s=source.interval_s, window_s=min(60.0, max(watch_s, 3 * source.interval_s)))
    answered = False
    first_s: float | None = None
    began_s = WallClock().now()
    try:
        with progress(f"watching {len(source.cluster.workers) or 'the'} workers", watch_s) as tick:
            async for frame in source.frames():
                ring.cluster = source.cluster
                ring.add(frame)
                ring.take_notes(source.notes)
                answered = answered or any(s.error is None for s in frame.scrapes)
                first_s = frame.at_s if first_s is None else first_s
                tick(frame.at_s - first_s)
                # A source with history begins in the past; it is enough when it has come to now.
                if frame.at_s - first_s >= watch_s and frame.at_s >= began_s - source.interval_s:
                    break
    finally:
        await source.aclose()
    view = ring.view()
    return Judged(view, diagnose(view)), answered
