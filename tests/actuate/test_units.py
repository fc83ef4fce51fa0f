"""Units of systemd and services of Compose as workers: what is called, how starts are counted, and who is a spare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pdops.actuate import local
from pdops.actuate.backend import Fence
from pdops.actuate.engine_page import EnginePage
from pdops.actuate.local import LocalBackend
from pdops.actuate.supervisors import Compose, Systemd
from pdops.errors import ActionError
from tests.actuate import api_doubles as apis
from tests.actuate.program_doubles import ProgramDouble
from tests.actuate.test_contract import _Rig

FENCE = Fence("run", 1)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Rig]:
    with ExitStack() as stack:
        yield _Rig(tmp_path, stack, monkeypatch)


@pytest.fixture(params=["systemd", "compose"])
def both(request: pytest.FixtureRequest, rig: _Rig) -> tuple[LocalBackend, ProgramDouble, str]:
    deployment, double = rig.units(request.param)
    return LocalBackend(deployment, None, rig.clock, rig.clock.advance), double, request.param


def _unit(kind: str, worker: str) -> str:
    return f"pd-{worker}.service" if kind == "systemd" else worker


def test_only_named_units_are_called_and_by_argument_list(
    both: tuple[LocalBackend, ProgramDouble, str], rig: _Rig
) -> None:
    backend, double, kind = both
    backend.apply("worker.stop", {"worker": "decode-1"}, FENCE)
    backend.apply("worker.start", {"worker": "decode-1"}, FENCE)
    file = str(rig.folder / "compose.yaml")
    base = ["docker", "compose", "--file", file, "--project-name", "pd", "--ansi", "never"]
    assert (
        double.changes
        == {
            "systemd": [
                ["systemctl", "--no-pager", "--no-ask-password", "stop", "--", "pd-decode-1.service"],
                ["systemctl", "--no-pager", "--no-ask-password", "start", "--", "pd-decode-1.service"],
            ],
            "compose": [
                [*base, "stop", "--", "decode-1"],
                [*base, "up", "--detach", "--no-deps", "--no-recreate", "--", "decode-1"],
            ],
        }[kind]
    )


def test_a_restart_counts_one_start_more_and_is_not_done_twice(both: tuple[LocalBackend, ProgramDouble, str]) -> None:
    backend, double, _ = both
    before = backend.observe().get("worker/decode-1/starts").value
    aim = {"worker": "decode-1", "starts": before + 1}
    assert backend.apply("worker.restart", aim, FENCE).changed
    assert backend.observe().get("worker/decode-1/starts").value == before + 1
    done = len(double.changes)
    assert not backend.apply("worker.restart", aim, FENCE).changed
    assert len(double.changes) == done


def test_a_restart_by_somebody_else_is_seen(both: tuple[LocalBackend, ProgramDouble, str]) -> None:
    backend, double, kind = both
    before = backend.observe().get("worker/decode-1/starts").value
    world = double.world
    world["units"][_unit(kind, "decode-1")]["starts"] += 1
    double.move(**world)
    with pytest.raises(ActionError, match="somebody else restarted it"):
        backend.apply("worker.restart", {"worker": "decode-1", "starts": before + 2 + 1}, FENCE)
    assert backend.observe().get("worker/decode-1/starts").value == before + 1


def test_a_spare_is_no_part_of_its_pool_until_it_runs(both: tuple[LocalBackend, ProgramDouble, str]) -> None:
    backend, _, _ = both
    state = backend.observe()
    assert (state.workers("decode"), state.get("pool/decode/replicas").value) == (("decode-0", "decode-1"), 2)
    assert (state.get("pool/decode/free").value, state.get("pool/prefill/free").value) == (1, 0)
    backend.apply("pool.scale-out", {"role": "decode", "worker": "decode-2", "replicas": 3}, FENCE)
    state = backend.observe()
    assert (state.workers("decode")[-1], state.get("pool/decode/replicas").value) == ("decode-2", 3)
    assert (state.get("pool/decode/free").value, state.get("worker/decode-2/serving").value) == (0, True)
    backend.apply("pool.scale-in", {"role": "decode", "worker": "decode-2", "replicas": 2}, FENCE)
    assert backend.observe().workers("decode") == ("decode-0", "decode-1")


@pytest.mark.parametrize(("role", "worker"), [("decode", "decode-7"), ("prefill", "decode-2"), ("decode", "decode-0")])
def test_nobody_but_a_spare_of_the_pool_is_added(
    both: tuple[LocalBackend, ProgramDouble, str], role: str, worker: str
) -> None:
    backend, double, _ = both
    replicas = {"decode": 3, "prefill": 2}[role]
    with pytest.raises(ActionError, match="is no spare"):
        backend.apply("pool.scale-out", {"role": role, "worker": worker, "replicas": replicas}, FENCE)
    assert double.changes == []


def test_a_worker_that_still_has_requests_is_not_stopped(
    both: tuple[LocalBackend, ProgramDouble, str], rig: _Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "DRAIN_S", 2.0)
    backend, double, _ = both
    rig.engines["decode-1"].answers["GET /metrics"] = (
        200,
        "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n",
    )
    with pytest.raises(ActionError, match="is not empty"):
        backend.apply("pool.scale-in", {"role": "decode", "worker": "decode-1", "replicas": 1}, FENCE)
    assert double.changes == []


def test_prefill_is_kept_for_its_lease_before_it_is_stopped(
    both: tuple[LocalBackend, ProgramDouble, str], rig: _Rig
) -> None:
    backend, _, _ = both
    begun = rig.clock.monotonic()
    backend.apply("pool.scale-in", {"role": "prefill", "worker": "prefill-0", "replicas": 0}, FENCE)
    assert rig.clock.monotonic() - begun >= 30.0 * 1.5


@pytest.mark.parametrize(
    ("state", "process"), [("running", "running"), ("failed", "stopped"), ("waits", "stopped"), ("odd", None)]
)
def test_states_that_nobody_knows_are_unknown_not_stopped(
    both: tuple[LocalBackend, ProgramDouble, str], state: str, process: str | None
) -> None:
    backend, double, kind = both
    double.set_state(_unit(kind, "decode-1"), state)
    seen = backend.observe()
    assert seen.get("worker/decode-1/process").value == process
    if process is None:
        assert not seen.get("pool/decode/replicas").known
        assert "decode-1" in seen.get("pool/decode/replicas").why
        with pytest.raises(ActionError):
            backend.apply("worker.start", {"worker": "decode-1"}, FENCE)


def test_a_unit_that_is_not_there_is_unknown(rig: _Rig) -> None:
    deployment, double = rig.units("systemd")
    world = double.world
    del world["units"]["pd-decode-1.service"]
    double.move(**world)
    backend = LocalBackend(deployment, None, rig.clock, rig.clock.advance)
    seen = backend.observe().get("worker/decode-1/process")
    assert (seen.value, seen.why) == (None, "its unit is not-found")


def test_a_program_that_is_not_there_offers_nothing_and_is_said(rig: _Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, _ = rig.units("systemd")
    monkeypatch.setenv("PATH", str(rig.folder))
    backend = LocalBackend(deployment, None, rig.clock, rig.clock.advance)
    assert backend.capabilities().refusal("worker.restart") == "systemctl is not installed here"
    assert backend.observe().get("worker/decode-1/process").why == "systemctl is not installed here"


def test_docker_without_compose_is_said(rig: _Rig) -> None:
    deployment, double = rig.units("compose")
    double.move(no_compose=True)
    backend = LocalBackend(deployment, None, rig.clock, rig.clock.advance)
    assert "docker has no compose here" in (backend.capabilities().refusal("worker.stop") or "")


def test_the_users_own_manager_is_asked_where_that_is_said() -> None:
    assert Systemd(user=True)._base[:2] == ("systemctl", "--user")


def test_a_service_of_two_containers_is_unknown(rig: _Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from pdops.actuate import programs

    rows = [{"ID": "a", "Service": "decode-0"}, {"ID": "b", "Service": "decode-0"}]
    looks = [{"Id": i, "State": {"Status": "running", "StartedAt": "T"}} for i in "ab"]
    answers = iter([json.dumps(rows), json.dumps(looks)])
    monkeypatch.setattr(programs, "run", lambda *_: next(answers))
    unit = Compose(rig.folder / "c.yaml", "pd").units(("decode-0",))["decode-0"]
    assert (unit.process, "2 containers" in unit.why) == (None, True)


def test_a_count_of_starts_that_makes_no_sense_is_unknown_not_begun_again(rig: _Rig) -> None:
    deployment, _ = rig.units("systemd")
    (rig.folder / "memory").mkdir()
    (rig.folder / "memory" / "starts.json").write_text("[]")
    assert deployment.parts()[0].starts is None


def test_starts_that_cannot_be_kept_are_unknown(rig: _Rig) -> None:
    deployment, _ = rig.units("systemd")
    (rig.folder / "memory").write_text("a file where a folder has to be")
    backend = LocalBackend(deployment, None, rig.clock, rig.clock.advance)
    seen = backend.observe().get("worker/decode-1/starts")
    assert (seen.known, seen.why) == (False, "starts cannot be counted")


@pytest.mark.parametrize(
    ("page", "inflight"),
    [
        ("vllm:num_requests_running 2\nvllm:num_requests_waiting 3\n", 5),
        (
            'sglang:num_running_reqs{tp_rank="0"} 0\nsglang:num_queue_reqs 0\nsglang:num_prefill_inflight_queue_reqs 4\n',
            4,
        ),
        ("vllm:num_requests_running 2\n", None),
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n", None),
        ("<html>", None),
    ],
)
def test_requests_in_an_engine_are_counted_or_unknown(page: str, inflight: int | None) -> None:
    double = apis.EngineDouble()
    double.answers["GET /metrics"] = (200, page)
    with apis.serving(double):
        said = EnginePage(double.url).look()
    assert (said.serving, said.inflight, bool(said.why)) == (True, inflight, inflight is None)
