"""Every action a runbook may ask for: what it sets, how it is taken back, and what can go wrong.

An action sets one subject of a backend's state to one absolute value. Others may add theirs by the entry point group
`pdops.actions`, each naming an `ActionSpec`; the shipped ones cannot be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from pdops.actuate.backend import Params, Value
from pdops.errors import RunbookError
from pdops.runbook import action_params as p
from pdops.runbook.model import Risk
from pdops.runbook.world import World
from pdops.sources.validate import Strict

GROUP = "pdops.actions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What one action is to set: a subject and its value, and the parameters the backend gets.

    `subject` is None for an action that only looks or tells.
    """

    subject: str | None
    value: Value
    params: Params


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """One action.

    `takes_out` means that its worker serves nobody for a while. `inverse` names the action that takes it back; its own
    name means that the value before is set again. `once` actions are never repeated without looking first, as doing them
    twice does more than doing them once. Without `compares` the value before moves by itself and is not compared. `topology` ones change who is there, and only one run may do that at a time.
    """

    name: str
    title: str
    risk: Risk
    params: type[Strict]
    aim: Callable[[World, Any], Aim]
    inverse: str | None = None
    takes_out: bool = False
    once: bool = False
    topology: bool = False
    compares: bool = True
    needs_backend: bool = True


def _set(part: str, value: Value) -> Callable[[World, p.OfWorker], Aim]:
    def aim(_world: World, params: p.OfWorker) -> Aim:
        return Aim(subject=f"worker/{params.worker}/{part}", value=value, params={"worker": params.worker})

    return aim


def _store(part: str, value: Value) -> Callable[[World, p.OfStore], Aim]:
    def aim(_world: World, params: p.OfStore) -> Aim:
        return Aim(subject=f"store/{params.store}/{part}", value=value, params={"store": params.store})

    return aim


def _more(before: Value, step: int = 1) -> int | None:
    return before + step if isinstance(before, int) and not isinstance(before, bool) else None


def _restart(world: World, params: p.OfWorker) -> Aim:
    subject = f"worker/{params.worker}/starts"
    starts = _more(world.get(subject))
    return Aim(subject=subject, value=starts, params={"worker": params.worker, "starts": starts})


def _restart_store(world: World, params: p.OfStore) -> Aim:
    subject = f"store/{params.store}/starts"
    starts = _more(world.get(subject))
    return Aim(subject=subject, value=starts, params={"store": params.store, "starts": starts})


def _drain(_world: World, params: p.Drain) -> Aim:
    return Aim(subject=f"worker/{params.worker}/inflight", value=0, params=params.model_dump(mode="json"))


def _scale_out(world: World, params: p.Newcomer) -> Aim:
    return _resized(world, params.role.value, params.worker, +1)


def _scale_in(world: World, params: p.OfWorker) -> Aim:
    return _resized(world, world.role(params.worker) or "unknown", params.worker, -1)


def _resized(world: World, role: str, worker: str, step: int) -> Aim:
    subject = f"pool/{role}/replicas"
    after = _more(world.get(subject), step)
    return Aim(subject=subject, value=after, params={"role": role, "worker": worker, "replicas": after})


def _limit(_world: World, params: p.Limit) -> Aim:
    return Aim(subject=f"router/{params.limit}", value=params.value, params=params.model_dump(mode="json"))


def _router(name: str) -> Callable[[World, Any], Aim]:
    def aim(_world: World, params: Any) -> Aim:
        return Aim(subject=f"router/{name}", value=params.value, params={"value": params.value})

    return aim


def _option(_world: World, params: p.Option) -> Aim:
    subject = f"worker/{params.worker}/option/{params.option}"
    return Aim(subject=subject, value=params.value, params=params.model_dump(mode="json"))


def _autoscaler(value: Value) -> Callable[[World, p.OfRole], Aim]:
    def aim(_world: World, params: p.OfRole) -> Aim:
        return Aim(subject=f"pool/{params.role}/autoscaler", value=value, params={"role": params.role.value})

    return aim


def _look(_world: World, params: Strict) -> Aim:
    return Aim(subject=None, value=None, params=params.model_dump(mode="json"))


def _spec(
    name: str, title: str, risk: Risk, params: type[Strict], aim: Callable[[World, Any], Aim], **more: Any
) -> ActionSpec:
    return ActionSpec(name=name, title=title, risk=risk, params=params, aim=aim, **more)


_W, _S = p.OfWorker, p.OfStore
SHIPPED: tuple[ActionSpec, ...] = (
    _spec("advice.give", "tell a person what to decide", Risk.SAFE, p.Advice, _look, needs_backend=False),
    _spec("evidence.keep", "keep the diagnosis and its evidence", Risk.SAFE, p.Nothing, _look, needs_backend=False),
    _spec("pair.canary", "send one tiny request with a known answer through every pair of a worker", Risk.SAFE, _W, _look),
    _spec("worker.start", "start a worker", Risk.SAFE, _W, _set("process", "running"), inverse="worker.stop", topology=True),
    _spec("worker.stop", "stop a worker", Risk.DISRUPTIVE, _W, _set("process", "stopped"), inverse="worker.start",
          takes_out=True, topology=True),
    _spec("worker.restart", "end a worker and start it again", Risk.DISRUPTIVE, _W, _restart, takes_out=True, once=True,
          topology=True),
    _spec("worker.cordon", "keep new requests away from a worker", Risk.DISRUPTIVE, _W, _set("cordoned", True),
          inverse="worker.uncordon", takes_out=True),
    _spec("worker.uncordon", "let a worker have requests again", Risk.SAFE, _W, _set("cordoned", False),
          inverse="worker.cordon"),
    _spec("worker.drain", "wait until a worker holds no request, nor KV that somebody may still pull", Risk.SAFE, p.Drain,
          _drain, compares=False),
    _spec("worker.drop-cache", "drop the prefix cache of an empty worker", Risk.DISRUPTIVE, _W, _look, once=True),
    _spec("worker.reconfigure", "start a worker again with another option", Risk.DISRUPTIVE, p.Option, _option,
          inverse="worker.reconfigure", takes_out=True, topology=True),
    _spec("pool.scale-out", "add one worker to a pool", Risk.SAFE, p.Newcomer, _scale_out, inverse="pool.scale-in",
          topology=True),
    _spec("pool.scale-in", "take one worker from a pool", Risk.DISRUPTIVE, _W, _scale_in, inverse="pool.scale-out",
          takes_out=True, topology=True),
    _spec("autoscaler.pause", "stop the autoscaler of a pool", Risk.SAFE, p.OfRole, _autoscaler("paused"),
          inverse="autoscaler.resume"),
    _spec("autoscaler.resume", "let the autoscaler of a pool act again", Risk.SAFE, p.OfRole, _autoscaler("running"),
          inverse="autoscaler.pause"),
    _spec("router.add", "let the router know a worker", Risk.SAFE, _W, _set("routed", True), inverse="router.remove"),
    _spec("router.remove", "let the router forget a worker", Risk.DISRUPTIVE, _W, _set("routed", False),
          inverse="router.add", takes_out=True),
    _spec("router.limit", "set a limit of the router", Risk.SAFE, p.Limit, _limit, inverse="router.limit"),
    _spec("router.policy", "set how the router chooses pairs", Risk.DISRUPTIVE, p.Policy, _router("policy"),
          inverse="router.policy"),
    _spec("router.admit", "set the share of new requests that the router lets in", Risk.DISRUPTIVE, p.Share,
          _router("admit_ratio"), inverse="router.admit"),
    _spec("router.salt", "set the share of requests that get a cache salt, so that they hit no shared prefix", Risk.SAFE,
          p.Share, _router("salt_ratio"), inverse="router.salt"),
    _spec("store.start", "start the KV store", Risk.SAFE, _S, _store("process", "running"), inverse="store.stop",
          topology=True),
    _spec("store.stop", "stop the KV store", Risk.DISRUPTIVE, _S, _store("process", "stopped"), inverse="store.start",
          topology=True),
    _spec("store.restart", "end the KV store and start it again", Risk.DISRUPTIVE, _S, _restart_store, once=True,
          topology=True),
    _spec("store.bypass", "let engines work without the KV store", Risk.SAFE, _S, _store("bypassed", True),
          inverse="store.use"),
    _spec("store.use", "let engines use the KV store again", Risk.SAFE, _S, _store("bypassed", False),
          inverse="store.bypass"),
)  # fmt: skip


@lru_cache(maxsize=1)
def actions() -> dict[str, ActionSpec]:
    """Return every action by name, shipped ones first.

    Raises:
        RunbookError: an entry point does not load, is no ActionSpec, or takes a name that is taken.
    """
    known = {spec.name: spec for spec in SHIPPED}
    for point in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        try:
            spec = point.load()
        except Exception as error:
            raise _unusable(point.value, f"{type(error).__name__}: {error}") from error
        if not isinstance(spec, ActionSpec):
            raise _unusable(point.value, "it is no ActionSpec")
        if spec.name in known:
            raise _unusable(point.value, f"the name {spec.name} is taken")
        known[spec.name] = spec
    return known


def _unusable(where: str, why: str) -> RunbookError:
    return RunbookError(
        "an action of another package cannot be used", where=where, why=why, hint="remove or correct it"
    )
