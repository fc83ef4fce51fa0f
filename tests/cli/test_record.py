"""`pdops record` keeps what it has when it is ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pdops.sources.recording import open_recording


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_recording_is_closed_whatever_ends_it(number: int, tmp_path: Path) -> None:
    path = tmp_path / "x.pdrec"
    command = [sys.executable, "-m", "pdops", "record", "--target", "prefill=http://127.0.0.1:1", "-o", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as recorder:
        try:
            until = time.monotonic() + 60
            while not path.exists():
                assert time.monotonic() < until, "no recording was begun"
                time.sleep(0.01)
            recorder.send_signal(number)
            _, err = recorder.communicate(timeout=60)
        finally:
            recorder.kill()
    assert recorder.returncode == 3
    assert "no target answered" in err
    assert [w.id for w in open_recording(path).cluster.workers] == ["prefill-0"]
