"""Play a drill: load, record, break, hold, put back, recover; keep the recording and its truth only when all of it went well."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pdops.clock import Clock, WallClock
from pdops.errors import DeploymentError, UsageError
from pdops.model.report import Verdict
from pdops.reference import pages
from pdops.reference.drills.deployment import Deployment
from pdops.reference.drills.plan import (
    AFTER_S,
    BEFORE_S,
    QUIET_S,
    WARM_UP_S,
    Drill,
    Expect,
    obstacles,
)
from pdops.reference.drills.stage import Crew, Stage
from pdops.reference.endings import interruptible, unhurried
from pdops.sources.truth import load_truth

MOST_BYTES = 1_000_000
_HEALTHY = Expect(Verdict.HEALTHY)


@dataclass(frozen=True, slots=True)
class Played:
    """What a drill left: two files, and what was done and is true when."""

    recording: Path
    truth: Path
    actions: tuple[dict[str, Any], ...]
    windows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Hands:
    """Where time comes from and where progress goes to."""

    say: Callable[[str], None]
    clock: Clock = field(default_factory=WallClock)
    pause: Callable[[float], None] = time.sleep


def outputs(drill: Drill, out: Path, *, force: bool = False) -> tuple[Path, Path]:
    """Return where recording and truth of a drill go.

    Raises:
        UsageError: there is one already, or the folder cannot be used.
    """
    recording, truth = out / f"{drill.name}.pdrec", out / f"{drill.name}.truth.yaml"
    for path in (recording, truth):
        if path.exists() and not force:
            raise UsageError(
                "the output file exists already", where=str(path), hint="choose another -o, or --force to replace it"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError("cannot make the output folder", where=str(out), why=why, hint="choose another -o") from error
    if not os.access(out, os.W_OK):
        raise UsageError("the output folder cannot be written to", where=str(out), hint="choose another -o")
    return recording, truth


def play(drill: Drill, deployment: Deployment, crew: Crew, part: Path, hands: Hands) -> tuple[Stage, float]:
    """Run a drill while it is being recorded to `part`; return the stage it left and the recording's length in seconds.

    However it ends, by Ctrl-C too, everything is put back and what was started is stopped.

    Raises:
        DeploymentError: the drill cannot be run, did not take effect, or could not be put back.
        KeyboardInterrupt: it was interrupted; everything was put back.
    """
    stage = Stage(deployment, crew, hands.clock, hands.pause, hands.say, start_s=hands.clock.now())
    with interruptible():
        try:
            length_s = _scenes(drill, stage, part)
        except BaseException:
            with unhurried(hands.say):
                _leave(stage)
            raise
        with unhurried(hands.say):
            _leave(stage)
    return stage, length_s


def _scenes(drill: Drill, stage: Stage, part: Path) -> float:
    stage.settings = dict(drill.steady)
    if drill.prepare is not None:
        drill.prepare(stage)
    kept = len(stage.undos)
    # The first hand-over connects the two sides and is not part of what is shown.
    stage.say(f"           warming up, {WARM_UP_S:.0f} s")
    stage.load(**{**stage.settings, "rate": 2, "duration": WARM_UP_S, "tokens": 8})
    stage.wait(WARM_UP_S)
    stage.start_s = stage.crew.record(stage.deployment.inventory, part)
    stage.recording = True
    stage.say(f"{stage.now():7.1f} s  recording; healthy load until {BEFORE_S:.0f} s")
    stage.steady = stage.load(**stage.settings)
    stage.wait_until(BEFORE_S)
    if drill.act is not None:
        stage.window(stage.now(), _HEALTHY)
        drill.act(stage)
        stage.window(stage.now() + drill.settle_s, None)
        until = stage.windows[-1]["to_s"] + drill.hold_s
        stage.say(f"{stage.now():7.1f} s  the effect shows; held until {until:.0f} s")
        if drill.keep is not None:
            drill.keep(stage)
        stage.wait_until(until)
        stage.window(stage.now(), drill.expect)
        stage.say(f"{stage.now():7.1f} s  putting it back")
        with unhurried(stage.say):
            stage.put_back(keep=kept)
        stage.wait(QUIET_S + drill.linger_s)
        stage.window(stage.now(), None)
    else:
        stage.wait(drill.hold_s)
    stage.wait(AFTER_S)
    stage.window(stage.now(), _HEALTHY)
    length_s = stage.crew.finish()
    # Ending the recording takes a moment, and its last frames are as healthy as those before.
    stage.windows[-1]["to_s"] = max(stage.windows[-1]["to_s"], float(math.ceil(length_s)))
    stage.recording = False
    return length_s


def _leave(stage: Stage) -> None:
    stage.recording = False
    try:
        stage.put_back()
    finally:
        stage.crew.stop()


def keep(drill: Drill, stage: Stage, length_s: float, part: Path, where: tuple[Path, Path]) -> Played:
    """Write the truth and move both files to where they belong.

    Raises:
        DeploymentError: the recording is larger than a fixture may be.
        CaseError: the truth does not cover the recording, which is a defect of the drill.
    """
    size = part.stat().st_size
    if size > MOST_BYTES:
        raise DeploymentError(
            "the recording is too large to keep",
            where=drill.name,
            why=f"{size:,} bytes; the most is {MOST_BYTES:,}",
            hint="the machine may have been very slow; run it again",
        )
    truth = {
        "schema": "pdops/truth/v1",
        "source": "recorded",
        "versions": versions(stage.deployment),
        "command": f"pdops drill run {drill.name}",
        "actions": stage.actions,
        "windows": stage.windows,
    }
    beside = part.with_suffix(".truth.yaml")
    beside.write_text(yaml.safe_dump(truth, sort_keys=False, width=120, allow_unicode=True), encoding="utf-8")
    load_truth(beside, duration_s=length_s)
    part.replace(where[0])
    beside.replace(where[1])
    return Played(*where, tuple(stage.actions), tuple(stage.windows))


def versions(deployment: Deployment) -> dict[str, str]:
    """Return what was running, as far as the parts say."""
    found = {
        "pdops": importlib.metadata.version("pdops"),
        "python": platform.python_version(),
        "kernel": platform.release().partition("-")[0],
    }
    for engine in deployment.spec.engines[:1]:
        with contextlib.suppress(OSError, ValueError, KeyError):
            found["vllm"] = str(json.loads(pages.get(f"{engine.url}/version", 5.0))["version"])
    return found


def check(drill: Drill, deployment: Deployment) -> None:
    """See that a drill can be run on a deployment and that all its parts run.

    Raises:
        DeploymentError: it cannot.
    """
    why = obstacles(drill, deployment, router_drills=has_router_drills(deployment))
    if why:
        raise DeploymentError(
            f"drill {drill.name} is not available here",
            where=deployment.spec.name,
            why="; ".join(why),
            hint=f"bring up one it can be run on: {drill.up_command()}",
        )
    lacks = {w: lack for w in deployment.spec.ids() if (lack := deployment.serves(w)) is not None}
    if lacks:
        raise DeploymentError(
            "the deployment is not whole",
            where=deployment.spec.name,
            why="; ".join(f"{worker}: {why}" for worker, why in lacks.items()),
            hint="`pdops status` shows it; `pdops up` completes it",
        )


def has_router_drills(deployment: Deployment) -> bool:
    """Say whether the router that is up has its drill switch."""
    router = deployment.spec.router
    if router is None or router.kind != "pdops":
        return False
    try:
        pages.get(f"{deployment.router_url}/admin/drills", 5.0, deployment.admin_token_file)
    except OSError:
        return False
    return True
