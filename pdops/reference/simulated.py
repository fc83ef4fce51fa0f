"""Bring a simulated cluster up: one process that shows the pages of all its workers on loopback."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.errors import DeploymentError
from pdops.model.cluster import Role
from pdops.reference import logs
from pdops.reference.endings import interruptible, unhurried
from pdops.reference.profiles import free_ports
from pdops.reference.running import Running
from pdops.reference.spec import DeploymentSpec, EngineSpec, Profile, RouterSpec, StoreSpec
from pdops.reference.state import Home, ProcessState, State
from pdops.reference.up import undo
from pdops.sim.arguments import merged
from pdops.sim.spec import SimSpec, load_spec

READY_TIMEOUT_S = 60.0
PROGRAM = (sys.executable, "-m", "pdops.sim")
_PROCESS = "simulation"
_CLOCK = WallClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimWish:
    """What a user asks for: a simulation file, and entries of such a file that are put in its place."""

    name: str = "default"
    speed: float = 1.0
    file: Path | None = None
    entries: Mapping[str, Any] = field(default_factory=dict)


def up_simulated(home: Home, wish: SimWish, say: Callable[[str], None]) -> Running:
    """Bring a simulated cluster up; return the handle, also when the same one was up already.

    Raises:
        SimError: the simulation cannot be run.
        DeploymentError: something else is up there, or its pages did not come up; nothing stays then.
    """
    text = _text(wish)
    home.prepare()
    with home.locked("bring the simulation up"), interruptible():
        found = _found(home, wish, text, say)
        if found is not None:
            return found
        file = home.path / "simulation.yaml"
        file.write_text(text, encoding="utf-8")
        spec = _deployment(wish, load_spec(str(file)))
        state = State(
            mark=home.mark(), phase="starting", created_at_s=_CLOCK.now(), spec=spec, engine_python=sys.executable
        )
        home.inventory.unlink(missing_ok=True)
        home.write(state)
        running = Running(home, state)
        try:
            log = home.log(_PROCESS)
            before_bytes = log.stat().st_size if log.exists() else 0
            _start(running, file, wish.speed)
            _wait(running, before_bytes)
        except BaseException:
            with unhurried(say):
                undo(home)
            raise
        running.state = replace(running.state, phase="up")
        home.write(running.state)
        return running


def _text(wish: SimWish) -> str:
    """Return the simulation file; one that was given is checked as it is, so that errors name its lines."""
    base: dict[str, Any] = {}
    if wish.file is not None:
        load_spec(str(wish.file))
        base = yaml.safe_load(wish.file.read_text(encoding="utf-8")) or {}
    return yaml.safe_dump(merged(base, wish.entries), sort_keys=False)


def _found(home: Home, wish: SimWish, text: str, say: Callable[[str], None]) -> Running | None:
    """Return what is up already when it is the same; clear away what is left of an earlier run."""
    state = home.read()
    running = Running(home, state) if state is not None else None
    if running is None or not running.pids():
        if left := processes.stop_marked(home.mark()):
            say(f"stopped {left} processes an earlier run had left behind")
        return None
    file = home.path / "simulation.yaml"
    command = next(iter(running.state.processes.values())).command if running.state.processes else ()
    same = running.spec.profile is Profile.SIM and file.exists() and file.read_text(encoding="utf-8") == text
    if same and running.state.phase == "up" and f"--speed={wish.speed}" in command:
        say("it is up already")
        return running
    raise DeploymentError(
        "another deployment is up under this name",
        where=str(home.path),
        why=f"profile {running.spec.profile}",
        hint="`pdops down` first, or take another --name",
    )


def _deployment(wish: SimWish, sim: SimSpec) -> DeploymentSpec:
    ids = [(f"prefill-{i}", Role.PREFILL) for i in range(sim.prefill)]
    ids += [(f"decode-{i}", Role.DECODE) for i in range(sim.decode)]
    ports = free_ports(len(ids) + 2)
    engines = tuple(
        EngineSpec(id=worker, role=role, host="127.0.0.1", port=ports.pop(), side_port=0, engine_id=worker)
        for worker, role in ids
    )
    store = StoreSpec(rpc_port=0, metrics_port=ports.pop(), http_port=0) if sim.store.enabled else None
    return DeploymentSpec(
        name=wish.name,
        profile=Profile.SIM,
        model=sim.engine.model,
        served_model=sim.engine.model,
        engines=engines,
        router=RouterSpec(port=ports.pop(), policy=sim.router.policy, queue_limit=sim.router.queue_limit),
        store=store,
        block_size=sim.engine.block_size_tokens,
        max_num_seqs=sim.engine.max_num_seqs,
        lease_s=round(sim.engine.lease_s),
        slo=sim.slo,
        kv_bytes_per_token=round(sim.engine.kv_bytes_per_token),
    )


def _start(running: Running, file: Path, speed: float) -> None:
    """Start the one process; it stands for every worker."""
    home, spec = running.home, running.spec
    ports = {e.id: e.port for e in spec.engines}
    ports |= {spec.router.id: spec.router.port} if spec.router is not None else {}
    ports |= {spec.store.id: spec.store.metrics_port} if spec.store is not None else {}
    taken = home.path / "ports.json"
    taken.write_text(json.dumps(ports), encoding="utf-8")
    for worker in spec.ids():
        home.log(worker).touch()
    settings = {"spec": file, "speed": speed, "ports": taken, "inventory": home.inventory, "logs": home.logs}
    command = [*PROGRAM, *(f"--{k}={v}" for k, v in settings.items())]
    ref = processes.spawn(command, log=home.log(_PROCESS), mark=running.state.mark, env=os.environ, cwd=home.path)
    entry = ProcessState(pid=ref.pid, start_ticks=ref.start_ticks, started_at_s=_CLOCK.now(), command=tuple(command))
    running.state = replace(running.state, processes=dict.fromkeys(spec.ids(), entry))
    home.write(running.state)


def _wait(running: Running, before_bytes: int) -> None:
    """Wait for the inventory, which is written once all pages answer."""
    log, first = running.log(_PROCESS), running.spec.engines[0].id
    end = _CLOCK.monotonic() + READY_TIMEOUT_S
    while not running.inventory.exists():
        if not running.alive(first) or _CLOCK.monotonic() > end:
            said = (logs.tail(log, before_bytes) or ["it says nothing"])[-3:]
            raise DeploymentError(
                "the simulation does not come up", where=str(log), why="; ".join(said)[:300], hint="read that file"
            )
        time.sleep(0.05)
