"""A deployment as a backend: engines come and go, are restarted and drained by whoever keeps them running."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from pdops.actuate.backend import Capabilities, Effect, Fence, Params, Seen, State, Value
from pdops.actuate.router_admin import ACTIONS as ROUTER_ACTIONS
from pdops.actuate.router_admin import SETTINGS, RouterAdmin, routed_values, set_of
from pdops.clock import Clock
from pdops.errors import ActionError, FencedError
from pdops.model.frame import Probe

LEASE_MARGIN = 1.5
"""A lease is waited for this many times over: clocks and heartbeats of the two sides differ."""
DRAIN_S = 600.0
"""The longest to wait for a worker to be empty, in seconds; then nothing is stopped and the step fails."""
_POLL_S = 1.0
_LOOKS = 3
"""Looks in a row at which a worker must be empty: a request may be between two of them."""
_OWN = (
    "pool.scale-out",
    "pool.scale-in",
    "worker.start",
    "worker.stop",
    "worker.restart",
    "worker.drain",
    "pair.canary",
)
_STORE = ("store.start", "store.stop", "store.restart", "store.bypass", "store.use")
_ENGINES = ("prefill", "decode")
Process = Literal["running", "frozen", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One program of a deployment; what is None is not known, and `why` says why.

    `bypassed` is about a store: whether engines work without it, where that can be chosen; `bypass_why` says why that is not
    known where it can.
    """

    id: str
    role: str
    process: Process | None
    starts: int | None
    serving: bool | None
    inflight: int | None
    why: str = ""
    bypassed: bool | None = None
    bypass_why: str = ""


class Deployment(Protocol):
    """What the backend needs of a deployment; `pdops.reference` and `pdops.actuate.units` implement it."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def lease_s(self) -> float:
        """How long prefill keeps KV that nobody pulled, in seconds."""
        ...

    def refusals(self) -> Mapping[str, str]:
        """Return actions that this deployment cannot do, and why."""
        ...

    def parts(self) -> tuple[Part, ...]:
        """Return its engines, and its router and store where it has them."""
        ...

    def room(self, role: str) -> int | None:
        """Return how many more engines of a role fit, None when that is not known."""
        ...

    def url(self, worker: str) -> str:
        """Return where a worker serves."""
        ...

    def add(self, role: str, worker: str) -> None:
        """Make room for one more engine: ports and a place in what is written down; nothing is started."""
        ...

    def start(self, worker: str) -> None:
        """Start a part unless it runs; adopt what was started by a process that could not write it down any more."""
        ...

    def stop(self, worker: str) -> None:
        """Stop a part unless it is stopped."""
        ...

    def forget(self, worker: str) -> None:
        """Take a stopped engine out of what is written down."""
        ...

    def bypass(self, *, bypassed: bool) -> str:
        """Let engines work without the store from now on, or with it again; return what that came to."""
        ...

    def canary(self, worker: str) -> tuple[Probe, ...]:
        """Send a request with a known answer through every pair of a worker."""
        ...

    def alone(self, fence: int) -> AbstractContextManager[bool]:
        """Keep other commands away; False when a higher fence has been here.

        Raises:
            BusyError: another command is at it.
        """
        ...


class LocalBackend:
    """Changes a deployment.

    Args:
        deployment: what is changed.
        router: the admin API in front of it, None without one.
        clock: where time comes from.
        sleep: waits seconds.
        no_router: why there is no `router`.
    """

    def __init__(
        self,
        deployment: Deployment,
        router: RouterAdmin | None,
        clock: Clock,
        sleep: Callable[[float], None],
        *,
        no_router: str = "the deployment has no router",
    ) -> None:
        self._deployment, self._router, self._clock, self._sleep = deployment, router, clock, sleep
        self._no_router = no_router

    @property
    def name(self) -> str:
        """What people call it."""
        return self._deployment.name

    def capabilities(self) -> Capabilities:
        """Return what this deployment and its router can do."""
        missing = dict(self._deployment.refusals())
        offered = {*_OWN}
        if any(p.role == "kvstore" for p in self._deployment.parts()):
            offered |= {*_STORE}
        else:
            missing |= dict.fromkeys(_STORE, "the deployment has no KV store")
        if self._router is None:
            missing |= dict.fromkeys((*ROUTER_ACTIONS, *SETTINGS), self._no_router)
        else:
            routes = self._router.capabilities()
            offered |= routes.offered
            missing |= routes.missing
        return Capabilities(frozenset(offered - missing.keys()), missing)

    def observe(self) -> State:
        """Return what runs, what serves, and what the router knows."""
        parts, source = self._deployment.parts(), self._deployment.name
        values: dict[str, Seen] = {}
        for part in parts:
            here = f"{'store' if part.role == 'kvstore' else 'worker'}/{part.id}"
            values[f"{here}/process"] = Seen(part.process, source, part.why if part.process is None else "")
            values[f"{here}/starts"] = Seen(
                part.starts, source, "starts cannot be counted" if part.starts is None else ""
            )
            values[f"{here}/serving"] = Seen(part.serving, source, part.why)
            if part.role != "kvstore":
                values[f"{here}/role"] = Seen(part.role, source)
                values[f"{here}/inflight"] = Seen(part.inflight, source, part.why)
            elif part.bypassed is not None or part.bypass_why:
                values[f"{here}/bypassed"] = Seen(part.bypassed, source, part.bypass_why)
        for role in _ENGINES:
            values[f"pool/{role}/replicas"] = _size(parts, role, source)
            values[f"pool/{role}/owner"] = Seen("", source)
            values[f"pool/{role}/rollout"] = Seen(False, source)
            room = self._deployment.room(role)
            values[f"pool/{role}/free"] = Seen(
                room, source, "" if room is not None else "how many more fit is not known"
            )
        if self._router is not None:
            values |= routed_values(self._router, {p.id: p.role for p in parts if p.role in _ENGINES})
        return State(at_s=self._clock.now(), values=values)

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:
        """Do one action. See `Backend.apply`."""
        if (refusal := self.capabilities().refusal(action)) is not None:
            raise ActionError(f"{action} is not offered", where=self.name, why=refusal, hint="plan something else")
        with self._deployment.alone(fence.number) as first:
            if not first:
                raise FencedError("another run has been here since", where=self.name, hint="see `pdops runbook log`")
            return self._do(action, params)

    def _do(self, action: str, params: Params) -> Effect:
        if action in SETTINGS:
            assert self._router is not None, "offered only with a router"
            return set_of(self._router, action, params)
        worker = _text(params, "store" if action.startswith("store.") else "worker")
        if action == "pool.scale-out":
            return self._scale_out(_text(params, "role"), worker, params.get("replicas"))
        if action == "pool.scale-in":
            return self._scale_in(_text(params, "role"), worker, params.get("replicas"))
        if action in ROUTER_ACTIONS:
            assert self._router is not None, "offered only with a router"
            part = self._part(worker)
            return self._router.set(
                action, worker, part.role if part else "", self._deployment.url(worker) if part else ""
            )
        part = self._part(worker)
        if part is None:
            raise ActionError("no such part", where=worker, hint="`pdops status` lists them")
        if action == "pair.canary":
            probes = self._deployment.canary(worker)
            good = sum(p.ok is True for p in probes)
            return Effect(changed=False, detail=f"{good} of {len(probes)} pairs answered right", probes=probes)
        if action == "worker.drain":
            # Emptiness over a whole lease is verified by who asked; here it only must get nothing new.
            return Effect(changed=False, detail=f"{part.inflight if part.inflight is not None else '?'} in flight")
        if action in ("store.bypass", "store.use"):
            wanted = action == "store.bypass"
            return Effect(changed=part.bypassed is not wanted, detail=self._deployment.bypass(bypassed=wanted))
        if action in ("worker.start", "store.start"):
            self._deployment.start(worker)
            return Effect(changed=part.process == "stopped", detail=f"{worker} runs")
        if action in ("worker.stop", "store.stop"):
            self._deployment.stop(worker)
            return Effect(changed=part.process != "stopped", detail=f"{worker} is stopped")
        return self._restart(part, params.get("starts"))

    def _restart(self, part: Part, starts: Value) -> Effect:
        if part.starts == starts:
            return Effect(changed=False, detail=f"{part.id} was restarted already")
        if part.starts is None or part.starts + 1 != starts:
            raise ActionError(
                "somebody else restarted it",
                where=part.id,
                why=f"{part.starts} starts, to be {starts}",
                hint="make a new plan",
            )
        self._deployment.stop(part.id)
        self._deployment.start(part.id)
        return Effect(changed=True, detail=f"{part.id} was started {starts} times")

    def _scale_out(self, role: str, worker: str, replicas: Value) -> Effect:
        there = self._count(role)
        if there == replicas:
            return Effect(changed=False, detail=f"{there} {role} run")
        if there + 1 != replicas:
            raise ActionError(
                "the pool has another size by now", where=role, why=f"{there}, to be {replicas}", hint="make a new plan"
            )
        self._deployment.add(role, worker)
        self._deployment.start(worker)
        return Effect(changed=True, detail=f"{worker} was started")

    def _scale_in(self, role: str, worker: str, replicas: Value) -> Effect:
        part, there = self._part(worker), self._count(role)
        if part is None:
            return Effect(changed=False, detail=f"{worker} is gone")
        if part.process != "stopped":
            if not isinstance(replicas, int) or there - 1 != replicas:
                raise ActionError(
                    "the pool has another size by now",
                    where=role,
                    why=f"{there}, to be {replicas}",
                    hint="make a new plan",
                )
            self._empty(part)
            self._deployment.stop(worker)
        if self._router is not None and "router.remove" in self._router.capabilities().offered:
            self._router.set("router.remove", worker, role, "")
        self._deployment.forget(worker)
        return Effect(changed=True, detail=f"{worker} is gone")

    def _empty(self, part: Part) -> None:
        """Keep new requests away, wait for those there, and for KV that may still be pulled.

        Raises:
            ActionError: it does not become empty in time, or nobody can tell; it goes on as before then.
        """
        routed = False
        if self._router is not None:
            known = self._router.workers().get(part.id)
            routed = known is not None
            if routed and "worker.cordon" in self._router.capabilities().offered:
                self._router.set("worker.cordon", part.id, part.role, "")
        end, good = self._clock.monotonic() + DRAIN_S, 0
        while good < _LOOKS:
            now = self._part(part.id)
            if now is None or now.process == "stopped":
                return
            # One that never served and that nobody routes to holds nothing.
            idle = now.inflight == 0 or (now.serving is False and not routed)
            good = good + 1 if idle else 0
            if not idle and self._clock.monotonic() > end:
                raise ActionError(
                    f"{part.id} is not empty",
                    where=self.name,
                    why=f"{now.inflight} in flight {now.why}",
                    hint="try again later",
                )
            self._sleep(_POLL_S)
        # Also of one that the router was told to forget first: what it computed until then may still be pulled.
        if part.role == "prefill" and (routed or part.serving is not False):
            self._sleep(self._deployment.lease_s * LEASE_MARGIN)

    def _part(self, worker: str) -> Part | None:
        return next((p for p in self._deployment.parts() if p.id == worker), None)

    def _count(self, role: str) -> int:
        return sum(p.role == role and p.process != "stopped" for p in self._deployment.parts())


def _size(parts: tuple[Part, ...], role: str, source: str) -> Seen:
    members = [p for p in parts if p.role == role]
    unclear = [p for p in members if p.process is None]
    if unclear:
        return Seen(None, source, f"whether {unclear[0].id} runs is not known: {unclear[0].why}")
    return Seen(sum(p.process != "stopped" for p in members), source)


def _text(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise ActionError("a parameter is missing", where=name, hint="make a new plan")
    return value
