"""`pdops top` for scripts and pipes: several sources, data, and clusters of which nobody answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from pdops_tui.encode import schema

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "fixtures" / "recordings"
ROOTS = os.pathsep.join(str(ROOT / part) for part in (".", "exporters", "tui", "runbooks", "dashboards"))


def top(*args: str, columns: int = 120, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": str(columns), "PYTHONPATH": ROOTS, **more}
    command = [sys.executable, "-m", "pdops", "top", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=env)


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which nobody listens, and nobody else can begin to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def inventory(path: Path, name: str, url: str, prefill: int, decode: int) -> str:
    workers = [("prefill", i) for i in range(prefill)] + [("decode", i) for i in range(decode)]
    lines = [f'  - {{id: {r}-{i}, role: {r}, pool: {r}, url: "{url}/{r}-{i}", engine: vllm}}' for r, i in workers]
    path.write_text("\n".join([f"version: 1\ncluster: {name}\nworkers:", *lines]) + "\n")
    return str(path)


def test_two_recordings_are_printed_beside_each_other() -> None:
    before, after = (str(RECORDINGS / f"{name}.pdrec") for name in ("healthy-load", "link-slow"))
    done = top("--replay", before, "--replay", after)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("─ COMPARE")
    assert lines[1].split() == ["healthy-load", "link-slow", "CHANGE"]
    verdict = next(line for line in lines if line.startswith(" verdict"))
    assert "ok healthy" in verdict
    assert "[X] fault" in verdict
    assert "worse" in next(line for line in lines if line.startswith(" KV  "))
    assert max(map(len, lines)) <= 120


def test_two_recordings_as_data_follow_the_published_schema() -> None:
    paths = [str(RECORDINGS / f"{name}.pdrec") for name in ("healthy-load", "link-slow")]
    done = top("--replay", paths[0], "--replay", paths[1], "--at", "100", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    body = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema()).validate(body)
    assert [round(s["replay"]["offset_s"]) for s in body["sources"]] == [100, 100]


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1"])
def test_without_a_utf8_locale_the_screen_is_ascii(locale: str) -> None:
    path = str(RECORDINGS / "link-slow.pdrec")
    done = top("--replay", path, "--at", "100", "--once", LC_ALL=locale)
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "- PREFILL 1/1 up -" in done.stdout
    assert "\u2500" in top("--replay", path, "--at", "100", "--once").stdout


def test_the_filter_takes_what_the_key_takes() -> None:
    done = top("--replay", str(RECORDINGS / "link-slow.pdrec"), "--at", "100", "--filter", "role:decode", "--json")
    (source,) = json.loads(done.stdout)["sources"]
    rows = [row["id"] for table in source["tables"] for row in table["rows"] if row["kind"] == "worker"]
    assert rows == ["decode-0"]


def test_clusters_of_which_nobody_answers_are_each_shown_and_end_with_3(tmp_path: Path, closed: str) -> None:
    paths = [inventory(tmp_path / f"{name}.yaml", name, closed, 1, 1) for name in ("prod-eu", "prod-us")]
    done = top("-c", paths[0], "-c", paths[1], "--for", "2")
    assert done.returncode == 3
    assert done.stdout.splitlines()[1].split() == ["prod-eu", "prod-us", "CHANGE"]
    done = top("-c", paths[0], "-c", paths[1], "--for", "2", "--json")
    assert done.returncode == 3
    sources = json.loads(done.stdout)["sources"]
    assert [s["workers_up"] for s in sources] == [0, 0]
    assert all(s["trouble"].startswith("no target answers: check addresses and ports; prefill-0") for s in sources)


def test_512_workers_of_which_nobody_answers_say_so_with_an_address_and_the_next_step(
    tmp_path: Path, closed: str
) -> None:
    done = top("-c", inventory(tmp_path / "big.yaml", "big", closed, 128, 384), "--for", "2", columns=160)
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert "up 0/512" in lines[0]
    assert "no target answers: check addresses and ports; prefill-0" in lines[1]
    assert closed in lines[1]
    assert sum(" NEVER" in line for line in lines) == 512
    shown = lines[next(i for i, line in enumerate(lines) if "DIAGNOSIS" in line) :]
    assert len(shown) < 30
    assert sum(line.count("all signals") for line in shown) <= 4
    assert any("next    nothing answers: look from here first" in line for line in shown)


def test_a_recording_that_was_cut_off_is_shown_up_to_the_cut_and_one_without_frames_is_refused(tmp_path: Path) -> None:
    whole = (RECORDINGS / "link-slow.pdrec").read_bytes()
    (tmp_path / "cut.pdrec").write_bytes(whole[: len(whole) // 2])
    done = top("--replay", str(tmp_path / "cut.pdrec"))
    assert done.returncode == 0
    assert "the file is cut off" in done.stderr
    assert "PREFILL 1/1 up" in done.stdout
    (tmp_path / "head.pdrec").write_bytes(whole[:2000])
    done = top("--replay", str(tmp_path / "head.pdrec"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"pdops: recording holds no frame: {tmp_path / 'head.pdrec'}: the file is cut off" in done.stderr
    assert "hint: record for at least one interval" in done.stderr


def test_a_filter_that_can_match_nobody_is_refused() -> None:
    done = top("--replay", str(RECORDINGS / "link-slow.pdrec"), "--at", "100", "--filter", "decode kvv>80", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--filter can match no worker: 'kvv>80'" in done.stderr
    assert "did you mean 'kv'?" in done.stderr
