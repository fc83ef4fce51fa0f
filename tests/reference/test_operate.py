"""The reference deployment as a backend: on doubles of the engines, with the real router in front."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from pdops.actuate import processes
from pdops.actuate.backend import Fence
from pdops.actuate.local import LocalBackend
from pdops.actuate.router_admin import PdopsRouter
from pdops.cli import main
from pdops.clock import WallClock
from pdops.errors import ActionError, BusyError, FencedError
from pdops.reference import effects, engine_env, pages, profiles, up
from pdops.reference.operate import Operated
from pdops.reference.running import Running
from pdops.reference.spec import StoreSpec
from pdops.reference.state import Home, home
from pdops.sequence.run import Effect, Skip
from pdops.sequence.stages import Order, order
from pdops.sources.inventory import load_inventory
from pdops_exporters.vllm_plugin import peer

FENCE = Fence("run", 7)
OUT = {"role": "prefill", "worker": "prefill-1", "replicas": 2}
IN = {"role": "prefill", "worker": "prefill-1", "replicas": 1}


def _quick(name: str) -> Order:
    stages = order(name).stages
    return Order(name, tuple(replace(s, successes=1, interval_s=0.1, min_age_s=0, budget_s=60) for s in stages))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A deployment of doubles that is up, with a router."""
    double = tmp_path / "python"
    double.write_text(f"#!{sys.executable}\n{(Path(__file__).parent / 'double_engine.py').read_text()}")
    double.chmod(0o755)
    real = effects.effects

    def quick(running: Running) -> Mapping[str, Effect | Skip]:
        nothing = Skip("doubles move no KV")
        return {**real(running), "pair-canary": nothing, "canary": nothing, "ramp": nothing}

    monkeypatch.setattr(engine_env, "ensure", lambda *_: double)
    monkeypatch.setattr(up, "effects", quick)
    monkeypatch.setattr(up, "order", _quick)
    found = home(state_dir=tmp_path / "state")
    up.up(found, profiles.Wish(), up.Means(), lambda _: None, lambda _: None)
    yield found
    processes.stop_marked(found.mark(), grace_s=1.0)


def _backend(place: Home) -> LocalBackend:
    running = Running.open(place)
    router = PdopsRouter(running.router_url, running.admin_token_file)
    return LocalBackend(Operated(place), router, WallClock(), lambda s: time.sleep(min(s, 0.05)))


def test_one_engine_more_with_ports_of_its_own_and_one_less_again(place: Home) -> None:
    backend = _backend(place)
    assert backend.observe().get("pool/prefill/replicas").value == 1
    assert backend.apply("pool.scale-out", OUT, FENCE).changed
    assert not backend.apply("pool.scale-out", OUT, FENCE).changed
    spec = Running.open(place).spec
    ports = [p for e in spec.engines for p in (e.port, e.side_port)]
    assert len(set(ports)) == len(ports) == 6
    assert [w.id for w in load_inventory(place.inventory).cluster.workers] == [
        "prefill-0",
        "decode-0",
        "prefill-1",
        "router-0",
    ]
    Running.open(place).wait_ready("prefill-1", 30)
    seen = backend.observe()
    assert seen.get("worker/prefill-1/serving").value is True
    assert seen.get("worker/prefill-1/routed").value is False
    assert backend.apply("router.add", {"worker": "prefill-1"}, FENCE).changed
    assert not backend.apply("router.add", {"worker": "prefill-1"}, FENCE).changed
    assert backend.observe().get("worker/prefill-1/routed").value is True
    assert backend.apply("pool.scale-in", IN, FENCE).changed
    assert not backend.apply("pool.scale-in", IN, FENCE).changed
    seen = backend.observe()
    assert seen.get("pool/prefill/replicas").value == 1
    assert not seen.get("worker/prefill-1/process").known
    assert "prefill-1" not in Running.open(place).spec.ids()


def test_what_engines_found_out_about_a_models_code_is_kept_for_those_after_them(
    place: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, folder = Running.open(place), tmp_path / "engine"
    monkeypatch.setenv("PDOPS_ENGINE_DIR", str(folder))

    def kept() -> list[str]:
        return [running.planned(e)[1]["VLLM_CACHE_ROOT"] for e in running.spec.engines]

    assert kept() == [str(place.cache / e.id) for e in running.spec.engines]
    folder.mkdir()
    assert kept() == [str(folder / "cache")] * len(running.spec.engines)


def test_an_engine_that_comes_after_another_of_its_id_has_a_kv_identity_of_its_own(place: Home) -> None:
    operated, seen = Operated(place), []
    for _ in range(2):
        operated.add("prefill", "prefill-1")
        for _ in range(2):
            operated.start("prefill-1")
            last = Running.open(place).state.processes["prefill-1"]
            seen.append(last.engine_id)
            assert f'"engine_id": "{last.engine_id}"' in " ".join(last.command)
            operated.stop("prefill-1")
        operated.forget("prefill-1")
    assert len(set(seen)) == 4
    assert {peer(str(name)) for name in seen} == {"prefill-1"}


def test_an_engine_that_was_started_and_never_written_down_is_adopted(place: Home) -> None:
    operated = Operated(place)
    operated.add("prefill", "prefill-1")
    before = Running.open(place).state
    operated.start("prefill-1")
    pid = Running.open(place).state.processes["prefill-1"].pid
    place.write(before)
    assert _backend(place).apply("pool.scale-out", OUT, FENCE).changed
    assert Running.open(place).state.processes["prefill-1"].pid == pid


def test_a_restart_counts_and_is_not_done_twice(place: Home) -> None:
    backend = _backend(place)
    asked = {"worker": "decode-0", "starts": 2}
    pid = Running.open(place).state.processes["decode-0"].pid
    assert backend.apply("worker.restart", asked, FENCE).changed
    assert not backend.apply("worker.restart", asked, FENCE).changed
    again = Running.open(place).state.processes["decode-0"]
    assert (again.starts, again.pid != pid) == (2, True)
    with pytest.raises(ActionError, match="somebody else restarted it"):
        backend.apply("worker.restart", {"worker": "decode-0", "starts": 4}, FENCE)


def test_a_worker_with_requests_is_not_stopped(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOUBLE_RUNNING", "3")
    monkeypatch.setattr("pdops.actuate.local.DRAIN_S", 0.2)
    backend = _backend(place)
    backend.apply("pool.scale-out", OUT, FENCE)
    Running.open(place).wait_ready("prefill-1", 30)
    with pytest.raises(ActionError, match="prefill-1 is not empty"):
        backend.apply("pool.scale-in", IN, FENCE)
    assert Running.open(place).alive("prefill-1")


def test_prefill_that_was_routed_is_kept_for_its_lease(place: Home) -> None:
    waited: list[float] = []
    backend = _backend(place)
    backend._sleep = waited.append
    backend.apply("pool.scale-out", OUT, FENCE)
    Running.open(place).wait_ready("prefill-1", 30)
    backend.apply("router.add", {"worker": "prefill-1"}, FENCE)
    backend.apply("pool.scale-in", IN, FENCE)
    assert max(waited) == 45.0


def test_prefill_that_was_taken_from_the_router_before_is_kept_for_its_lease_too(place: Home) -> None:
    waited: list[float] = []
    backend = _backend(place)
    backend._sleep = waited.append
    backend.apply("pool.scale-out", OUT, FENCE)
    Running.open(place).wait_ready("prefill-1", 30)
    backend.apply("router.add", {"worker": "prefill-1"}, FENCE)
    backend.apply("router.remove", {"worker": "prefill-1"}, FENCE)
    backend.apply("pool.scale-in", IN, FENCE)
    assert max(waited) == 45.0


def test_cordon_and_uncordon_are_seen(place: Home) -> None:
    backend = _backend(place)
    assert backend.observe().get("worker/decode-0/cordoned").value is False
    assert backend.apply("worker.cordon", {"worker": "decode-0"}, FENCE).changed
    assert not backend.apply("worker.cordon", {"worker": "decode-0"}, FENCE).changed
    assert backend.observe().get("worker/decode-0/cordoned").value is True
    assert backend.apply("worker.uncordon", {"worker": "decode-0"}, FENCE).changed


def test_an_engine_that_is_late_is_not_known_to_be_silent_and_one_that_refuses_is(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running.open(place)
    (other,) = profiles.free_ports(1)
    engines = tuple(replace(e, port=other) if e.id == "decode-0" else e for e in running.spec.engines)
    running.state = replace(running.state, spec=replace(running.spec, engines=engines))
    assert running.serving("prefill-0") == (True, None)
    assert running.serving("decode-0")[0] is False

    def late(*_: object) -> str:
        raise requests.ReadTimeout

    monkeypatch.setattr(pages, "get", late)
    seen = _backend(place).observe().get("worker/prefill-0/serving")
    assert (seen.value, seen.why) == (None, "it listens and is late to answer")


def test_what_the_router_lets_be_changed_is_seen_and_set_and_set_once(place: Home) -> None:
    backend = _backend(place)
    for action, subject, params in (
        ("router.salt", "router/salt_ratio", {"value": 0.5}),
        ("router.admit", "router/admit_ratio", {"value": 0.25}),
        ("router.policy", "router/policy", {"value": "least-loaded"}),
        ("router.limit", "router/queue_limit", {"limit": "queue_limit", "value": 9}),
    ):
        assert backend.observe().get(subject).value != params["value"]
        assert backend.apply(action, params, FENCE).changed
        assert not backend.apply(action, params, FENCE).changed
        assert backend.observe().get(subject).value == params["value"]
    with pytest.raises(ActionError, match="the router says 400"):
        backend.apply("router.limit", {"limit": "queue_limit", "value": -1}, FENCE)


def test_an_older_fence_changes_nothing(place: Home) -> None:
    backend = _backend(place)
    backend.apply("worker.cordon", {"worker": "decode-0"}, FENCE)
    with pytest.raises(FencedError):
        backend.apply("worker.uncordon", {"worker": "decode-0"}, Fence("older", 6))
    assert backend.observe().get("worker/decode-0/cordoned").value is True


def test_a_router_that_is_down_makes_routing_unknown_and_refuses_its_actions(place: Home) -> None:
    Running.open(place).kill("router-0")
    backend = _backend(place)
    seen = backend.observe().get("worker/decode-0/routed")
    assert (seen.known, "does not answer" in seen.why) == (False, True)
    assert "does not answer" in (backend.capabilities().refusal("worker.cordon") or "")
    assert backend.capabilities().refusal("pool.scale-out") is None
    assert "no KV store" in (backend.capabilities().refusal("store.restart") or "")


def _all_dead(place: Home) -> None:
    running = Running.open(place)
    for worker in running.state.processes:
        running.kill(worker)
    assert running.pids() == set()


def test_a_router_that_ended_is_started_again_and_asks_its_workers(place: Home) -> None:
    backend = _backend(place)
    assert backend.observe().get("worker/router-0/role").value == "router"
    assert backend.observe().get("worker/router-0/inflight").value == 0
    assert backend.apply("worker.stop", {"worker": "router-0"}, FENCE).changed
    assert backend.observe().get("worker/router-0/process").value == "stopped"
    assert backend.apply("worker.start", {"worker": "router-0"}, FENCE).changed
    Running.open(place).wait_ready("router-0", 30)
    seen = backend.observe()
    assert (seen.get("worker/router-0/serving").value, seen.get("worker/decode-0/routed").value) == (True, True)


def test_a_cold_start_is_planned_where_nothing_answers_because_surely_nothing_runs(
    place: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ("runbook", "plan", "cold-start", "-c", str(place.inventory), "--for", "2", "--json")
    _all_dead(place)
    with pytest.raises(SystemExit) as ended:
        main([*plan])
    made = json.loads(capsys.readouterr().out)
    assert (ended.value.code or 0, made["decision"]) == (0, "ready")
    assert [s["id"] for s in made["steps"] if s["subject"]] == [
        "prefill:prefill-0",
        "decode:decode-0",
        "router:router-0",
    ]


def test_nothing_is_planned_where_no_target_answers_and_an_engine_may_be_late(
    place: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = Running.open(place)
    for worker in ("prefill-0", "decode-0", "router-0"):
        running.freeze(worker)
    try:
        with pytest.raises(SystemExit) as ended:
            main(["runbook", "plan", "cold-start", "-c", str(place.inventory), "--for", "2", "--json"])
    finally:
        for worker in ("prefill-0", "decode-0", "router-0"):
            running.thaw(worker)
    err = capsys.readouterr().err
    assert (ended.value.code, "no target answered" in err) == (3, True), err


def _given_a_store(place: Home, *, used: bool) -> None:
    """Write a store into the plan, and whether the engines that run were started with it."""
    running = Running.open(place)
    spec = replace(running.spec, store=StoreSpec(rpc_port=1, metrics_port=2, http_port=3))
    known = running.state.processes
    if used:
        known = {w: replace(p, command=(*p.command, "MooncakeStoreConnector")) for w, p in known.items()}
    running.state = replace(running.state, spec=spec, processes=known)
    place.write(running.state)


def test_engines_that_run_with_a_store_cannot_be_kept_from_it_without_a_namespace(place: Home) -> None:
    _given_a_store(place, used=True)
    backend = _backend(place)
    for action in ("store.bypass", "store.use"):
        assert "only where the store has a network namespace" in (backend.capabilities().refusal(action) or "")
    _all_dead(place)
    assert backend.capabilities().refusal("store.bypass") is None


def test_engines_are_started_without_their_store_and_with_it_again(place: Home) -> None:
    _given_a_store(place, used=False)
    backend = _backend(place)
    assert backend.observe().get("store/store-0/bypassed").value is False
    assert backend.apply("store.bypass", {"store": "store-0"}, FENCE).changed
    assert not backend.apply("store.bypass", {"store": "store-0"}, FENCE).changed
    assert backend.observe().get("store/store-0/bypassed").value is True
    running = Running.open(place)
    assert "Mooncake" not in " ".join(running.planned(running.spec.engine("decode-0"))[0])
    done = backend.apply("store.use", {"store": "store-0"}, FENCE)
    assert done.changed
    assert "prefill-0, decode-0 started without it and must be restarted" in done.detail
    running = Running.open(place)
    assert "Mooncake" in " ".join(running.planned(running.spec.engine("decode-0"))[0])


def test_while_another_command_changes_it_nothing_is_done(place: Home) -> None:
    with place.locked("hold it"), pytest.raises(BusyError, match="hold it"):
        _backend(place).apply("worker.cordon", {"worker": "decode-0"}, FENCE)
    assert _backend(place).observe().get("worker/decode-0/cordoned").value is False


def test_a_pool_of_another_size_is_left_alone(place: Home) -> None:
    backend = _backend(place)
    with pytest.raises(ActionError, match="another size by now"):
        backend.apply("pool.scale-out", {**OUT, "replicas": 5}, FENCE)
    assert Running.open(place).spec.ids() == ("prefill-0", "decode-0", "router-0")


@pytest.mark.timeout(400)
def test_a_scale_out_killed_at_any_boundary_ends_with_one_engine_more(place: Home, tmp_path: Path) -> None:
    every = "1" if os.environ.get("PDOPS_REQUIRE_REAL") == "1" else "4"
    command = [sys.executable, "-m", "tests.reference.operate_trials", str(place.path), str(tmp_path / "trials"), every]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    trials = [json.loads(line) for line in done.stdout.splitlines()]
    assert [t for t in trials if t["wrong"]] == []
    assert len(trials[0]["points"]) >= 20
    assert len(trials) >= 1 + len(trials[0]["points"]) // int(every)


TITLED = (
    "import ctypes, time; from pathlib import Path; "
    "begin, end = map(int, Path('/proc/self/stat').read_text().rpartition(')')[2].split()[47:49]); "
    "ctypes.memset(begin, 0, end - begin); print('titled', flush=True); time.sleep(60)"
)
"""What vllm-router makes of its environment: a title, and no mark."""


def test_a_router_under_a_title_is_adopted_and_no_other_part_is_taken_for_it(place: Home) -> None:
    running = Running.open(place)
    running.stop("router-0")
    log = running.log("router-0")
    ref = processes.spawn([sys.executable, "-c", TITLED], log=log, mark=place.mark(), env=dict(os.environ))
    end = time.monotonic() + 20
    while "titled" not in log.read_text():
        assert time.monotonic() < end
        time.sleep(0.01)
    assert processes.marked(ref.pid) is None
    Operated(place).start("router-0")
    state = Running.open(place).state
    assert state.processes["router-0"].pid == ref.pid
    assert {k: v for k, v in state.processes.items() if k != "router-0"} == {
        k: v for k, v in running.state.processes.items() if k != "router-0"
    }
    Operated(place).stop("router-0")
    assert not processes.alive(ref)


def test_two_that_write_the_log_of_one_worker_are_not_guessed_among(place: Home) -> None:
    running = Running.open(place)
    running.stop("router-0")
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    for _ in range(2):
        processes.spawn(sleeper, log=running.log("router-0"), mark=place.mark(), env=dict(os.environ))
    with pytest.raises(ActionError, match="which process it is cannot be told"):
        Operated(place).start("router-0")
