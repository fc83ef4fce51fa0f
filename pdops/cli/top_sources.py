"""What `pdops top` looks at: one source, or several side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pdops.cli.inputs import Inputs, cluster_of, live_source, open_played
from pdops.cli.judge import judge, moment
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.model.report import Report
    from pdops.model.view import View
    from pdops_tui.models.screen import Screen
    from pdops_tui.session import Session
    from pdops_tui.snapshot import Feed


def separate(inputs: Inputs, replays: Sequence[Path]) -> list[Inputs]:
    """Return the options of each source that was asked for, in the order given.

    Raises:
        UsageError: the options exclude each other.
    """
    if replays:
        found = [dataclasses.replace(inputs, replay=path) for path in replays]
    elif len(inputs.configs) > 1:
        found = [dataclasses.replace(inputs, configs=(path,)) for path in inputs.configs]
    else:
        found = [inputs]
    for each in found:
        each.kind()
    if len(found) > 1 and not replays and (inputs.targets or inputs.prometheus or inputs.case):
        raise UsageError(
            "several inventories go with nothing else",
            where=" and ".join(map(str, inputs.configs)),
            hint="put targets and Prometheus into the inventories",
        )
    return found


def label(inputs: Inputs) -> str:
    """Return where data comes from, in a few words."""
    if inputs.replay is not None:
        return f"replay {inputs.replay.name}"
    if inputs.case is not None:
        return f"case {inputs.case.name}"
    if inputs.prometheus is not None:
        return "prometheus"
    return "scrape"


def feed_of(sources: Sequence[Inputs], *, at: str | None, speed: float) -> Feed:
    """Return what the screen draws from; it is not started yet.

    Raises:
        UsageError: a source cannot be opened.
    """
    from pdops_tui.group import Group

    feeds = [_one(each, at, speed) for each in sources]
    return feeds[0] if len(feeds) == 1 else Group(feeds, [_name(each) for each in sources])


def _one(inputs: Inputs, at: str | None, speed: float) -> Feed:
    if inputs.replay is None:
        from pdops_tui.live import LiveFeed

        return LiveFeed(live_source(inputs), verdict_of, label=label(inputs))
    from pdops_tui.replay import ReplayFeed

    played = open_played(inputs.replay)
    start_s = moment(at, played.start_s, played.end_s) if at is not None else None
    cluster = cluster_of(inputs, played.record.cluster)
    return ReplayFeed(played.record, verdict_of, speed=speed, start_s=start_s, cluster=cluster)


def verdict_of(view: View) -> Report:
    """Judge a View. All checks are loaded by the first judgement, in the thread that judges: the numbers are drawn meanwhile."""
    from pdops.diagnose.engine import diagnose

    return diagnose(view)


def _name(inputs: Inputs) -> str:
    path = inputs.replay or inputs.config
    if path is None:
        return label(inputs)
    return path.stem if path.stem != "pdops" else str(path)


def screens_of(
    sources: Sequence[Inputs], at: str | None, watch_s: float, session: Session, *, places: bool
) -> tuple[list[Screen], bool]:
    """Return each source, judged once, as the screen shows it, and whether any target answered.

    Args:
        sources: the options of each.
        at: the instant of recordings, as `--at` takes it.
        watch_s: how long live targets are watched, in seconds.
        session: filter and the like.
        places: tell where in its recording each instant lies.
    """
    from pdops_tui.models.screen import build
    from pdops_tui.snapshot import Position, Snapshot

    screens, answered = [], False
    for number, each in enumerate(sources):
        judged, heard = judge(each, at, watch_s)
        answered = answered or heard
        position = None
        if places and each.replay is not None:
            played = open_played(each.replay)
            position = Position(index=0, start_s=played.start_s, at_s=judged.view.at_s, end_s=played.end_s)
        snapshot = Snapshot(
            seq=0,
            view=judged.view,
            report=judged.report,
            source=label(each),
            position=position,
            number=number,
            sources=tuple(map(_name, sources)) if len(sources) > 1 else (),
        )
        screens.append(build(snapshot, session))
    return screens, answered
