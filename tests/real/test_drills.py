"""Three drills on the real deployment, with shorter phases: broken on purpose, recorded, labelled, and put back."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from pdops.reference.drills import play
from pdops.reference.drills import run as runner
from pdops.reference.drills.registry import find
from pdops.reference.running import Running
from pdops.reference.status import status
from pdops.sources.recording import open_recording
from pdops.sources.truth import load_truth

pytestmark = [pytest.mark.real, pytest.mark.kills, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("name", ["router-drops-kv-params", "decode-frozen", "prefill-frozen"])
def test_a_drill_leaves_a_labelled_recording_and_a_whole_deployment(
    running: Running, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for phase, seconds in (("WARM_UP_S", 3.0), ("BEFORE_S", 8.0), ("QUIET_S", 5.0), ("AFTER_S", 3.0)):
        monkeypatch.setattr(play, phase, seconds)
    drill = dataclasses.replace(find(name), settle_s=4.0, hold_s=8.0, linger_s=0.0)
    # What was started or killed by an earlier test is in the state on disk.
    here = Running.open(running.state_dir)
    result, lines = runner.run(drill, here, tmp_path, play.Hands(print))
    # Right or wrong is printed, not asserted: the judged window is longer than these phases.
    print(result["windows"], *lines, sep="\n")
    record = open_recording(tmp_path / f"{name}.pdrec")
    assert len(list(record.iter_frames())) > 20
    truth = load_truth(tmp_path / f"{name}.truth.yaml")
    assert next(w.verdict for w in truth.windows if w.verdict is not None) == "healthy"
    assert any(w.verdict == "fault" for w in truth.windows)
    again = Running.open(running.state_dir)
    running.state = again.state
    # The router looks at its workers every few seconds.
    end = time.monotonic() + 60
    while (found := status(again))["phase"] != "up":
        assert time.monotonic() < end, found["workers"]
        time.sleep(1)
