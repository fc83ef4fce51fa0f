"""What `pdops up`, `status` and `down` publish: golden documents that follow their schemas."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from pdops.cli import schema as schema_command
from pdops.cli import up as up_command
from pdops.clock import VirtualClock
from pdops.probe.store_object import StoreObject
from pdops.reference import down, profiles, schemas, status, store_check
from pdops.reference.render import write
from pdops.reference.running import Running
from pdops.reference.spec import ServiceSpec
from pdops.reference.state import ProcessState, StageState, State, home
from pdops.sequence.run import Outcome

GOLDENS = Path(__file__).parent / "goldens"
WISH = profiles.Wish(kv_store="mooncake", network="namespaces")
ADDRESSES = {"prefill-0": "10.74.3.2", "decode-0": "10.74.3.3", "store-0": "10.74.3.4"}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """A deployment with a store that is written down and of which no process runs, at a fixed time."""
    monkeypatch.setattr(status, "_CLOCK", VirtualClock(1060.0))
    monkeypatch.setattr(profiles, "free_ports", lambda count: list(range(43000, 43000 + count)))
    place = home(state_dir=tmp_path)
    place.prepare()
    process = ProcessState(pid=2**22, start_ticks=1, started_at_s=1002.0, command=("vllm",), starts=2)
    stages = (
        StageState(id="preflight", state="ready", since_s=1001.0, detail="36 checks"),
        StageState(id="kv-store", state="running", since_s=1003.0, detail="the master does not answer"),
    )
    state = State(
        mark=place.mark(),
        phase="up",
        created_at_s=1000.0,
        spec=profiles.plan(WISH, "/model", ADDRESSES),
        engine_python="/env/bin/python",
        network="namespaces",
        processes={"prefill-0": process},
        stages=stages,
    )
    place.write(state)
    return Running(place, state)


def same_as_golden(name: str, document: object, folder: Path) -> None:
    text = json.dumps(document, indent=1).replace(str(folder), "DIR") + "\n"
    if os.environ.get("PDOPS_UPDATE"):
        (GOLDENS / name).write_text(text)
    assert text == (GOLDENS / name).read_text()


def test_status_is_as_published(running: Running, tmp_path: Path) -> None:
    found = status.status(running)
    jsonschema.validate(found, schemas.status())
    same_as_golden("status.json", found, tmp_path)


@pytest.mark.parametrize(
    ("lost", "golden"),
    [(down.Lost({"router-0": 2, "prefill-0": 0, "decode-0": None}), "down.json"), (None, "down-not-counted.json")],
)
def test_down_is_as_published(lost: down.Lost | None, golden: str, tmp_path: Path) -> None:
    found = down.document(lost)
    jsonschema.validate(found, schemas.down())
    same_as_golden(golden, found, tmp_path)


def test_what_rendering_wrote_is_as_published(tmp_path: Path) -> None:
    write({"compose/a.yaml": "a: 1\n", "compose/b.yaml": "b: 1\n", "c": ""}, tmp_path)
    found = write({"compose/a.yaml": "a: 2\n", "c": "", "d": ""}, tmp_path).document(tmp_path)
    jsonschema.validate(found, schemas.render())
    same_as_golden("render.json", found, tmp_path)


@pytest.mark.parametrize("name", ["status", "down", "render"])
def test_a_schema_is_sound_and_printed(name: str) -> None:
    done = CliRunner().invoke(schema_command.command, [name])
    found = json.loads(done.output)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found == getattr(schemas, name)()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": f"pdops/{name}/v2"}, found)


def test_up_with_render_and_json_prints_one_object(tmp_path: Path) -> None:
    args = ["--profile", "gpu", "--model", "m", "--render", str(tmp_path / "x"), "--json"]
    done = CliRunner().invoke(up_command.command, args)
    found = json.loads(done.stdout)
    jsonschema.validate(found, schemas.render())
    assert found["folder"] == str(tmp_path / "x")
    assert all((tmp_path / "x" / path).is_file() for path in found["new"])
    assert found["new"]


@pytest.mark.parametrize(("well", "state"), [(True, "serving"), (False, "not-ready")])
def test_a_store_serves_when_an_object_goes_through_it(
    running: Running, monkeypatch: pytest.MonkeyPatch, well: bool, state: str
) -> None:
    monkeypatch.setattr(status.processes, "alive", lambda ref: True)
    monkeypatch.setattr(status.processes, "stopped", lambda ref: False)
    monkeypatch.setattr(Running, "serves", lambda self, worker: None)
    monkeypatch.setattr(store_check, "health", lambda spec: None)
    answer = StoreObject(ok=True) if well else StoreObject(ok=False, step="put", why="put answers -200")
    monkeypatch.setattr(store_check, "put_get_delete", lambda running: answer)
    process = running.state.processes["prefill-0"]
    running.state = running.state.with_process("store-0", replace(process, pid=2**22 + 1))
    store = status.status(running)["workers"][-1]
    assert (store["id"], store["state"], store["why"]) == ("store-0", state, None if well else "put: put answers -200")


@pytest.mark.parametrize(("why", "phase"), [(None, "up"), ("not ready yet", "degraded")])
def test_an_exporter_that_does_not_serve_degrades_the_deployment(
    running: Running, monkeypatch: pytest.MonkeyPatch, why: str | None, phase: str
) -> None:
    monkeypatch.setattr(status.processes, "alive", lambda ref: True)
    monkeypatch.setattr(status.processes, "stopped", lambda ref: False)
    monkeypatch.setattr(Running, "serves", lambda self, worker: why if worker == "exporter" else None)
    monkeypatch.setattr(store_check, "probe", lambda running: Outcome(True, "well"))
    spec = replace(running.state.spec, services=(ServiceSpec(id="exporter", port=1),))
    process = running.state.processes["prefill-0"]
    running.state = replace(running.state, spec=spec, processes=dict.fromkeys((*spec.ids(), "exporter"), process))
    found = status.status(running)
    jsonschema.validate(found, schemas.status())
    assert (found["phase"], found["services"][0]["why"]) == (phase, why)
