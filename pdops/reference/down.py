"""Take a deployment down in drain order: nothing new, then prefill, then decode, then the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.errors import DeploymentError
from pdops.reference import pages, store
from pdops.reference.running import Running
from pdops.reference.spec import Profile
from pdops.reference.state import Home
from pdops.sequence.run import Effect, Outcome, Progress, Skip, run
from pdops.sequence.stages import Order, order

SCHEMA = "pdops/down/v1"
_CLOCK = WallClock()
_WAITING = ("vllm:num_requests_waiting",)
ROUTED = ("pdops_router_inflight_requests",)
RUNNING = ("vllm:num_requests_running", "vllm:num_requests_waiting")


@dataclass(frozen=True, slots=True)
class Lost:
    """What going down now would cost: requests in flight by worker, None where that cannot be read."""

    requests: Mapping[str, int | None]

    @property
    def known(self) -> int:
        """Requests that are known to be lost; those in the router are the same ones the engines count."""
        return max((n for n in self.requests.values() if n is not None), default=0)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Workers that do not tell."""
        return tuple(w for w, n in self.requests.items() if n is None)

    def __str__(self) -> str:
        parts = [f"{n} in {worker}" for worker, n in self.requests.items() if n]
        if self.unknown:
            parts.append(f"unknown in {', '.join(self.unknown)}")
        return ", ".join(parts) or "none"


def document(lost: Lost | None) -> dict[str, object]:
    """Return the published form: requests by worker, null where that is not known; null as a whole when nobody counted."""
    return {"schema": SCHEMA, "lost": dict(lost.requests) if lost is not None else None}


def in_flight(running: Running) -> Lost:
    """Return how many requests are in each part that runs; those of a simulation are nobody's."""
    found: dict[str, int | None] = {}
    spec = running.spec
    if spec.profile is Profile.SIM:
        return Lost(found)
    if spec.router is not None and spec.router.kind == "pdops" and running.alive(spec.router.id):
        found[spec.router.id] = _count(running, spec.router.id, ROUTED)
    for engine in spec.engines:
        if running.alive(engine.id):
            found[engine.id] = _count(running, engine.id, RUNNING)
    return Lost(found)


def down(
    home: Home,
    *,
    deadline_s: float,
    force: bool,
    say: Callable[[str], None],
    show: Callable[[tuple[Progress, ...]], None],
) -> Lost | None:
    """Take it down; return what was lost because the deadline came first, None when that was not looked at.

    Args:
        home: its folder.
        deadline_s: the longest to wait for requests that run, in seconds.
        force: stop whatever carries the deployment's mark at once.
        say: takes lines of progress.
        show: takes the stages with every change.

    Raises:
        DeploymentError: nothing is there, or something of ours cannot be stopped.
    """
    if not home.path.exists():
        raise DeploymentError("no deployment is here", where=str(home.path), hint="`pdops up` starts one")
    lost = None
    with home.locked("take the deployment down"):
        state = None
        try:
            state = home.read()
        except DeploymentError:
            if not force:
                raise
        if state is None:
            left = processes.stop_marked(home.mark())
            say(f"stopped {left} processes" if left else "nothing was running")
        else:
            running = Running(home, state)
            running.state = replace(state, phase="stopping")
            home.write(running.state)
            if state.spec.profile is Profile.SIM:
                lost = Lost({})
            elif not force and running.pids():
                lost = _drain(running, deadline_s, show)
            left = processes.stop_marked(home.mark(), state.refs())
            if left and not force and state.spec.profile is not Profile.SIM:
                say(f"stopped {left} processes that had not ended by themselves")
            # What is written down is kept, so that it can be tried again.
            if stay := _alive(running):
                raise DeploymentError(
                    f"{', '.join(stay)} cannot be ended",
                    where=str(home.path),
                    why="it runs on after SIGKILL",
                    hint="`pdops down --force` tries again",
                )
            if (network := running.network) is not None:
                network.down()
        home.clear()
    return lost


def _alive(running: Running) -> list[str]:
    """Return what still runs, a process that stands for several workers once."""
    names: dict[int, list[str]] = {}
    for name, process in running.state.processes.items():
        if running.alive(name):
            names.setdefault(process.pid, []).append(name)
    return [
        n[0] if len(n) == 1 else f"process {pid} ({n[0]} and {len(n) - 1} more workers)" for pid, n in names.items()
    ]


def _drain(running: Running, deadline_s: float, show: Callable[[tuple[Progress, ...]], None]) -> Lost:
    end = _CLOCK.monotonic() + deadline_s
    stages = order("drain")
    bounded = Order(
        stages.name,
        tuple(replace(s, budget_s=max(0.5, min(s.budget_s, deadline_s))) if _waits(s.id) else s for s in stages.stages),
    )
    given_up: list[Lost] = []

    def idle(workers: tuple[str, ...], families: tuple[str, ...], peers: tuple[str, ...] = ()) -> Callable[[], Outcome]:
        def look() -> Outcome:
            counts = {w: _count(running, w, families) for w in workers if running.alive(w)}
            counts |= {w: _count(running, w, _WAITING) for w in peers if running.alive(w)}
            busy = {w: n for w, n in counts.items() if n != 0}
            if not busy:
                return Outcome(True, "idle")
            if _CLOCK.monotonic() > end:
                given_up.append(Lost(busy))
                return Outcome(False, f"given up with {Lost(busy)}", fatal=True)
            return Outcome(False, f"requests: {Lost(busy)}")

        return look

    spec = running.spec
    prefills, decodes = tuple(e.id for e in spec.prefills()), tuple(e.id for e in spec.decodes())
    router = (spec.router.id,) if spec.router is not None else ()
    ours = spec.router is not None and spec.router.kind == "pdops"
    effects: dict[str, Effect | Skip] = {
        "close": _Once(lambda: _close(running)) if ours else Skip("no router that can be closed"),
        "requests": _Once(look=idle(router, ROUTED)) if ours else Skip("no router"),
        # Requests that wait on decode still have their KV on prefill.
        "prefill-idle": _Once(look=idle(prefills, RUNNING, decodes)),
        "prefill": _Ended(running, prefills),
        "decode-idle": _Once(look=idle(decodes, RUNNING)),
        "decode": _Ended(running, decodes),
        "router": _Ended(running, router),
        "monitoring": _Ended(running, tuple(s.id for s in spec.services))
        if spec.services
        else Skip("nothing watches it"),
        "kv-store": _Ended(running, (spec.store.id, store.standin(spec.store)))
        if spec.store is not None
        else Skip("no KV store"),
    }
    run(bounded, effects, clock=_CLOCK, sleep=time.sleep, report=show)
    worst: dict[str, int | None] = {}
    for lost in given_up:
        worst |= dict(lost.requests)
    return Lost(worst)


def _waits(stage: str) -> bool:
    return stage == "requests" or stage.endswith("-idle")


class _Once:
    """Do something once, then look."""

    def __init__(self, act: Callable[[], None] | None = None, look: Callable[[], Outcome] | None = None) -> None:
        self._act, self._look = act, look

    def begin(self) -> None:
        """Do it."""
        if self._act is not None:
            self._act()

    def probe(self) -> Outcome:
        """Look."""
        return self._look() if self._look is not None else Outcome(True)


class _Ended:
    """Workers that are told to end."""

    def __init__(self, running: Running, workers: tuple[str, ...]) -> None:
        self._running, self._workers = running, workers

    def begin(self) -> None:
        """Tell them all before any is waited for."""
        for worker in self._workers:
            ref = self._running.state.ref(worker)
            if ref is not None and processes.alive(ref):
                for number in (processes.CONT, processes.TERM):
                    processes.send(ref, number)

    def probe(self) -> Outcome:
        """Look who is left, and insist once it has had its time."""
        for worker in self._workers:
            if self._running.alive(worker):
                self._running.stop(worker, grace_s=15.0)
        left = [w for w in self._workers if self._running.alive(w)]
        if left:
            return Outcome(False, f"{', '.join(left)} cannot be ended")
        return Outcome(True, f"{len(self._workers)} ended")


def _close(running: Running) -> None:
    """Cordon every prefill worker: requests in flight go on, new ones are turned away."""
    for engine in running.spec.prefills():
        try:
            url = f"{running.router_url}/admin/workers/{engine.id}/cordon"
            pages.post(url, {}, 5.0, running.admin_token_file)
        except (OSError, ValueError) as error:
            raise DeploymentError(
                "the router cannot be closed",
                where=running.router_url,
                why=str(error),
                hint="`pdops down --force` stops everything without draining",
            ) from error


def _count(running: Running, worker: str, families: tuple[str, ...]) -> int | None:
    try:
        page = running.metrics(worker)
        counts = [pages.total(page, family) for family in families]
    except (OSError, ValueError):
        return None
    return None if any(c is None for c in counts) else int(sum(c for c in counts if c is not None))
