"""What each stage of the cold start does, and how it is seen to have worked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pdops.actuate import processes
from pdops.errors import PdopsError
from pdops.reference import before, engines, logs, looks, services, store_bypass, store_check
from pdops.reference.running import Running
from pdops.reference.spec import EngineSpec, Profile
from pdops.sequence.run import Effect, Outcome, Skip

AT_ONCE = 2
"""Engines that load at the same time; more would wait for the same disk and cores."""
_RAMP = (1, 2, 4)
"""Requests at once in the steps of the ramp."""
_MOST_LOG = 4 << 20
_HERE = Path(__file__).parent


def effects(running: Running) -> Mapping[str, Effect | Skip]:
    """Return what there is to do for every stage of the cold start."""
    spec = running.spec
    routed = spec.router is not None
    nothing = Skip("no router was asked for")
    return {
        "preflight": Ask(lambda: before.look(running)),
        "coordination": Skip("NIXL peers meet through their side channels; nothing else is needed"),
        "kv-store": Store(running) if spec.store is not None else Skip("no KV store was asked for"),
        "transport": Ask(lambda: _transport(running))
        if spec.profile is Profile.CPU
        else Skip("the pair canary is the first transfer on GPUs"),
        "prefill": Engines(running, spec.prefills()),
        "decode": Engines(running, spec.decodes()),
        "pair-canary": Ask(lambda: looks.pairs(running)),
        "router": Router(running) if routed else nothing,
        "canary": Ask(lambda: looks.through_router(running)) if routed else nothing,
        "ramp": Ask(lambda: looks.ramp(running, _RAMP)) if routed else nothing,
        "monitoring": Services(running) if spec.services else Skip("nothing was asked for"),
    }


class Ask:
    """A stage that only looks; one look at a time, so that the screen stays alive meanwhile.

    Args:
        look: what is asked; it may take long.
    """

    def __init__(self, look: Callable[[], Outcome]) -> None:
        self._look = look
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pdops-stage")
        self._asked: Future[Outcome] | None = None

    def begin(self) -> None:
        """Start the first look."""
        self._asked = self._pool.submit(self._look)

    def probe(self) -> Outcome:
        """Return what the last look said, and start another if it was not good."""
        if self._asked is None or not self._asked.done():
            return Outcome(False, "looking")
        try:
            outcome = self._asked.result()
        except (PdopsError, OSError) as error:
            outcome = Outcome(False, str(error)[:300])
        if not outcome.ok and not outcome.fatal:
            self._asked = self._pool.submit(self._look)
        return outcome


class Engines:
    """All engines of a role, a few loading at a time."""

    def __init__(self, running: Running, specs: Iterable[EngineSpec]) -> None:
        self._running, self._ids = running, tuple(e.id for e in specs)
        self._logged: dict[str, int] = {}

    def begin(self) -> None:
        """Start the first ones; those that run already are kept."""
        self._more({})

    def probe(self) -> Outcome:
        """Look at each, start more when some have come up."""
        waits: dict[str, str] = {}
        for worker in self._ids:
            if worker not in self._running.state.processes or (
                worker not in self._logged and not self._running.alive(worker)
            ):
                waits[worker] = "waits for its turn"
            elif not self._running.alive(worker):
                said = logs.why(self._running.log(worker), self._logged.get(worker, 0))
                why = f"{worker} ended while starting: {said or 'it says nothing'} (log: {self._running.log(worker)})"
                return Outcome(False, why, fatal=True)
            elif (why_not := self._running.serves(worker)) is not None:
                if _port_taken(self._running, worker, self._logged.get(worker, 0)):
                    why = f"{worker}: one of its ports was taken meanwhile (log: {self._running.log(worker)})"
                    return Outcome(False, f"{why}; start again", fatal=True)
                waits[worker] = why_not
        self._more(waits)
        if waits:
            first, what = next(iter(waits.items()))
            up = len(self._ids) - len(waits)
            return Outcome(False, f"{up} of {len(self._ids)} serve; {first}: {what}")
        return Outcome(True, f"{len(self._ids)} of {len(self._ids)} serve")

    def _more(self, waits: Mapping[str, str]) -> None:
        loading = sum(1 for w in waits if w in self._logged or self._running.alive(w))
        for worker in self._ids:
            if self._running.alive(worker):
                self._logged.setdefault(worker, 0)
                continue
            if loading >= AT_ONCE or worker in self._logged:
                continue
            log = self._running.log(worker)
            self._logged[worker] = log.stat().st_size if log.exists() else 0
            self._running.start(worker)
            loading += 1


class Router:
    """The router in front."""

    def __init__(self, running: Running) -> None:
        assert running.spec.router is not None
        self._running, self._id = running, running.spec.router.id

    def begin(self) -> None:
        """Start it unless it runs."""
        if not self._running.alive(self._id):
            self._running.start(self._id)

    def probe(self) -> Outcome:
        """Ask whether it has workers of each role."""
        if not self._running.alive(self._id):
            said = logs.why(self._running.log(self._id)) or (logs.tail(self._running.log(self._id)) or ["nothing"])[-1]
            return Outcome(False, f"the router ended: {said[:300]} (log: {self._running.log(self._id)})", fatal=True)
        why = self._running.serves(self._id)
        return Outcome(why is None, why or f"ready at {self._running.router_url}")


class Store:
    """The KV store's master."""

    def __init__(self, running: Running) -> None:
        assert running.spec.store is not None
        self._running, self._id = running, running.spec.store.id

    def begin(self) -> None:
        """Start it unless it runs."""
        if not self._running.alive(self._id):
            self._running.start(self._id)
        if self._running.network is not None:
            store_bypass.stand_by(self._running)

    def probe(self) -> Outcome:
        """Put an object, read it back, delete it."""
        if not self._running.alive(self._id):
            said = (logs.tail(self._running.log(self._id)) or ["it says nothing"])[-1]
            return Outcome(False, f"the KV store ended: {said[:300]}", fatal=True)
        if (why := self._running.serves(self._id)) is not None:
            return Outcome(False, why)
        return store_check.probe(self._running)


class Services:
    """A stage of the start: all of them, in order."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def begin(self) -> None:
        """Start those that do not run."""
        for service in self._running.spec.services:
            if not self._running.alive(service.id):
                self._running.start(service.id)

    def probe(self) -> Outcome:
        """Ask each whether it is ready."""
        for service in self._running.spec.services:
            if not self._running.alive(service.id):
                said = (logs.tail(self._running.log(service.id)) or ["it says nothing"])[-1]
                return Outcome(False, f"{service.id} ended: {said[:300]}", fatal=True)
            why = services.not_ready(service)
            if why is not None:
                return Outcome(False, f"{service.id}: {why}")
        return Outcome(True, ", ".join(f"{s.id} at {s.url}" for s in self._running.spec.services))


def _port_taken(running: Running, worker: str, since: int) -> bool:
    """Whether an engine says that it could not listen: it then waits for ever, alive."""
    try:
        with running.log(worker).open("rb") as file:
            file.seek(since)
            return b"Address already in use" in file.read(_MOST_LOG)
    except OSError:
        return False


def _transport(running: Running) -> Outcome:
    """Move one buffer between two agents of a throw-away process, with the settings of the first prefill engine."""
    engine = running.spec.prefills()[0]
    paths = engines.Paths(running.home.logs, running.home.cache)
    env = engines.environment(running.spec, engine, {"PATH": "/usr/bin:/bin"}, paths)
    prefix = running.network.enter(engine.id) if running.network is not None else []
    command = [*prefix, str(running.python), str(_HERE / "transport_check.py")]
    try:
        done = subprocess.run(
            command,
            env={**env, processes.MARK: running.state.mark},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        found = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (subprocess.TimeoutExpired, ValueError, OSError) as error:
        return Outcome(False, f"the transfer did not report: {str(error)[:200]}")
    if not found["ok"]:
        return Outcome(False, f"the transfer ended as {found['state']}", fatal=True)
    return Outcome(True, f"{found['bytes'] >> 20} MiB in {found['seconds'] * 1e3:.0f} ms ({env['UCX_TLS']})")
