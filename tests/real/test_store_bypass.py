"""Engines that run are kept from their store and let to it again, on the real kernel; master and engine are doubles."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdops.actuate import processes
from pdops.actuate.backend import Fence
from pdops.actuate.local import LocalBackend
from pdops.clock import WallClock
from pdops.errors import ActionError, DeploymentError
from pdops.reference import effects, store_bypass, store_check
from pdops.reference.network import Network
from pdops.reference.operate import Operated
from pdops.reference.profiles import Wish, plan
from pdops.reference.running import Running
from pdops.reference.state import Home, ProcessState, State, home
from pdops.sequence.run import Outcome

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not Network.available()[0], reason=Network.available()[1]),
]
P, D, S = "prefill-0", "decode-0", "store-0"
BYPASS, USE = "store.bypass", "store.use"
FENCE, WHICH = Fence("run", 7), {"store": S}
MASTER = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    kept = []
    while True:
        kept.append(server.accept()[0])
        kept[-1].sendall(b"master")
"""
ENGINE = "import time; time.sleep(600)"
CALL = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 5) as s:
    s.settimeout(5)
    print(s.recv(10).decode() or "closed", flush=True)
    if len(sys.argv) > 3:
        sys.stdin.readline()
        try:
            s.sendall(b"x")
            print("kept" if s.recv(1) else "closed")
        except TimeoutError:
            print("kept")
        except OSError:
            print("reset")
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Home]:
    """A deployment in namespaces whose master and prefill run."""
    name = f"bypass-{os.getpid()}"
    network = Network(name, [P, D, S])
    found = home(name, tmp_path)
    found.prepare()
    network.up()
    try:
        addresses = {w: network.address(w) for w in network.workers}
        wish = Wish(name=name, kv_store="mooncake", network="namespaces", router="none")
        spec = plan(wish, "/model", addresses)
        running = Running(
            found,
            State(
                mark=found.mark(), phase="up", created_at_s=0.0, spec=spec, engine_python=sys.executable,
                network="namespaces",
            ),
        )  # fmt: skip
        _start(running, S, MASTER, spec.store.host, str(spec.store.rpc_port))  # type: ignore[union-attr]
        _start(running, P, ENGINE, f"--kv-transfer-config={running.planned(spec.engine(P))[0]}")
        _listens(found)
        yield found
    finally:
        processes.stop_marked(found.mark(), grace_s=1.0)
        network.down()
        assert network.leftovers() == ()


def _start(running: Running, worker: str, program: str, *words: str) -> None:
    assert running.network is not None
    command = [*running.network.enter(worker), sys.executable, "-c", program, *words]
    ref = processes.spawn(command, log=running.log(worker), mark=running.state.mark, env=dict(os.environ))
    entry = ProcessState(pid=ref.pid, start_ticks=ref.start_ticks, started_at_s=0.0, command=tuple(command))
    running.state = running.state.with_process(worker, entry)
    running.home.write(running.state)


def _backend(place: Home) -> LocalBackend:
    return LocalBackend(Operated(place), None, WallClock(), time.sleep)


def _call(place: Home, worker: str = P, *more: str) -> subprocess.Popen[str]:
    running = Running.open(place)
    store, network = running.spec.store, running.network
    assert store is not None
    assert network is not None
    command = [*network.enter(worker), sys.executable, "-c", CALL, store.host, str(store.rpc_port), *more]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _said(place: Home, worker: str = P) -> str:
    """What a caller in a worker's namespace gets of the master: its greeting, `closed`, or how it failed."""
    output, errors = _call(place, worker).communicate(timeout=30)
    return output.strip() or errors.strip().rpartition("\n")[2]


def _listens(place: Home) -> None:
    end = time.monotonic() + 20
    while "refused" in _said(place, S):
        assert time.monotonic() < end, "the double of the master does not listen"


def test_callers_of_a_dead_master_are_closed_at_once_and_reach_the_next_one(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, subject = _backend(place), "store/store-0/bypassed"
    assert (_said(place), backend.observe().get(subject).value) == ("master", False)
    Running.open(place).kill(S)
    assert "refused" in _said(place)
    assert backend.apply(BYPASS, WHICH, FENCE).changed
    assert not backend.apply(BYPASS, WHICH, FENCE).changed
    assert (_said(place), backend.observe().get(subject).value) == ("closed", True)
    # The master that comes back is reached from its own namespace only, until an object went through it.
    running = Running.open(place)
    store = running.spec.store
    assert store is not None
    _start(running, S, MASTER, store.host, str(store.rpc_port))
    _listens(place)
    assert (_said(place, S), _said(place)) == ("master", "closed")
    with pytest.raises(ActionError, match="store is not well"):
        backend.apply(USE, WHICH, FENCE)
    assert backend.observe().get(subject).value is True
    monkeypatch.setattr(store_check, "probe", lambda _running: Outcome(True))
    assert backend.apply(USE, WHICH, FENCE).changed
    assert not backend.apply(USE, WHICH, FENCE).changed
    assert (_said(place), backend.observe().get(subject).value) == ("master", False)


def test_callers_of_a_master_that_died_are_closed_at_once_where_the_stand_in_stands_by(place: Home) -> None:
    running = Running.open(place)
    store_bypass.stand_by(running)
    assert (_said(place), store_bypass.active(running)[0]) == ("master", False)
    running.kill(S)
    assert (_said(place), store_bypass.active(running)[0]) == ("closed", False)
    store = running.spec.store
    assert store is not None
    _start(running, S, MASTER, store.host, str(store.rpc_port))
    _listens(place)
    assert _said(place) == "master"
    # A bypass stays one when the master is started meanwhile.
    store_bypass.begin(running)
    store_bypass.stand_by(running)
    assert (_said(place), store_bypass.active(running)[0]) == ("closed", True)
    store_bypass.end(running)
    assert (_said(place), store_bypass.active(running)[0]) == ("master", False)


def test_a_stage_of_the_start_can_say_that_the_stand_in_does_not_listen(
    place: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_bypass, "PROGRAM", tmp_path / "none.py")
    with pytest.raises(DeploymentError, match="the store's stand-in does not listen"):
        effects.Store(Running.open(place)).begin()


def test_connections_to_a_master_that_lives_are_reset(place: Home) -> None:
    with _call(place, P, "and again") as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "master\n"
        _backend(place).apply(BYPASS, WHICH, FENCE)
        assert caller.communicate("\n", timeout=30)[0].strip() == "reset"


def test_a_bypass_whose_stand_in_ended_is_not_known_and_is_made_again(place: Home) -> None:
    backend = _backend(place)
    backend.apply(BYPASS, WHICH, FENCE)
    ref = Running.open(place).state.ref("store-0.standin")
    assert ref is not None
    processes.kill(ref)
    seen = backend.observe().get("store/store-0/bypassed")
    assert (seen.value, "stand-in has ended" in seen.why) == (None, True)
    assert backend.apply(BYPASS, WHICH, FENCE).changed
    assert (_said(place), backend.observe().get("store/store-0/bypassed").value) == ("closed", True)


def test_whether_engines_are_kept_from_the_store_is_not_known_where_the_packet_filter_cannot_be_asked(
    place: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = _backend(place)
    backend.apply(BYPASS, WHICH, FENCE)
    (tmp_path / "nft").write_text("#!/bin/sh\necho no netlink >&2\nexit 1\n")
    (tmp_path / "nft").chmod(0o755)
    with monkeypatch.context() as broken:
        broken.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        seen = backend.observe().get("store/store-0/bypassed")
    assert (seen.value, "no netlink" in seen.why) == (None, True)
    assert backend.observe().get("store/store-0/bypassed").value is True


def test_a_bypass_whose_stand_in_ended_can_be_ended_too(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = _backend(place)
    backend.apply(BYPASS, WHICH, FENCE)
    ref = Running.open(place).state.ref("store-0.standin")
    assert ref is not None
    processes.kill(ref)
    monkeypatch.setattr(store_check, "probe", lambda _running: Outcome(True))
    backend.apply(USE, WHICH, FENCE)
    assert (_said(place), backend.observe().get("store/store-0/bypassed").value) == ("master", False)


def test_what_was_started_without_the_store_is_named(place: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = _backend(place)
    backend.apply(BYPASS, WHICH, FENCE)
    running = Running.open(place)
    assert store_bypass.users(running) == (P,)
    _start(running, D, ENGINE, f"--kv-transfer-config={running.planned(running.spec.engine(D))[0]}")
    monkeypatch.setattr(store_check, "probe", lambda _running: Outcome(True))
    detail = backend.apply(USE, WHICH, FENCE).detail
    assert "decode-0 started without it and must be restarted" in detail
