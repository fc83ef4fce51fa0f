"""`pdops preflight` as scripts use it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from pdops.cli import cli
from pdops.diagnose.preflight_report import schema
from pdops.errors import DeploymentError, InventoryError, UsageError

POD = """kind: Pod
metadata: {{name: {role}-0}}
spec:
  containers:
    - name: engine
      image: vllm/vllm-openai:v0.32.0
      args: [org/m, --dtype, {dtype}, --kv-transfer-config, '{{"kv_connector":"NixlConnector","kv_role":"{kv}"}}']
      env: [{{name: VLLM_NIXL_SIDE_CHANNEL_HOST, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}]
"""


@pytest.fixture
def pods(tmp_path: Path) -> list[str]:
    """Arguments that name two pods which differ in their dtype."""
    args = []
    for role, kv, dtype in (("prefill", "kv_producer", "half"), ("decode", "kv_consumer", "bfloat16")):
        path = tmp_path / f"{role}.yaml"
        path.write_text(POD.format(role=role, kv=kv, dtype=dtype))
        args += ["--manifest", str(path)]
    return args


def _run(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["preflight", *args], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.return_value or 0, done.output


def test_json_names_both_values_and_follows_its_schema(pods: list[str]) -> None:
    status, text = _run(*pods, "--json")
    document = json.loads(text)
    jsonschema.validate(document, schema())
    assert status == 1
    (check,) = [c for c in document["checks"] if c["status"] == "fail"]
    assert check["id"] == "pair/kv-dtype"
    assert {v["scope"]["worker"]: v["value"] for v in check["values"] if v["option"] == "dtype"} == {
        "prefill-0": "half",
        "decode-0": "bfloat16",
    }


def test_fail_on_decides_the_status(pods: list[str], tmp_path: Path) -> None:
    (tmp_path / "decode.yaml").write_text(POD.format(role="decode", kv="kv_consumer", dtype="half"))
    assert _run(*pods)[0] == 0
    assert _run(*pods, "--fail-on", "unknown")[0] == 1
    assert _run(*pods, "--fail-on", "warn")[0] == 1


@pytest.mark.parametrize(("role", "kv", "absent"), [("prefill", "kv_producer", "decode"), ("x", "kv_both", "prefill")])
def test_pods_of_one_role_are_nothing_to_compare(tmp_path: Path, role: str, kv: str, absent: str) -> None:
    args = []
    for name in "ab":
        (tmp_path / name).write_text(POD.format(role=f"{role}-{name}", kv=kv, dtype="half"))
        args += ["--manifest", str(tmp_path / name)]
    with pytest.raises(UsageError, match=f"nothing to compare.*no {absent}") as caught:
        _run(*args)
    assert "label" in caught.value.hint
    assert f"{role}-a-0" in str(caught.value)


def test_live_workers_of_one_role_are_said_to_be_half_a_check() -> None:
    done = CliRunner().invoke(cli, ["preflight", "--target", "prefill=http://127.0.0.1:9"])
    assert "no decode worker among prefill-0 (prefill): what must match between" in done.output


def test_sources_that_cannot_be_used_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no source is given"):
        _run()
    with pytest.raises(DeploymentError, match="no deployment is up"):
        _run("--state-dir", str(tmp_path / "none"))
    with pytest.raises(InventoryError):
        _run("-c", str(tmp_path / "none.yaml"))
    with pytest.raises(UsageError, match="more than one source"):
        _run("--target", "prefill=http://127.0.0.1:1", "--state-dir", str(tmp_path))


@pytest.mark.parametrize("command", ["preflight", "canary", "diagnose", "top"])
def test_one_address_written_twice_is_warned_of_once(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdops.cli.inputs._said", set())
    more = {"diagnose": ["--for", "2"], "top": ["--once", "--for", "2"]}.get(command, [])
    args = [command, "--target", "prefill=http://127.0.0.1:9", "--target", "decode=http://localhost:9", *more]
    done = CliRunner().invoke(cli, args)
    assert done.stderr.count("have the same address: one worker counts twice") == 1
