"""Load and recording, each a process of its own that ends by itself even when nobody stops it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.errors import DeploymentError, RecordingError
from pdops.reference.drills.stage import LOAD_MOST_S
from pdops.sources.recording import open_recording

_CLOCK = WallClock()
_START_S = 60.0
_DRAIN_S = 10.0


@dataclass(slots=True)
class Programs:
    """The crew of a real drill; logs go to `folder`, `mark` tells our processes from others."""

    folder: Path
    mark: str
    output: Path | None = None
    recorder: processes.Ref | None = None
    loads: list[processes.Ref] = field(default_factory=list)

    def load(self, url: str, model: str, settings: Mapping[str, float]) -> Callable[[], None]:
        """Start load and return what ends it. See `pdops.reference.load` for the settings."""
        given = {"duration": LOAD_MOST_S, **settings}
        options = [f"--{name}={value}" for name, value in given.items()]
        command = [sys.executable, "-m", "pdops.reference.load", url, "--model", model, *options]
        ref = self._spawn(command, f"load-{len(self.loads)}.log")
        self.loads.append(ref)
        return lambda: self._end(ref)

    def record(self, inventory: Path, output: Path) -> float:
        """Start recording and return Unix seconds of its first frame.

        Raises:
            DeploymentError: it ended, or wrote no frame within a minute.
        """
        command = [sys.executable, "-m", "pdops", "record", "-c", str(inventory), "-o", str(output)]
        self.output = output
        self.recorder = self._spawn([*command, "--force", "--for", str(LOAD_MOST_S)], "record.log")
        end_s = _CLOCK.monotonic() + _START_S
        while _CLOCK.monotonic() < end_s:
            self.check()
            time.sleep(0.5)
            if output.exists() and output.stat().st_size:
                try:
                    start_s = open_recording(output).header.start_s
                except RecordingError:
                    continue
                if start_s is not None:
                    return start_s
        raise self._failed("the recording did not start", f"no frame within {_START_S:.0f} s")

    def check(self) -> None:
        """Notice that the recording has ended.

        Raises:
            DeploymentError: it has.
        """
        if self.recorder is not None and not processes.alive(self.recorder):
            raise self._failed("the recording ended early", f"exit status {processes.exit_status(self.recorder)}")

    def finish(self) -> float:
        """End the recording and the load; return the recording's length in seconds.

        Raises:
            DeploymentError: the recording failed.
        """
        assert self.recorder is not None
        assert self.output is not None
        self.check()
        recorder, self.recorder = self.recorder, None
        processes.stop(recorder, grace_s=30.0, first=signal.SIGINT)
        status = processes.exit_status(recorder)
        self.stop()
        if status:
            raise self._failed("the recording failed", f"exit status {status}")
        return open_recording(self.output).duration_s

    def stop(self) -> None:
        """Stop whatever still runs."""
        left = [*self.loads, *([self.recorder] if self.recorder is not None else [])]
        self.recorder = None
        for ref in left:
            processes.stop(ref, grace_s=_DRAIN_S)

    def _end(self, ref: processes.Ref) -> None:
        processes.stop(ref, grace_s=_DRAIN_S)

    def summaries(self) -> list[dict[str, object]]:
        """Return what each load said at its end, in the order they were started."""
        found = []
        for path in sorted(self.folder.glob("load-*.log")):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            said = next((line for line in reversed(lines) if line.startswith("{")), "")
            try:
                summary = json.loads(said)
            except ValueError:
                continue
            found.append(summary)
        return found

    def _spawn(self, command: list[str], log: str) -> processes.Ref:
        return processes.spawn(command, log=self.folder / log, mark=self.mark, env=os.environ)

    def _failed(self, what: str, why: str) -> DeploymentError:
        log = self.folder / "record.log"
        said = log.read_text(encoding="utf-8", errors="replace")[-300:].strip() if log.exists() else ""
        return DeploymentError(
            what, where=str(self.output), why="; ".join(filter(None, (why, said))), hint=f"read {log}"
        )
