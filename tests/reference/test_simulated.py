"""`pdops up --profile sim` and what works on it, with a double of the simulation."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from pdops.actuate import processes
from pdops.cli import down, drill, status, up
from pdops.cli.backends import backend_for
from pdops.cli.inputs import Inputs
from pdops.errors import DeploymentError, UsageError
from pdops.reference import simulated
from pdops.reference.running import Running
from pdops.reference.state import Home, home
from pdops.sources.inventory import load_inventory

REAL = simulated.PROGRAM
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A folder for a deployment whose simulation is a double."""
    monkeypatch.setattr(simulated, "PROGRAM", (sys.executable, "-m", "tests.sim.double_program"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    found = home(state_dir=tmp_path / "state")
    yield found
    processes.stop_marked(found.mark(), grace_s=1.0)


def call(place: Home, *words: str) -> Result:
    """Run `pdops up --profile sim`; errors of ours come through."""
    return CliRunner().invoke(
        up.command,
        ["--profile", "sim", "--state-dir", str(place.path), *words],
        standalone_mode=False,
        catch_exceptions=False,
    )


def test_up_status_down_with_the_real_program(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "PROGRAM", REAL)
    fault = "link-rate:at=60,target=decode-1,factor=0.1"
    said = call(place, "--decode", "2", "--kv-store", "mooncake", "--speed", "10", "--fault", fault)
    assert "a simulation of 1 prefill and 2 decode at speed 10" in said.stdout
    assert "curl" not in said.stdout
    assert "judge it at --speed 1" in said.stderr
    shown = CliRunner().invoke(status.command, ["--state-dir", str(place.path), "--json"], standalone_mode=False)
    found = json.loads(shown.stdout)
    assert (found["phase"], found["profile"], found["model"]) == ("up", "sim", "sim-32b")
    assert [(w["id"], w["state"]) for w in found["workers"]] == [
        (worker, "serving") for worker in ("prefill-0", "decode-0", "decode-1", "router-0", "store-0")
    ]
    cluster = load_inventory(place.inventory).cluster
    assert [w.id for w in cluster.workers] == ["prefill-0", "decode-0", "decode-1", "router-0", "store-0"]
    gone = CliRunner().invoke(down.command, ["--state-dir", str(place.path), "--json"], standalone_mode=False)
    assert json.loads(gone.stdout)["lost"] == {}
    assert processes.with_mark(place.mark()) == set()
    with pytest.raises(DeploymentError, match="no deployment is up"):
        Running.open(place)


def test_options_end_up_in_the_simulation_file_on_top_of_the_one_given(place: Home, tmp_path: Path) -> None:
    given = tmp_path / "sim.yaml"
    given.write_text("seed: 7\nprefill: 1\nengine: {lease_s: 10}\nfaults: [{kind: store-down, at_s: 5}]\n")
    call(
        place,
        "--spec",
        str(given),
        "--seed",
        "9",
        "--decode-blocks",
        "500",
        "--kv-store",
        "mooncake",
        "--fault",
        "cache-wipe",
    )
    written = yaml.safe_load((place.path / "simulation.yaml").read_text())
    assert written == {
        "seed": 9,
        "prefill": 1,
        "engine": {"lease_s": 10, "kv_blocks": 500},
        "faults": [{"kind": "store-down", "at_s": 5}, {"kind": "cache-wipe", "at_s": 0.0}],
        "store": {"enabled": True},
    }


def test_the_same_again_changes_nothing_and_another_is_refused(place: Home) -> None:
    call(place)
    first = processes.with_mark(place.mark())
    assert "it is up already" in call(place).stderr
    with pytest.raises(DeploymentError, match="another deployment is up"):
        call(place, "--seed", "2")
    assert processes.with_mark(place.mark()) == first


def test_a_simulation_that_does_not_come_up_is_explained_and_nothing_stays(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOUBLE_FAILS", "the dice are loaded")
    with pytest.raises(DeploymentError, match="the dice are loaded"):
        call(place)
    assert processes.with_mark(place.mark()) == set()


def test_drills_say_that_they_need_real_engines(place: Home) -> None:
    call(place)
    listed = CliRunner().invoke(
        drill.command, ["list", "--state-dir", str(place.path), "--json"], standalone_mode=False
    )
    found = json.loads(listed.stdout)["drills"]
    assert not any(d["available"] for d in found)
    assert all("real engines" in d["why"][0] for d in found)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--model", "x"], "--model does not go with --profile sim"),
        (["--render", "x"], "--render does not go with --profile sim"),
        (["--fault", "link-rate:at=soon"], "at=soon"),
        (["--fault", ":at=1"], "no kind"),
        (["--fault", "no-such-kind"], "no-such-kind"),
        (["--spec", "missing.yaml"], "missing.yaml"),
        (["--seed", "1", "--profile", "cpu"], "--seed needs --profile sim"),
    ],
)
def test_wishes_that_make_no_sense_are_refused_before_anything_starts(place: Home, words: list[str], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        call(place, *words)
    assert why in str(caught.value)
    assert processes.with_mark(place.mark()) == set()


def test_a_simulation_has_no_router_to_change_and_says_so(place: Home) -> None:
    call(place)
    backend = backend_for(Inputs((place.inventory,), (), None, "", "", None, None, 1.0))
    assert backend is not None
    why = backend.capabilities().refusal("worker.cordon")
    assert why == "a simulated deployment has no router to change"
    assert not any("No such file" in seen.why for seen in backend.observe().values.values())
