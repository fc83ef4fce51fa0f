"""`pdops canary` as a person runs it: what it prints, and its exit status."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from pdops.model.cluster import Cluster
from pdops.probe.encode import schema
from tests.probe import doubles as d


async def _pdops(*args: str, **env: str) -> tuple[int, str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PDOPS_")}
    roots = os.pathsep.join(str(Path(__file__).parents[2] / part) for part in (".", "exporters", "tui"))
    # A proxy of the environment must never get to see a request.
    proxies = {"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pdops", "canary", *args),
        env={**kept, **proxies, "PYTHONPATH": roots, "NO_COLOR": "1", **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in err
    return process.returncode, out.decode(), err.decode()


def _targets(cluster: Cluster) -> list[str]:
    return [f"--target={worker.role}={worker.url}" for worker in cluster.workers]


def _inventory(cluster: Cluster, folder: Path) -> Path:
    workers = [{"id": w.id, "role": w.role.value, "url": w.url, "engine": w.engine} for w in cluster.workers]
    content = {
        "version": 1,
        "cluster": cluster.name,
        "model": {"name": d.MODEL, "kv_bytes_per_token": d.KV_BYTES},
        "workers": workers,
    }
    path = folder / "pdops.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


async def test_all_right_is_zero(tmp_path: Path) -> None:
    prefill, decode = d.HonestPrefill(), d.HonestDecode()
    async with d.cluster_of([prefill], [decode], [d.HonestRouter(prefill, decode)]) as cluster:
        status, out, err = await _pdops("-c", str(_inventory(cluster, tmp_path)))
    assert (status, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines()[:2]] == [["ok", "prefill-0>decode-0"], ["ok", "router-0"]]
    assert out.splitlines()[-1] == "2 ok, 0 wrong, 0 unknown"


async def test_wrong_text_is_one_with_what_to_do(tmp_path: Path) -> None:
    async with d.cluster_of([d.HonestPrefill()], [d.WrongTextDecode(), d.HonestDecode()]) as cluster:
        path = _inventory(cluster, tmp_path)
        status, out, _ = await _pdops("-c", str(path))
        asked = "prefill-0>decode-1"
        good = await _pdops("-c", str(path), "--pair", asked)
    assert status == 1
    assert "wrong: text differs from prefill's own continuation" in out
    assert "next: send no traffic from prefill-0 to decode-0" in out
    assert good[0] == 0
    assert "decode-0" not in good[1]


async def test_the_json_follows_its_schema(tmp_path: Path) -> None:
    async with d.cluster_of([d.HonestPrefill()], [d.SelfComputingDecode()]) as cluster:
        status, out, _ = await _pdops("--json", "--no-router", *_targets(cluster))
    body = json.loads(out)
    jsonschema.validate(body, schema())
    assert (status, body["schema"], body["verdict"]) == (1, "pdops/canary/v1", "wrong")
    assert body["pairs"][0]["pair"] == "prefill-0>decode-0"


@pytest.mark.parametrize(("fail_on", "expected"), [("unknown", 1), ("wrong", 0), ("never", 0)])
async def test_unknown_is_said_and_fails_unless_asked_not_to(fail_on: str, expected: int) -> None:
    async with d.cluster_of([d.HonestPrefill()], [d.UncountingDecode()]) as cluster:
        status, out, _ = await _pdops(f"--fail-on={fail_on}", *_targets(cluster))
    assert status == expected
    assert "unknown: external_tokens: the page of decode-0" in out


async def test_nothing_reachable_is_three_and_the_json_is_printed() -> None:
    async with d.cluster_of([d.HonestPrefill()], [d.HonestDecode()]) as cluster:
        pass
    status, out, err = await _pdops("--json", "--timeout=2", *_targets(cluster))
    assert status == 3
    assert err.splitlines()[0] == "pdops: no worker answered"
    assert json.loads(out)["pairs"][0]["answered"] is False


async def test_a_deployment_is_found_by_name_and_by_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pdops" / "deployments" / "mine"
    folder.mkdir(parents=True)
    async with d.cluster_of([d.HonestPrefill()], [d.HonestDecode()]) as cluster:
        _inventory(cluster, folder)
        named = await _pdops("--name=mine", XDG_STATE_HOME=str(tmp_path))
        placed = await _pdops(f"--state-dir={folder}")
        folder.rename(folder.with_name("default"))
        unnamed = await _pdops(XDG_STATE_HOME=str(tmp_path))
    assert (named[0], placed[0], unnamed[0]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "no source is given"),
        (["--name=none"], "no deployment is there"),
        (["--name=../x"], "cannot be a deployment's name"),
        (["--name=x", "--target=decode=http://127.0.0.1:1"], "more than one source is given"),
        (["--target=decode=http://127.0.0.1:1"], "no pair to ask"),
        (["--target=decode=http://127.0.0.1:1", "--timeout=nan"], "not a number"),
        (
            ["--target=prefill=http://127.0.0.1:1", "--target=decode=http://127.0.0.1:2", "--pair=a>b"],
            "no such pair: --pair a>b: pairs are prefill-0>decode-0",
        ),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
async def test_a_bad_line_is_two(args: list[str], said: str, tmp_path: Path) -> None:
    status, out, err = await _pdops(*args, XDG_STATE_HOME=str(tmp_path))
    assert (status, out) == (2, "")
    assert said in err
