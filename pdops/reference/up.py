"""Bring a deployment up in cold-start order, and leave nothing behind that did not come up."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.errors import DeploymentError
from pdops.reference import engine_env, profiles, routers
from pdops.reference.effects import effects
from pdops.reference.endings import interruptible, unhurried
from pdops.reference.network import Network
from pdops.reference.running import Running
from pdops.reference.settings import UNASKED, settings
from pdops.reference.spec import DeploymentSpec, Profile
from pdops.reference.state import Home, StageState, State
from pdops.sequence.run import Progress, run
from pdops.sequence.stages import order

Say = Callable[[str], None]
Show = Callable[[tuple[Progress, ...]], None]
_CLOCK = WallClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """How to bring it up, beside what."""

    engine_python: Path | None = None
    torch_wheel: Path | None = None
    order: str = "strict"


def up(home: Home, wish: profiles.Wish, means: Means, say: Say, show: Show) -> Running:
    """Bring a deployment up; return the handle, also when it was up already.

    Args:
        home: its folder.
        wish: what was asked for.
        means: with what.
        say: takes lines of progress.
        show: takes the stages with every change.

    Raises:
        DeploymentError: a stage failed; what had been started is stopped.
        UsageError: the wishes contradict each other, or those of the deployment that is up.
    """
    profiles.check(wish)
    home.prepare()
    with home.locked("bring the deployment up"), interruptible():
        found = _found(home, wish, say)
        if found is not None:
            return found
        python = _python(wish, means, say)
        network, addresses = _network(wish, say)
        try:
            spec = profiles.plan(wish, str(home.model), addresses)
            if wish.profile is Profile.CPU and wish.model is None:
                _model(home, python)
            state = State(
                mark=home.mark(),
                phase="starting",
                created_at_s=_CLOCK.now(),
                spec=spec,
                engine_python=str(python),
                network=wish.network,
            )
            _token(home)
            (home.router / "workers.json").unlink(missing_ok=True)
            home.write(state)
            return _go(Running(home, state), means, show)
        except BaseException:
            # Ctrl-C and defects of ours too: what does not come up as a whole does not stay.
            with unhurried(say):
                undo(home)
                if network is not None:
                    network.down()
            raise


def undo(home: Home) -> int:
    """Stop whatever carries the deployment's mark and write that down; return how many processes there were."""
    state = home.read()
    stopped = processes.stop_marked(home.mark(), state.refs() if state is not None else ())
    if state is not None:
        home.write(replace(state, phase="failed"))
    return stopped


def write_inventory(home: Home, spec: DeploymentSpec) -> None:
    """Write the inventory that every other command takes with `-c`."""
    workers: list[dict[str, object]] = [
        {"id": e.id, "role": e.role.value, "pool": e.role.value, "url": e.url, "engine": "vllm",
         "node": "local", "logs": [{"file": str(home.log(e.id))}]}
        for e in spec.engines
    ]  # fmt: skip
    if spec.router is not None:
        entry: dict[str, object] = {"id": spec.router.id, "role": "router", "pool": "router", "url": spec.router.url}
        if spec.router.kind == "pdops":
            admin = {"url": f"{spec.router.url}/admin", "bearer_token_file": str(home.admin_token)}
            entry |= {"engine": "pdops_router", "admin": admin}
        else:
            address = f"http://{spec.router.host}:{spec.router.metrics_port}/metrics"
            entry |= {"engine": "vllm_router", "metrics": address}
        workers.append(entry)
    if spec.store is not None:
        address = f"http://{spec.store.host}:{spec.store.metrics_port}/metrics"
        workers.append(
            {"id": spec.store.id, "role": "kvstore", "pool": "kvstore", "url": f"http://{spec.store.host}:{spec.store.rpc_port}",
             "metrics": address, "engine": "mooncake"}
        )  # fmt: skip
    model: dict[str, object] = {"name": spec.served_model}
    if spec.kv_bytes_per_token is not None:
        model["kv_bytes_per_token"] = spec.kv_bytes_per_token
    slo = {k: v for k, v in (("ttft_s", spec.slo.ttft_s), ("itl_s", spec.slo.itl_s)) if v is not None}
    content: dict[str, object] = {"version": 1, "cluster": f"reference-{spec.profile.value}", "model": model}
    if slo:
        content["slo"] = {**slo, "percentile": spec.slo.percentile, "attainment": spec.slo.attainment}
    content["workers"] = workers
    home.inventory.write_text(yaml.safe_dump(content, sort_keys=False, width=160), encoding="utf-8")


def _found(home: Home, wish: profiles.Wish, say: Say) -> Running | None:
    """Return what is up already; clear away what is left of an earlier run."""
    state = home.read()
    if state is None:
        if left := processes.stop_marked(home.mark()):
            say(f"stopped {left} processes an earlier run had left behind")
        return None
    running = Running(home, state)
    dead = [i for i in state.spec.ids() if not running.alive(i)]
    if state.phase == "up" and not dead:
        same(state, wish, home)
        say("it is up already")
        return running
    left = processes.stop_marked(home.mark(), state.refs())
    if state.phase == "up":
        say(f"an earlier deployment had lost {', '.join(dead)}; its other {left} processes were stopped")
    elif left:
        say(f"an earlier start ({state.phase}) had left {left} processes; they were stopped")
    if (network := running.network) is not None:
        network.down()
    return None


_DEFAULTED = {
    "max-model-len": "max_model_len", "block-size": "block_size", "decode-blocks": "decode_blocks",
    "prefill-blocks": "prefill_blocks", "prefill-seqs": "prefill_seqs", "lease": "lease_s",
    "slo-ttft": "ttft_s", "slo-itl": "itl_s",
}  # fmt: skip
"""Options that a profile chooses where they are not given, and the wish that holds each."""


def same(state: State, wish: profiles.Wish, home: Home) -> None:
    """Look whether what is up is what is asked for.

    Raises:
        DeploymentError: it is not; says which settings differ.
    """
    spec = state.spec
    asked = settings(profiles.plan(replace(wish, router_port=None), str(home.model)), wish.network, wish.router_port)
    have = settings(spec, state.network, None if wish.router_port is None or spec.router is None else spec.router.port)
    # What nobody asked for may be as it is, though a new deployment would have a default.
    unasked = {name for name, field in _DEFAULTED.items() if getattr(wish, field) is None}
    wanted = {name: value for name, value in asked.items() if value != UNASKED and name not in unasked}
    differs = [f"--{name} is {have[name]}, asked for {value}" for name, value in wanted.items() if have[name] != value]
    if differs:
        raise DeploymentError(
            "another deployment is up under this name",
            where=str(home.path),
            why="; ".join(differs),
            hint="`pdops down` first, take another --name, or ask for what is up",
        )
    beside = {service.id for service in spec.services}
    if absent := [name for name in profiles.service_names(wish) if name not in beside]:
        raise DeploymentError(
            f"this deployment is up without {' and '.join(absent)}",
            where=str(home.path),
            why="what runs beside a deployment is started with it",
            hint="`pdops down` first, or leave it out: --no-exporter, or no --monitoring",
        )


def _python(wish: profiles.Wish, means: Means, say: Say) -> Path:
    if wish.profile is Profile.GPU:
        return engine_env.present_gpu(means.engine_python)
    python = engine_env.ensure(say, means.engine_python, means.torch_wheel)
    if wish.kv_store == "mooncake" and not (python.parent / "mooncake_master").exists():
        engine_env.add(python, engine_env.STORE_LIST, say)
    if wish.router == "vllm-router" and not (python.parent / "vllm-router").exists():
        engine_env.add(python, routers.REQUIREMENTS, say)
    return python


def _network(wish: profiles.Wish, say: Say) -> tuple[Network | None, dict[str, str] | None]:
    if wish.network != "namespaces":
        return None, None
    workers = [f"prefill-{i}" for i in range(wish.prefill)] + [f"decode-{i}" for i in range(wish.decode)]
    if wish.kv_store != "none":
        workers.append("store-0")
    network = Network(wish.name, workers)
    usable, why = network.available()
    if not usable:
        raise DeploymentError(
            "network namespaces cannot be made here", why=why, hint="take --network loopback, or run with CAP_NET_ADMIN"
        )
    network.up()
    say(f"network namespaces for {', '.join(workers)}")
    return network, {w: network.address(w) for w in workers}


def _go(running: Running, means: Means, show: Show) -> Running:
    home, cold = running.home, order("cold-start")
    if means.order == "any":
        # In pull mode decode meets prefill at the first hand-over, so both may load at once.
        cold = cold.without("prefill", "decode")

    def report(stages: tuple[Progress, ...]) -> None:
        states = tuple(StageState(id=p.stage.id, state=p.status, since_s=p.since_s, detail=p.detail) for p in stages)
        running.state = replace(running.state, stages=states)
        home.write(running.state)
        show(stages)

    write_inventory(home, running.spec)
    run(cold, effects(running), clock=_CLOCK, sleep=time.sleep, report=report)
    running.state = replace(running.state, phase="up")
    home.write(running.state)
    return running


def _model(home: Home, python: Path) -> None:
    if (home.model / "model.safetensors").exists() and (home.model / "config.json").exists():
        return
    script = Path(__file__).parent / "model.py"
    env = {"PATH": os.environ.get("PATH", ""), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [str(python), str(script), str(home.model)],
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        hint = "the machine is too busy; try again, or give a checkpoint with --model"
        raise DeploymentError("the model was not written within 300 s", where=str(home.model), hint=hint) from error
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        hint = "check the space left there, or give a checkpoint with --model"
        raise DeploymentError("cannot write the model", where=str(home.model), why=why, hint=hint)


def _token(home: Home) -> None:
    handle = os.open(home.admin_token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(secrets.token_urlsafe(32) + "\n")
