"""`pdops diagnose` to a page, and while it watches."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from pdops.diagnose.encode import schema

RUN = [sys.executable, "-m", "pdops", "diagnose"]


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *args], capture_output=True, text=True, timeout=90, check=False)


def test_a_page_is_written_beside_the_report(fixtures: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    case = fixtures / "cases" / "symptom-2-itl.yaml"
    done = run("--case", str(case), "--html", str(page), "--json")
    assert json.loads(done.stdout)["schema"] == "pdops/diagnosis/v1"
    assert f"{page}: written" in done.stderr
    assert page.read_text().startswith("<!doctype html>")
    assert "<svg" in page.read_text()


def test_a_page_that_cannot_be_written_is_said(fixtures: Path, tmp_path: Path) -> None:
    case = fixtures / "cases" / "symptom-2-itl.yaml"
    done = run("--case", str(case), "--html", str(tmp_path / "none" / "x.html"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "No such file or directory" in done.stderr


def test_a_watched_recording_gives_one_diagnosis_a_line_and_only_changes(fixtures: Path) -> None:
    done = run("--replay", str(fixtures / "recordings" / "link-slow.pdrec"), "--watch", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for one in found:
        jsonschema.validate(one, schema())
    assert found[0]["verdict"] == "healthy"
    assert any(one["verdict"] == "fault" for one in found)
    keys = [(o["verdict"], [(h["cause"], h["scopes"]) for h in o["hypotheses"]], o["symptoms"]) for o in found]
    assert all(a != b for a, b in itertools.pairwise(keys))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watching_ends_when_told_to_and_so_does_what_it_started(number: int, tmp_path: Path) -> None:
    """A double of kubectl stands on the path and writes down its process id."""
    program, told = tmp_path / "kubectl", tmp_path / "pid"
    program.write_text(
        f"#!{sys.executable}\nimport os, time\nopen({str(told)!r}, 'w').write(str(os.getpid()))\ntime.sleep(120)\n"
    )
    program.chmod(0o755)
    inventory = tmp_path / "pdops.yaml"
    worker = "{id: prefill-0, role: prefill, url: 'http://127.0.0.1:1', logs: [{kubernetes: llm/prefill-0}]}"
    inventory.write_text(f"version: 1\ncluster: c\nworkers: [{worker}]\n")
    watching = [*RUN, "-c", str(inventory), "--watch", "--for", "2", "--interval", "0.5"]
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = subprocess.Popen(watching, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "prefill-0" in first
    assert process.returncode == 130
    assert "Traceback" not in err
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
