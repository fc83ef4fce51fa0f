"""Up, status and down on doubles of the engines: what is left behind, and what is said, when things go wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pdops.actuate import processes
from pdops.errors import DeploymentError, UsageError
from pdops.reference import before, down, effects, engine_env, profiles, services, up
from pdops.reference.running import Running
from pdops.reference.spec import Profile
from pdops.reference.state import Home, State, home
from pdops.reference.status import status
from pdops.sequence.run import Effect, Outcome, Progress, Skip
from pdops.sequence.stages import Order, order

WISH = profiles.Wish(router="none")
MEANS = up.Means()


def _quiet(_stages: tuple[Progress, ...]) -> None:
    pass


def _quick(name: str) -> Order:
    stages = order(name).stages
    return Order(name, tuple(replace(s, successes=1, interval_s=0.1, min_age_s=0, budget_s=20) for s in stages))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A folder for a deployment whose engines are doubles."""
    double = tmp_path / "python"
    code = (Path(__file__).parent / "double_engine.py").read_text()
    double.write_text(f"#!{sys.executable}\n{code}")
    double.chmod(0o755)
    real = effects.effects

    def without_canary(running: Running) -> Mapping[str, Effect | Skip]:
        return {**real(running), "pair-canary": Skip("doubles move no KV")}

    monkeypatch.setattr(engine_env, "ensure", lambda *_: double)
    monkeypatch.setattr(up, "effects", without_canary)
    monkeypatch.setattr(up, "order", _quick)
    monkeypatch.setattr(down, "order", _quick)
    found = home(state_dir=tmp_path / "state")
    yield found
    processes.stop_marked(found.mark(), grace_s=1.0)


def _up(place: Home, wish: profiles.Wish = WISH, said: list[str] | None = None) -> Running:
    return up.up(place, wish, MEANS, (said if said is not None else []).append, _quiet)


def _down(place: Home, deadline_s: float = 5.0, *, force: bool = False) -> down.Lost | None:
    return down.down(place, deadline_s=deadline_s, force=force, say=lambda _: None, show=_quiet)


def test_up_status_down(place: Home) -> None:
    running = _up(place, replace(WISH, prefill=2, decode=1))
    found = status(Running.open(place))
    assert found["phase"] == "up"
    assert [(w["id"], w["state"]) for w in found["workers"]] == [
        ("prefill-0", "serving"),
        ("prefill-1", "serving"),
        ("decode-0", "serving"),
    ]
    assert {s["id"]: s["state"] for s in found["stages"]}["pair-canary"] == "skipped"
    assert running.inventory.exists()
    lost = _down(place)
    assert lost is not None
    assert lost.known == 0
    assert processes.with_mark(place.mark()) == set()
    with pytest.raises(DeploymentError, match="no deployment is up"):
        Running.open(place)


def test_the_inventory_is_one_that_every_command_takes(place: Home) -> None:
    from pdops.sources.inventory import load_inventory

    cluster = load_inventory(_up(place).inventory).cluster
    assert [w.id for w in cluster.workers] == ["prefill-0", "decode-0"]
    assert cluster.kv_bytes_per_token == 1024
    assert cluster.slo.ttft_s == 1.5


def test_up_twice_changes_nothing(place: Home) -> None:
    said: list[str] = []
    first = _up(place).pids()
    assert _up(place, said=said).pids() == first
    assert said == ["it is up already"]


def test_up_with_other_wishes_is_refused_and_changes_nothing(place: Home) -> None:
    first = _up(place).pids()
    with pytest.raises(DeploymentError, match=r"another deployment is up.*: --decode is 1, asked for 2$"):
        _up(place, replace(WISH, decode=2))
    assert processes.with_mark(place.mark()) == first


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prefill_seqs": 1}, "--prefill-seqs is 16, asked for 1"),
        ({"prefill_blocks": 64, "decode_blocks": 32}, "--prefill-blocks is 1000, asked for 64; --decode-blocks is 400, asked for 32"),
        ({"block_size": 64}, "--block-size is 32, asked for 64"),
        ({"max_model_len": 512}, "--max-model-len is 1024, asked for 512"),
        ({"lease_s": 60}, "--lease is 30, asked for 60"),
        ({"router": "pdops"}, "--router is none, asked for pdops; --policy is -, asked for round-robin"),
        ({"ttft_s": 9.0}, "--slo-ttft is 1.5, asked for 9.0"),
        ({"itl_s": 9.0}, "--slo-itl is 0.15, asked for 9.0"),
        ({"plugin": True}, "--plugin is False, asked for True"),
        ({"network": "namespaces"}, "--network is loopback, asked for namespaces"),
        ({"otlp_endpoint": "http://127.0.0.1:4318"}, "--otlp is -, asked for http://127.0.0.1:4318/v1/traces"),
        ({"model": "/m"}, "asked for /m"),
    ],
)  # fmt: skip
def test_a_second_up_says_which_setting_differs(change: dict[str, object], said: str, tmp_path: Path) -> None:
    there = home(state_dir=tmp_path / "state")
    spec = profiles.plan(WISH, str(there.model))
    state = State(mark="m", phase="up", created_at_s=0.0, spec=spec, engine_python="python", network="loopback")
    up.same(state, WISH, there)
    with pytest.raises(DeploymentError) as caught:
        up.same(state, replace(WISH, **change), there)  # type: ignore[arg-type]
    assert said in caught.value.why
    assert "pdops down" in caught.value.hint


def test_a_plain_up_does_not_ask_for_the_defaults_of_what_was_chosen(tmp_path: Path) -> None:
    there = home(state_dir=tmp_path / "state")
    chosen = replace(WISH, prefill_seqs=1, prefill_blocks=64, block_size=64, lease_s=15, ttft_s=9.0)
    spec = profiles.plan(chosen, str(there.model))
    state = State(mark="m", phase="up", created_at_s=0.0, spec=spec, engine_python="python", network="loopback")
    up.same(state, WISH, there)
    with pytest.raises(DeploymentError, match="--prefill-seqs is 1, asked for 16"):
        up.same(state, replace(WISH, prefill_seqs=16), there)


def test_what_a_second_up_does_not_ask_for_may_be_as_it_is(tmp_path: Path) -> None:
    there = home(state_dir=tmp_path / "state")
    spec = profiles.plan(replace(WISH, otlp_endpoint="http://127.0.0.1:4318"), str(there.model))
    state = State(mark="m", phase="up", created_at_s=0.0, spec=spec, engine_python="python", network="loopback")
    up.same(state, WISH, there)


def test_a_router_port_counts_only_where_one_is_asked_for(tmp_path: Path) -> None:
    there, wish = home(state_dir=tmp_path / "state"), replace(WISH, router="pdops")
    spec = profiles.plan(wish, str(there.model))
    assert spec.router is not None
    state = State(mark="m", phase="up", created_at_s=0.0, spec=spec, engine_python="python", network="loopback")
    for port in (None, spec.router.port):
        up.same(state, replace(wish, router_port=port), there)
    with pytest.raises(DeploymentError, match=f"--router-port is {spec.router.port}, asked for 1"):
        up.same(state, replace(wish, router_port=1), there)


def test_up_with_monitoring_is_not_up_already_where_none_runs(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "missing", lambda _: ())
    first = _up(place).pids()
    with pytest.raises(DeploymentError, match="up without exporter and alertmanager and prometheus"):
        _up(place, replace(WISH, exporter=True, monitoring=True))
    assert processes.with_mark(place.mark()) == first


def test_an_engine_that_ends_while_starting_is_explained_and_nothing_stays(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOUBLE_SAYS", "ERROR 11-29 [x.py:1] ValueError: NIXL compatibility hash mismatch between peers")
    with pytest.raises(DeploymentError, match=r"stage prefill failed.*hash mismatch"):
        _up(place)
    assert processes.with_mark(place.mark()) == set()
    assert status(Running.open(place))["phase"] == "failed"


def test_ctrl_c_while_starting_leaves_nothing(place: Home) -> None:
    def interrupted(stages: tuple[Progress, ...]) -> None:
        if any(p.stage.id == "decode" and p.status == "running" for p in stages):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        up.up(place, WISH, MEANS, lambda _: None, interrupted)
    assert processes.with_mark(place.mark()) == set()


def test_what_a_killed_start_left_behind_is_stopped_by_the_next(place: Home) -> None:
    running = _up(place)
    old = running.pids()
    place.write(replace(running.state, phase="starting"))
    said: list[str] = []
    assert not _up(place, said=said).pids() & old
    assert said == [f"an earlier start (starting) had left {len(old)} processes; they were stopped"]


def test_a_half_dead_deployment_is_seen_and_replaced(place: Home) -> None:
    running = _up(place)
    running.kill("decode-0")
    found = status(Running.open(place))
    assert found["phase"] == "degraded"
    assert {w["id"]: w["state"] for w in found["workers"]} == {"prefill-0": "serving", "decode-0": "dead"}
    said: list[str] = []
    assert status(_up(place, said=said))["phase"] == "up"
    assert "had lost decode-0" in said[0]


def test_a_frozen_engine_is_told_and_still_stops(place: Home) -> None:
    running = _up(place)
    running.freeze("prefill-0")
    end = time.monotonic() + 10
    while status(running)["workers"][0]["state"] != "frozen":
        assert time.monotonic() < end
    _down(place, deadline_s=1.0)
    assert processes.with_mark(place.mark()) == set()


def test_requests_that_do_not_end_are_lost_at_the_deadline_and_counted(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOUBLE_RUNNING", "3")
    running = _up(place)
    assert down.in_flight(running).requests == {"prefill-0": 3, "decode-0": 3}
    lost = _down(place, deadline_s=0.5)
    assert lost is not None
    assert lost.known == 3
    assert str(lost) == "3 in prefill-0, 3 in decode-0"
    assert processes.with_mark(place.mark()) == set()


def test_down_by_force_needs_no_state(place: Home) -> None:
    _up(place)
    for text in ("[" * 100_000, "{}"):
        place.file.write_text(text)
        with pytest.raises(DeploymentError, match="does not make sense"):
            _down(place)
    _down(place, force=True)
    assert processes.with_mark(place.mark()) == set()


def test_a_folder_in_place_of_the_state_is_left_and_said_once_all_is_stopped(place: Home) -> None:
    _up(place)
    place.file.unlink()
    (place.file / "mine").mkdir(parents=True)
    with pytest.raises(DeploymentError, match="cannot read the deployment's state") as caught:
        _down(place)
    assert "--force" in caught.value.hint
    with pytest.raises(DeploymentError, match=r"everything is stopped.*it is a folder") as caught:
        _down(place, force=True)
    assert "move it away" in caught.value.hint
    assert processes.with_mark(place.mark()) == set()
    assert (place.file / "mine").is_dir()


@pytest.mark.parametrize(
    ("variable", "found"),
    [
        ("XDG_STATE_HOME", lambda: home().path.parents[2]),
        ("XDG_CACHE_HOME", lambda: engine_env.home().parents[1]),
    ],
)
def test_a_relative_folder_of_the_user_counts_as_none(
    variable: str, found: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PDOPS_ENGINE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / {"XDG_STATE_HOME": ".local/state", "XDG_CACHE_HOME": ".cache"}[variable]
    for value, expected in (("x/y", default), ("", default), (str(tmp_path / "z"), tmp_path / "z")):
        monkeypatch.setenv(variable, value)
        assert found() == expected


def test_down_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match="no deployment is here"):
        _down(home(state_dir=tmp_path / "none"))


def test_two_commands_at_once_are_refused(place: Home) -> None:
    place.prepare()
    with place.locked("hold it"), pytest.raises(DeploymentError, match=r"another command is at it \(hold it"):
        _up(place)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(DeploymentError, match="cannot write the deployment's state"):
        _up(home(state_dir=file / "state"))


def test_a_port_that_is_taken_is_named(place: Home) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(DeploymentError, match=f"port {port} cannot be used"):
            _up(place, replace(WISH, router="pdops", router_port=port))
    assert processes.with_mark(place.mark()) == set()


def test_too_little_memory_is_said_with_both_numbers(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before, "available_bytes", lambda: 1_000_000_000)
    with pytest.raises(DeploymentError, match=r"2 engines need about 4.3 GB of memory, 1.0 GB are free"):
        _up(place)


def test_state_survives_a_round_trip_and_a_restart_gets_a_new_engine_id(place: Home) -> None:
    running = _up(place)
    assert Running.open(place).state == running.state
    for same, expected in ((False, "decode-0.1"), (True, "decode-0.1"), (False, "decode-0.3")):
        running.kill("decode-0")
        running.start("decode-0", same_identity=same, overrides={"block-size": "64", "enforce-eager": None})
        running.wait_ready("decode-0", 20)
        entry = Running.open(place).state.processes["decode-0"]
        assert entry.engine_id == expected
        assert "--block-size=64" in entry.command
        assert "--enforce-eager" not in entry.command
    assert Running.open(place).state.processes["decode-0"].starts == 4
    with pytest.raises(DeploymentError, match="runs already"):
        running.start("decode-0")
    with pytest.raises(UsageError, match="no worker 'decode-9'"):
        running.kill("decode-9")


def test_a_signal_to_one_engine_leaves_the_other(place: Home) -> None:
    running = _up(place)
    ref = running.state.ref("decode-0")
    assert ref is not None
    os.kill(ref.pid, signal.SIGKILL)
    end = time.monotonic() + 10
    while running.alive("decode-0"):
        assert time.monotonic() < end
    assert running.alive("prefill-0")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prefill": 0}, "needs both roles"),
        ({"prefill": 40, "decode": 40}, "too many for one host"),
        ({"profile": Profile.GPU}, "needs a model"),
        ({"tensor_parallel_size": 2}, "without tensor parallelism"),
        ({"block_size": 16}, "multiples of 32"),
        ({"monitoring": True}, "needs the exporter"),
        ({"kv_store": "mooncake"}, "needs --network namespaces"),
        ({"profile": Profile.GPU, "model": "m", "gpus": (0,)}, "2 GPUs are needed"),
        ({"profile": Profile.GPU, "model": "m", "gpus": (0, 0)}, "GPU 0 is named twice"),
    ],
)
def test_wishes_that_contradict_each_other_are_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        profiles.plan(replace(WISH, **change), "/model")  # type: ignore[arg-type]
    assert why in f"{caught.value}: {caught.value.hint}"


def test_a_name_cannot_leave_its_folder() -> None:
    for name in ("../x", "", "A", "a/b", "-a", "a" * 40):
        with pytest.raises(UsageError, match="cannot be a deployment's name"):
            home(name)


def test_status_json_is_plain(place: Home) -> None:
    assert json.loads(json.dumps(status(_up(place))))["schema"] == "pdops/status/v1"


def test_sides_that_do_not_match_are_refused_before_anything_starts(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = profiles.plan

    def mismatched(*args: object, **more: object) -> object:
        spec = real(*args, **more)  # type: ignore[arg-type]
        last = replace(spec.engines[-1], extra=("--kv-cache-dtype=fp8",))
        return replace(spec, engines=(*spec.engines[:-1], last))

    monkeypatch.setattr(profiles, "plan", mismatched)
    with pytest.raises(DeploymentError, match=r"stage preflight failed.*pair/kv-dtype.*fp8 on decode-0"):
        _up(place)
    assert processes.with_mark(place.mark()) == set()


def test_sigterm_while_starting_leaves_nothing(place: Home) -> None:
    def ended(stages: tuple[Progress, ...]) -> None:
        if any(p.stage.id == "decode" and p.status == "running" for p in stages):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        up.up(place, WISH, MEANS, lambda _: None, ended)
    assert processes.with_mark(place.mark()) == set()


def test_what_cannot_be_ended_is_said_and_can_be_tried_again(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    _up(place)
    with monkeypatch.context() as unable:
        unable.setattr(processes, "stop_marked", lambda *_, **__: 2)
        with pytest.raises(DeploymentError, match="prefill-0, decode-0 cannot be ended"):
            _down(place, force=True)
    assert Running.open(place).alive("prefill-0")
    _down(place, force=True)
    assert processes.with_mark(place.mark()) == set()
    assert place.read() is None


def test_one_process_that_stands_for_many_workers_is_named_once(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    running = _up(place)
    one = running.state.processes["prefill-0"]
    many = {f"decode-{n}": one for n in range(1, 65)}
    place.write(replace(running.state, processes={**running.state.processes, **many}))
    with monkeypatch.context() as unable:
        unable.setattr(processes, "stop_marked", lambda *_, **__: 2)
        with pytest.raises(
            DeploymentError, match=rf"process {one.pid} \(prefill-0 and 64 more workers\), decode-0 can"
        ):
            _down(place, force=True)
    _down(place, force=True)


def test_a_state_copied_from_another_folder_stops_nothing_there(place: Home, tmp_path: Path) -> None:
    there = _up(place).pids()
    copy = home(state_dir=tmp_path / "copy")
    copy.prepare()
    copy.file.write_bytes(place.file.read_bytes())
    with pytest.raises(DeploymentError, match="belongs to a deployment in another folder"):
        _down(copy)
    _down(copy, force=True)
    assert processes.with_mark(place.mark()) == there


def test_a_stage_looks_at_nothing_before_its_turn() -> None:
    looked: list[int] = []

    def look() -> Outcome:
        looked.append(1)
        return Outcome(True, "seen")

    stage = effects.Ask(look)
    assert (stage.probe().ok, looked) == (False, [])
    stage.begin()
    end = time.monotonic() + 10
    while not stage.probe().ok:
        assert time.monotonic() < end
    assert looked == [1]


def test_what_a_forced_end_loses_is_not_called_nothing(place: Home) -> None:
    _up(place)
    assert _down(place, force=True) is None
