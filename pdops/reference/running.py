"""A handle on a deployment: start, signal and read its parts, from any process that knows its folder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import requests

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.errors import DeploymentError, UsageError
from pdops.model.cluster import Role
from pdops.reference import engine_env, engines, pages, plugin, routers, services, sockets, store
from pdops.reference.network import Network
from pdops.reference.spec import DeploymentSpec, EngineSpec, Profile, RouterSpec, ServiceSpec, StoreSpec
from pdops.reference.state import Home, ProcessState, State

READY_TIMEOUT_S = 900.0
"""An engine is ready in about half a minute on two idle cores and was seen to take seven minutes on busy ones."""
_CLOCK = WallClock()
_LOADS = "it does not answer yet (loading the model)"


class Running:
    """One deployment.

    Args:
        home: its folder.
        state: what was written down there.
    """

    def __init__(self, home: Home, state: State) -> None:
        self.home, self.state = home, state

    @classmethod
    def open(cls, state_dir: Path | Home) -> Running:
        """Return the handle on what is in a folder.

        Raises:
            DeploymentError: nothing is up there.
        """
        home = state_dir if isinstance(state_dir, Home) else Home(state_dir)
        state = home.read()
        if state is None:
            raise DeploymentError("no deployment is up", where=str(home.path), hint="start one with `pdops up`")
        return cls(home, state)

    @property
    def spec(self) -> DeploymentSpec:
        """What it consists of."""
        return self.state.spec

    @property
    def state_dir(self) -> Path:
        """Its folder."""
        return self.home.path

    @property
    def inventory(self) -> Path:
        """Its inventory file, for `-c`."""
        return self.home.inventory

    @property
    def admin_token_file(self) -> Path:
        """The token of the router's admin API."""
        return self.home.admin_token

    @property
    def python(self) -> Path:
        """The engines' Python."""
        return Path(self.state.engine_python)

    @property
    def router_url(self) -> str:
        """Where clients ask.

        Raises:
            UsageError: it has no router.
        """
        if self.spec.router is None:
            raise UsageError("this deployment has no router", hint="start it without --router none")
        return self.spec.router.url

    @property
    def network(self) -> Network | None:
        """The namespaces its workers live in, or None on loopback."""
        if self.state.network != "namespaces":
            return None
        workers = [e.id for e in self.spec.engines]
        return Network(self.spec.name, workers + ([self.spec.store.id] if self.spec.store else []))

    def part(self, worker: str) -> EngineSpec | RouterSpec | StoreSpec | ServiceSpec:
        """Return what the id of a worker or service stands for.

        Raises:
            UsageError: nothing has that id.
        """
        for part in (*self.spec.engines, self.spec.router, self.spec.store, *self.spec.services):
            if part is not None and part.id == worker:
                return part
        raise UsageError(f"no worker {worker!r}", where=self.spec.name, hint=f"it has {', '.join(self.spec.ids())}")

    def url(self, worker: str) -> str:
        """Return where a worker serves."""
        part = self.part(worker)
        return f"http://{part.host}:{part.metrics_port}" if isinstance(part, StoreSpec) else part.url

    def log(self, worker: str) -> Path:
        """Return the file a worker logs to."""
        return self.home.log(worker)

    def alive(self, worker: str) -> bool:
        """Whether a worker's process runs (a frozen one does)."""
        ref = self.state.ref(worker)
        return ref is not None and processes.alive(ref)

    def metrics(self, worker: str) -> str:
        """Return a worker's page of metrics.

        Raises:
            OSError: it does not answer.
        """
        part = self.part(worker)
        if isinstance(part, RouterSpec) and part.metrics_port is not None:
            return pages.get(f"http://{part.host}:{part.metrics_port}/metrics")
        return pages.get(f"{self.url(worker)}/metrics")

    def pids(self) -> set[int]:
        """Return every live process of the deployment."""
        return processes.with_mark(self.state.mark)

    def kill(self, worker: str) -> None:
        """End a worker at once, as a crash would."""
        processes.kill(self._ref(worker))

    def stop(self, worker: str, grace_s: float = 15.0) -> bool:
        """Ask a worker to end and insist after `grace_s` seconds; return whether it ended by itself."""
        ref = self.state.ref(worker)
        return True if ref is None else processes.stop(ref, grace_s=grace_s)

    def freeze(self, worker: str) -> None:
        """Stop a worker where it is (SIGSTOP)."""
        processes.send(self._ref(worker), signal.SIGSTOP)

    def thaw(self, worker: str) -> None:
        """Let a frozen worker go on."""
        processes.send(self._ref(worker), signal.SIGCONT)

    def start(
        self,
        worker: str,
        *,
        same_identity: bool = False,
        overrides: Mapping[str, str | None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start a worker's process; `wait_ready` says when it serves.

        A restarted engine gets an engine id of its own. With `same_identity` it keeps the last one: decode then goes on
        using what it knew of the dead prefill, and its pulls fail.

        Args:
            worker: its id.
            same_identity: keep the KV engine id of the last start.
            overrides: options of its command line by name without dashes; None leaves the option out.
            env: more of its environment.

        Raises:
            DeploymentError: it runs already, or cannot be started.
        """
        if self.alive(worker):
            raise DeploymentError(f"{worker} runs already", where=self.spec.name, hint="stop or kill it first")
        part, last = self.part(worker), self.state.processes.get(worker)
        starts = last.starts if last is not None else 0
        engine_id = None
        prefix: list[str] = []
        environment = dict(os.environ)
        if isinstance(part, EngineSpec):
            engine_id = part.engine_id if not starts else _next_id(part, starts)
            if same_identity and last is not None and last.engine_id is not None:
                engine_id = last.engine_id
            part = replace(part, engine_id=engine_id)
            if self.spec.store is not None:
                store.write_config(self.spec, part, self.home.store)
            command, environment = self.planned(part)
        elif isinstance(part, StoreSpec):
            command = store.command(self.spec, self.python.parent)
        elif isinstance(part, ServiceSpec):
            command = services.command(self.spec, self.home, part)
        else:
            command = routers.command(self.spec, self.home, self.python)
        named = part.namespace if isinstance(part, (EngineSpec, StoreSpec)) else None
        if named is not None and (network := self.network) is not None:
            prefix = network.enter(part.id)
        command = with_overrides(command, overrides or {})
        ref = processes.spawn(
            [*prefix, *command],
            log=self.log(worker),
            mark=self.state.mark,
            env={**environment, **(env or {})},
            cwd=self.home.path,
        )
        entry = ProcessState(
            pid=ref.pid,
            start_ticks=ref.start_ticks,
            started_at_s=_CLOCK.now(),
            command=(*prefix, *command),
            starts=starts + 1,
            engine_id=engine_id,
        )
        self.state = self.state.with_process(worker, entry)
        self.home.write(self.state)

    def serves(self, worker: str) -> str | None:
        """Return None when a worker serves, else what is not there yet."""
        return self.serving(worker)[1]

    def serving(self, worker: str) -> tuple[bool | None, str | None]:
        """Return whether a worker serves, and what is not there yet; None for an engine that listens and is late to answer."""
        part = self.part(worker)
        if not self.alive(worker):
            return False, "its process has ended"
        if isinstance(part, EngineSpec):
            return self._engine_serves(part)
        if isinstance(part, StoreSpec):
            why = self._store_lacks(part)
        elif isinstance(part, RouterSpec):
            why = routers.not_ready(part)
        else:
            why = services.not_ready(part)
        return why is None, why

    def _store_lacks(self, part: StoreSpec) -> str | None:
        if not _answers(f"{self.url(part.id)}/metrics"):
            return "its page of metrics does not answer"
        if self.spec.profile is Profile.SIM:
            return None
        # Its pages answer, and call it ready, a tenth of a second before it takes the port or ends because another has it.
        ref = self.state.ref(part.id)
        ports = {port for _, port in sockets.listeners(processes.members([ref] if ref is not None else []))}
        return None if part.rpc_port in ports else f"it does not listen on port {part.rpc_port} yet"

    def _engine_serves(self, part: EngineSpec) -> tuple[bool | None, str | None]:
        try:
            served = json.loads(pages.get(f"{part.url}/v1/models", 2.0))["data"]
            if not any(entry["id"] == self.spec.served_model for entry in served):
                return False, f"it serves another model than {self.spec.served_model}"
            page = pages.get(f"{part.url}/metrics", 5.0)
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, pages.TooLargeError):
                return None, str(error)
            # One that is busy is late, and still has the requests it was given.
            late = isinstance(error, OSError) and not isinstance(error, requests.HTTPError) and _listens(part)
            return (None, "it listens and is late to answer") if late else (False, _LOADS)
        return (True, None) if "nixl" in page else (False, "its page of metrics has no KV connector yet")

    def wait_ready(self, worker: str, timeout_s: float = READY_TIMEOUT_S) -> float:
        """Wait until a worker serves; return the seconds since its start.

        Raises:
            DeploymentError: it ended, or did not serve in time.
        """
        started = self.state.processes[worker].started_at_s
        end = _CLOCK.monotonic() + timeout_s
        while (why := self.serves(worker)) is not None:
            if not self.alive(worker) or _CLOCK.monotonic() > end:
                raise DeploymentError(
                    f"{worker} does not serve",
                    where=str(self.log(worker)),
                    why=why,
                    hint="read the end of that file",
                )
            time.sleep(0.5)
        return _CLOCK.now() - started

    def planned(self, part: EngineSpec) -> tuple[list[str], dict[str, str]]:
        """Return the command line and environment an engine is started with."""
        laid = plugin.install(self.home.path / "plugin") if self.spec.plugin else None
        shared = engine_env.cache() if self.spec.profile is Profile.CPU else None
        paths = engines.Paths(self.home.logs, shared or self.home.cache / part.id, self.home.store, laid)
        environment = engines.environment(self.spec, part, os.environ, paths)
        return engines.command(self.spec, part, self.python), environment

    def _ref(self, worker: str) -> processes.Ref:
        self.part(worker)
        ref = self.state.ref(worker)
        if ref is None or not processes.alive(ref):
            raise DeploymentError(f"{worker} does not run", where=self.spec.name, hint="`pdops status` shows what does")
        return ref


def with_overrides(command: list[str], overrides: Mapping[str, str | None]) -> list[str]:
    """Return a command line with options set, replaced, or (None) left out."""
    kept = [word for word in command if word.removeprefix("--").partition("=")[0] not in overrides]
    return [*kept, *(f"--{name}={value}" for name, value in overrides.items() if value is not None)]


def _next_id(part: EngineSpec, starts: int) -> str:
    """Return the KV engine id of a restart: its worker's id and one number, which never was one's of this worker before."""
    first = part.engine_id.removeprefix(f"{part.id}.")
    return f"{part.id}.{(int(first) if first.isdecimal() else 0) + starts}"


def roles(spec: DeploymentSpec) -> dict[str, Role]:
    """Return the role of every part by worker id."""
    found = {e.id: e.role for e in spec.engines}
    if spec.router is not None:
        found[spec.router.id] = Role.ROUTER
    if spec.store is not None:
        found[spec.store.id] = Role.KVSTORE
    return found


def _answers(url: str) -> bool:
    with contextlib.suppress(OSError):
        pages.get(url, 2.0)
        return True
    return False


def _listens(part: EngineSpec) -> bool:
    """Whether connections are taken; what cannot be told counts as taken."""
    try:
        socket.create_connection((part.host, part.port), 1.0).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True
