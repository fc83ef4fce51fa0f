"""The reference deployment as runbooks change it: one engine more, one less, starts, stops and canaries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pdops.actuate import processes
from pdops.actuate.local import Part, Process
from pdops.clock import WallClock
from pdops.errors import ActionError, PdopsError
from pdops.model.cluster import Role
from pdops.model.frame import Probe
from pdops.probe.of_worker import of_worker
from pdops.reference import before, pages, store_bypass, store_check
from pdops.reference.down import ROUTED, RUNNING
from pdops.reference.profiles import MOST_ENGINES, free_ports
from pdops.reference.running import Running, roles
from pdops.reference.spec import EngineSpec, Profile
from pdops.reference.state import Home, ProcessState
from pdops.reference.up import write_inventory
from pdops.sources.inventory import load_inventory

_CLOCK = WallClock()


class Operated:
    """A deployment that is up, read anew for every look: other commands change it too.

    Args:
        home: its folder.
    """

    def __init__(self, home: Home) -> None:
        self._home = home

    @property
    def name(self) -> str:
        """Its name."""
        return f"deployment {self._open().spec.name}"

    @property
    def lease_s(self) -> float:
        """How long prefill keeps KV that nobody pulled, in seconds."""
        return float(self._open().spec.lease_s)

    def refusals(self) -> Mapping[str, str]:
        """Return what cannot be done here."""
        running = self._open()
        missing: dict[str, str] = {}
        if running.spec.store is not None and running.network is None and store_bypass.users(running):
            why = "engines that run with a store can be kept from it only where the store has a network namespace"
            missing |= dict.fromkeys(("store.bypass", "store.use"), why)
        missing |= dict.fromkeys(("autoscaler.pause", "autoscaler.resume"), "no autoscaler sets the size of its pools")
        missing["worker.reconfigure"] = "its engines are started with the options they came up with"
        if running.spec.profile is Profile.SIM:
            why = "its workers are simulated; they cannot be started or stopped one by one"
            every = ("pool.scale-out", "pool.scale-in", "worker.start", "worker.stop", "worker.restart", "worker.drain",
                     "pair.canary", "store.start", "store.stop", "store.restart", "store.bypass", "store.use")  # fmt: skip
            return missing | dict.fromkeys(every, why)
        if running.spec.profile is Profile.GPU:
            missing["pool.scale-out"] = "which GPUs are free is for the person who starts it to say"
        elif running.network is not None:
            missing["pool.scale-out"] = "a network namespace cannot be added while the others run"
        return missing

    def parts(self) -> tuple[Part, ...]:
        """Return its engines, and its router and store where it has them."""
        running = self._open()
        return tuple(_part(running, worker, role.value) for worker, role in roles(running.spec).items())

    def room(self, role: str) -> int | None:  # noqa: ARG002  memory is what every role needs
        """Return how many more engines fit into this host's memory and what one deployment may have."""
        running = self._open()
        if "pool.scale-out" in self.refusals():
            return 0
        free = before.available_bytes()
        left = max(0, MOST_ENGINES - len(running.spec.engines))
        return None if free is None else min(left, max(0, free // before.ENGINE_BYTES))

    def url(self, worker: str) -> str:
        """Return where a worker serves."""
        return self._open().url(worker)

    def add(self, role: str, worker: str) -> None:
        """Write down one more engine like its peers, with ports of its own."""
        running = self._open()
        if any(e.id == worker for e in running.spec.engines):
            return
        peers = [e for e in running.spec.engines if e.role.value == role]
        if not peers:
            raise ActionError("the pool has no engine to follow", where=role, hint="start the deployment with one")
        port, side_port = free_ports(2)
        # A worker of this id may have been here before: peers cannot use what they knew of a dead engine for a new one.
        engine_id = f"{worker}.{int(_CLOCK.now() * 1000)}"
        fresh: EngineSpec = replace(
            peers[0], id=worker, role=Role(role), port=port, side_port=side_port, engine_id=engine_id
        )
        self._write(running, (*running.spec.engines, fresh))

    def start(self, worker: str) -> None:
        """Start a part unless it runs."""
        running = self._open()
        if running.alive(worker):
            return
        if not _adopted(running, worker):
            running.start(worker)
        store = running.spec.store
        if store is not None and worker == store.id and running.network is not None:
            store_bypass.stand_by(running)

    def stop(self, worker: str) -> None:
        """Stop a part, also one that was started and never written down."""
        running = self._open()
        if not running.alive(worker):
            _adopted(running, worker)
        running.stop(worker)
        if running.alive(worker):
            raise ActionError("it cannot be ended", where=worker, hint=f"read {running.log(worker)}")

    def forget(self, worker: str) -> None:
        """Take a stopped engine out of what is written down."""
        running = self._open()
        left = tuple(e for e in running.spec.engines if e.id != worker)
        if len(left) < len(running.spec.engines):
            running.state = replace(
                running.state, processes={k: v for k, v in running.state.processes.items() if k != worker}
            )
            self._write(running, left)

    def bypass(self, *, bypassed: bool) -> str:
        """Keep engines that run from the store and start others without it, or go back once an object goes through it."""
        running = self._open()
        store = running.spec.store
        assert store is not None, "offered only with a store"
        users = store_bypass.users(running)
        if users and bypassed:
            store_bypass.begin(running)
        elif running.network is not None and not bypassed:
            if users and not (seen := store_check.probe(running)).ok:
                raise ActionError("the store is not well", where=store.id, why=seen.detail, hint="restart it first")
            store_bypass.end(running)
        spec = replace(running.spec, store=replace(store, bypassed=bypassed))
        running.state = replace(running.state, spec=spec)
        self._home.write(running.state)
        if bypassed:
            return f"engines work without {store.id}"
        others = [e.id for e in spec.engines if running.alive(e.id) and e.id not in users]
        left = f"; {', '.join(others)} started without it and must be restarted to have it" if others else ""
        return f"engines work with {store.id}{left}"

    def canary(self, worker: str) -> tuple[Probe, ...]:
        """Send a request through every pair of a worker that other workers of the pair's other side serve."""
        return of_worker(load_inventory(self._home.inventory).cluster, worker, _CLOCK)

    @contextlib.contextmanager
    def alone(self, fence: int) -> Iterator[bool]:
        """Keep other commands away while one action is done."""
        file = self._home.path / "fence"
        with self._home.locked("change the deployment for a runbook"):
            highest = _number(file)
            if fence > highest:
                fresh = file.with_suffix(".new")
                fresh.write_text(f"{fence}\n", encoding="ascii")
                fresh.replace(file)
            yield fence >= highest

    def _open(self) -> Running:
        return Running.open(self._home)

    def _write(self, running: Running, engines: tuple[EngineSpec, ...]) -> None:
        running.state = replace(running.state, spec=replace(running.state.spec, engines=engines))
        self._home.write(running.state)
        write_inventory(self._home, running.spec)


def _part(running: Running, worker: str, role: str) -> Part:
    last = running.state.processes.get(worker)
    ref = running.state.ref(worker)
    process: Process = "stopped"
    if ref is not None and processes.alive(ref):
        process = "frozen" if processes.stopped(ref) else "running"
    why, inflight = "its process has ended", None
    serving: bool | None = False
    if process == "running":
        serving, said = running.serving(worker)
        why = said or ""
        if role != "kvstore":
            inflight = _inflight(running, worker, ROUTED if role == "router" else RUNNING)
    elif process == "frozen":
        why = "its process is stopped where it is"
    else:
        inflight = 0
    bypassed, unsure = _bypassed(running) if role == "kvstore" else (None, "")
    return Part(
        id=worker, role=role, process=process, starts=last.starts if last is not None else 0, serving=serving,
        inflight=inflight, why=why, bypassed=bypassed, bypass_why=unsure,
    )  # fmt: skip


def _bypassed(running: Running) -> tuple[bool | None, str]:
    if running.spec.store is None:
        return None, ""
    if running.network is not None and store_bypass.users(running):
        return store_bypass.active(running)
    return running.spec.store.bypassed, ""


def _inflight(running: Running, worker: str, families: Iterable[str]) -> int | None:
    try:
        page = running.metrics(worker)
        counts = [pages.total(page, family) for family in families]
    except (OSError, ValueError, PdopsError):
        return None
    return None if any(c is None for c in counts) else int(sum(c for c in counts if c is not None))


def _adopted(running: Running, worker: str) -> bool:
    """Write down a process of ours that its starter could not write down any more; return whether there was one."""
    known = {ref.pid for ref in running.state.refs() if processes.alive(ref)}
    found = [r for r in processes.started(running.log(worker), running.state.mark) if r.pid not in known]
    if not found:
        return False
    if len(found) > 1:
        pids = ", ".join(str(r.pid) for r in found)
        raise ActionError(
            "which process it is cannot be told",
            where=worker,
            why=f"{pids} write its log",
            hint="end those that are too many",
        )
    ref, last = found[0], running.state.processes.get(worker)
    entry = ProcessState(
        pid=ref.pid, start_ticks=ref.start_ticks, started_at_s=_CLOCK.now(), command=processes.words(ref.pid),
        starts=(last.starts if last is not None else 0) + 1,
        engine_id=next((e.engine_id for e in running.spec.engines if e.id == worker), None),
    )  # fmt: skip
    running.state = running.state.with_process(worker, entry)
    running.home.write(running.state)
    return True


def _number(file: Path) -> int:
    try:
        return int(file.read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise ActionError(
            "the deployment's fence cannot be read", where=str(file), why=str(error), hint="remove it"
        ) from error
