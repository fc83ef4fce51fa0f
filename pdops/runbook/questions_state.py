"""Questions about who is there: data, workers, pools, canaries."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pdops.diagnose.context import Context
from pdops.model.cluster import Pair, Role
from pdops.model.frame import EventKind, Probe, ProbeKind
from pdops.model.view import Presence
from pdops.runbook.action_params import Nothing
from pdops.runbook.gates import Facts, Outcome, Said, failed, passed, unsure
from pdops.runbook.world import World
from pdops.sources.validate import Strict, refuse

ROLLOUT_S = 600.0
"""A rollout event this recent means the pool may still be rolling: engines need minutes to load a model."""
KEEP_SHARE = 0.5
"""Besides the runbook's own minimum, half of those that take requests at the start stay: losing more than half of a pool at
once doubles the load of the rest."""
WorkerId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,63}$")]


class OfWorker(Strict):
    """A question about one worker."""

    worker: WorkerId


class OfRole(Strict):
    """A question about the pool of a role, or of a worker's role."""

    role: Literal[Role.PREFILL, Role.DECODE] | None = None
    worker: WorkerId | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.role is None) == (self.worker is None):
            raise refuse("expected either role or worker", "give one of them")
        return self

    def among(self, facts: Facts) -> str:
        """Return the role that is meant; of a worker nobody knows its id, which no pool has."""
        return (
            self.role.value if self.role is not None else World(facts.state).role(str(self.worker)) or str(self.worker)
        )


class DataFresh(Strict):
    """Share (0-1) of prefill and decode workers, one of them left aside, that must give data about now."""

    least_ratio: Annotated[float, Field(gt=0, le=1)] = 0.8
    aside: WorkerId | None = None


class MinReady(OfWorker):
    """`least` others must take requests, and half of `baseline`, who took them at the start."""

    role: Role
    least: Annotated[int, Field(ge=0)]
    baseline: Annotated[int, Field(ge=0)]


class PoolReady(Strict):
    """So many workers of a role."""

    role: Role
    least: Annotated[int, Field(ge=1)]


class RouterSetting(Strict):
    """A number that the router goes by, and the most it may be."""

    setting: Literal["salt_ratio", "admit_ratio", "queue_limit", "max_inflight_prefill", "max_inflight_decode"]
    most: Annotated[float, Field(ge=0)]


def router_setting(facts: Facts, asked: RouterSetting) -> Said:
    """Ask the backend what the router goes by."""
    seen = facts.state.get(f"router/{asked.setting}")
    if not isinstance(seen.value, int | float) or isinstance(seen.value, bool):
        return unsure(seen.why or f"nobody tells the router's {asked.setting}")
    told = f"{asked.setting} is {seen.value:g}"
    return passed(told) if seen.value <= asked.most else failed(told, f"above {asked.most:g}")


def data_fresh(facts: Facts, asked: DataFresh) -> Said:
    """Judge presence: UP is fresh, so is what a case or a server gives; silence is not."""
    view = facts.view
    members = [w for w in view.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED) if w.id != asked.aside]
    if not members:
        return failed("no worker", "nobody would be judged; an empty selection is never everybody")
    states = {w.id: view.health[w.id].presence for w in members if w.id in view.health}
    if len(states) < len(members):
        silent = ", ".join(w.id for w in members if w.id not in states)
        return unsure(f"nothing is known of {silent}")
    old = sorted(w for w, p in states.items() if p not in (Presence.UP, Presence.GIVEN))
    share = 1.0 - len(old) / len(members)
    seen = f"{len(members) - len(old)} of {len(members)} workers give data about now"
    if share < asked.least_ratio:
        return failed(
            seen, f"{', '.join(old)} {'does' if len(old) == 1 else 'do'} not; at least {asked.least_ratio:.0%} must"
        )
    return passed(seen)


def nothing_answers(facts: Facts, _asked: Nothing) -> Said:
    """Judge whether nobody answers and a backend has engines away; where all of them run it is the way to them that is broken."""
    if not Context(facts.view).nothing_answers:
        return failed("a worker answers", "what is wrong can be told by now; the diagnosis must agree")
    engines = facts.view.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED)
    known = {w.id: facts.state.get(f"worker/{w.id}/process").value for w in engines}
    away = [w for w, process in known.items() if process not in (None, "running")]
    if away:
        return passed(f"no worker answers, {len(away)} of {len(known)} do not run")
    if None in known.values():
        return unsure("no worker answers, and whether they run is not known")
    return failed("no worker answers, and all run", "look at the network from here to them")


def floor(world: World, asked: MinReady) -> Said:
    """Judge whether a worker may be taken out of a world."""
    need = max(asked.least, math.ceil(asked.baseline * KEEP_SHARE)) if asked.least else 0
    takes = {w: world.takes_requests(w) for w in world.workers(asked.role) if w != asked.worker}
    ready = sum(1 for t in takes.values() if t)
    doubtful = sorted(w for w, t in takes.items() if t is None)
    seen = f"{ready} other {asked.role} worker{'' if ready == 1 else 's'} take{'s' if ready == 1 else ''} requests"
    # Who serves nobody now takes nothing away by being restarted.
    if ready >= need or world.takes_requests(asked.worker) is False:
        return passed(seen)
    why = f"{need} must stay while {asked.worker} is out"
    if ready + len(doubtful) >= need:
        return unsure(f"{why}, {ready} surely would; not known of {', '.join(doubtful)}")
    return failed(seen, why)


def min_ready(facts: Facts, asked: MinReady) -> Said:
    """Judge the same on what a backend sees now."""
    return floor(World(facts.state), asked)


def pool_ready(facts: Facts, asked: PoolReady) -> Said:
    """Count the workers of a role that take requests."""
    world = World(facts.state)
    takes = [world.takes_requests(w) for w in world.workers(asked.role)]
    ready, doubtful = takes.count(True), takes.count(None)
    seen = f"{ready} of {len(takes)} {asked.role} workers take requests"
    if ready >= asked.least:
        return passed(seen)
    if ready + doubtful >= asked.least:
        return unsure(f"{ready} surely do, of {doubtful} it is not known")
    return failed(seen, f"{asked.least} must")


def serving(facts: Facts, asked: OfWorker) -> Said:
    """Ask the backend, which asks the worker."""
    kind = "store" if facts.state.get(f"store/{asked.worker}/serving").known else "worker"
    seen = facts.state.get(f"{kind}/{asked.worker}/serving")
    if seen.value is True:
        return passed(f"{asked.worker} answers")
    if seen.value is False:
        return failed(f"{asked.worker} does not answer", seen.why or "it must")
    return unsure(seen.why or f"nobody says whether {asked.worker} answers")


def silent(facts: Facts, asked: OfWorker) -> Said:
    """Turn the same question round: a worker that surely does not answer holds nothing anybody could wait for."""
    outcome, seen, why = serving(facts, asked)
    if outcome is Outcome.UNKNOWN:
        return unsure(why)
    return passed(seen) if outcome is Outcome.FAIL else failed(seen, "it still answers")


def no_rollout(facts: Facts, asked: OfRole) -> Said:
    """Ask the backend, and look for a recent rollout among the events."""
    role = asked.among(facts)
    seen = facts.state.get(f"pool/{role}/rollout")
    of_role = [w for w in facts.view.cluster.workers if w.role.value == role]
    pools, members = {w.pool for w in of_role}, {w.id for w in of_role}
    since_s = facts.view.at_s - ROLLOUT_S
    for event in facts.view.events:
        about = event.pool in pools or event.worker in members
        if event.kind is EventKind.ROLLOUT and event.t_s >= since_s and about:
            age_s = facts.view.at_s - event.t_s
            return failed(f"a rollout of {role} was seen {age_s:.0f} s ago", "wait until it is over")
    if seen.value is True:
        return failed(f"{role} is inside a rollout", "wait until it is over")
    if seen.value is False:
        return passed(f"no rollout of {role}")
    return unsure(seen.why or f"nobody says whether {role} is inside a rollout")


def own_replicas(facts: Facts, asked: OfRole) -> Said:
    """Ask the backend who sets the size of a pool; an empty text is nobody."""
    role = asked.among(facts)
    seen = facts.state.get(f"pool/{role}/owner")
    if seen.value == "":
        return passed(f"nobody else sets the size of {role}")
    if isinstance(seen.value, str):
        return failed(f"{seen.value} sets the size of {role}", f"two writers undo each other; act through {seen.value}")
    return unsure(seen.why or f"nobody says who sets the size of {role}")


def room_for(facts: Facts, asked: OfRole) -> Said:
    """Ask the backend how many more workers fit."""
    role = asked.among(facts)
    seen = facts.state.get(f"pool/{role}/free")
    if not isinstance(seen.value, int) or isinstance(seen.value, bool):
        return unsure(seen.why or f"nobody says how many more {role} workers fit")
    if seen.value >= 1:
        return passed(f"room for {seen.value} more")
    return failed("no room", f"no host, port or GPU is free for another {role} worker")


def canary_passed(facts: Facts, asked: OfWorker) -> Said:
    """Look at the newest canary of each pair of a worker since the step began."""
    newest: dict[str, Probe] = {}
    for probe in sorted(facts.view.probes, key=lambda p: p.t_s):
        after = facts.since_s is None or probe.t_s >= facts.since_s
        if probe.kind is ProbeKind.CANARY and after and _about(probe, asked.worker):
            newest[probe.pair or asked.worker] = probe
    if not newest:
        return unsure(f"no canary of {asked.worker} was sent")
    wrong = [f"{pair}: {p.detail or 'it failed'}" for pair, p in sorted(newest.items()) if p.ok is False]
    if wrong:
        return failed(f"{len(wrong)} of {len(newest)} pairs fail", wrong[0])
    open_ = [pair for pair, p in sorted(newest.items()) if p.ok is None]
    if open_:
        return unsure(f"the canary of {', '.join(open_)} could not be judged")
    return passed(f"{len(newest)} pair{'' if len(newest) == 1 else 's'} passed")


def _about(probe: Probe, worker: str) -> bool:
    if probe.pair is None:
        return probe.worker == worker
    pair = Pair.parse(probe.pair)
    return worker in (pair.src, pair.dst)
