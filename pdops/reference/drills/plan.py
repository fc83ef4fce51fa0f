"""What a drill is: what it does, what is true while it does, what it needs, and how it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pdops.model.report import Layer, ScopeKind, Verdict
from pdops.reference.drills.deployment import Deployment
from pdops.reference.spec import Profile

if TYPE_CHECKING:
    from pdops.reference.drills.stage import Stage

BEFORE_S = 70.0
"""Healthy load before the act, in seconds: the judged window of a diagnosis (60 s) and a little that is judged on it."""
QUIET_S = 70.0
"""From the end of put-back until nothing of the fault is in the judged window any more, in seconds."""
AFTER_S = 20.0
"""Healthy load at the end, in seconds."""
WARM_UP_S = 8.0
STEADY: Mapping[str, float] = {"rate": 0.8, "prompt": 300, "tokens": 24, "concurrency": 8}
"""Load that a healthy pair of the tiny model carries on two busy cores."""


class Split(StrEnum):
    """What recordings of a kind of drill are for."""

    DEVELOP = "develop"
    JUDGE = "judge"


class Need(StrEnum):
    """What a drill cannot do without."""

    NAMESPACES = "namespaces"
    STORE = "store"
    ROUTER = "router"
    ROUTER_DRILLS = "router-drills"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Expect:
    """What a diagnosis should say in the fault window.

    Scopes name parts by `{prefill}`, `{decode}`, `{router}` and `{store}`, the ids in the deployment at hand.
    """

    verdict: Verdict
    layers_ok: tuple[Layer, ...] = ()
    causes: tuple[str, ...] = ()
    scopes: tuple[tuple[ScopeKind, str], ...] = ()

    def labels(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the entries of a truth window."""
        if self.verdict is Verdict.HEALTHY:
            return {"verdict": self.verdict.value}
        return {
            "verdict": self.verdict.value,
            "layers_ok": [layer.value for layer in self.layers_ok],
            "causes": list(self.causes),
            "scopes": [{kind: name.format(**names)} for kind, name in self.scopes],
        }


Step = Callable[["Stage"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One way to break a deployment. Times in seconds.

    Args:
        name: what `pdops drill run` takes; `healthy` is in it when nothing is broken.
        family: the file it lives in.
        summary: one line for a person.
        split: decided by kind, in `SPLIT.yaml` beside the recordings.
        expect: the truth while the fault is on.
        act: breaks it, after saying how to put it back, and returns when the effect shows. None: nothing is broken.
        prepare: done before the recording begins, undone after it has ended.
        keep: runs while the fault is on, for about `hold_s`; None waits.
        needs: what it cannot do without.
        steady: the load under it, unless `prepare` fits it to the machine; see `pdops.reference.load`.
        settle_s: from the end of the act until a diagnosis should have noticed.
        hold_s: length of the fault window.
        linger_s: how long the effect lasts after it was put back, beyond the judged window.
        note: what a person should know about how it is provoked.
    """

    name: str
    family: str
    summary: str
    split: Split
    expect: Expect
    act: Step | None = None
    prepare: Step | None = None
    keep: Step | None = None
    needs: tuple[Need, ...] = ()
    steady: Mapping[str, float] = field(default_factory=lambda: dict(STEADY))
    settle_s: float = 10.0
    hold_s: float = 50.0
    linger_s: float = 0.0
    note: str = ""

    @property
    def least_s(self) -> float:
        """Seconds it takes when nothing has to be waited for."""
        return WARM_UP_S + BEFORE_S + self.settle_s + self.hold_s + self.linger_s + QUIET_S + AFTER_S

    def up_command(self) -> str:
        """Return how to bring up a deployment it can be run on."""
        options = ["pdops up"]
        if {Need.NAMESPACES, Need.STORE} & set(self.needs):
            options.append("--network namespaces")
        if Need.STORE in self.needs:
            options.append("--kv-store mooncake")
        return " ".join(options)


def may_make_namespaces() -> tuple[bool, str]:
    """Say whether network namespaces can be made here, and what is missing if not."""
    from pdops.reference.network import Network as Namespaces

    return Namespaces.available()


def obstacles(
    drill: Drill,
    deployment: Deployment | None,
    *,
    router_drills: bool = True,
    namespaces: Callable[[], tuple[bool, str]] = may_make_namespaces,
) -> tuple[str, ...]:
    """Return why a drill cannot be run, empty when it can.

    Args:
        drill: which.
        deployment: what is up; None asks about this machine alone.
        router_drills: whether the router that is up has its drill switch.
        namespaces: says whether namespaces can be made.
    """
    found = list[str]()
    if {Need.NAMESPACES, Need.STORE} & set(drill.needs):
        can, why = namespaces()
        if not can:
            found.append(f"needs network namespaces: {why}")
    if deployment is not None and deployment.spec.profile is Profile.SIM:
        return ("needs real engines; a simulation is given its faults by `pdops up --profile sim --fault KIND`",)
    if deployment is not None:
        found += [why for need in drill.needs if (why := _missing(need, deployment, router_drills))]
    return tuple(dict.fromkeys(found))


def _missing(need: Need, deployment: Deployment, router_drills: bool) -> str:
    spec = deployment.spec
    if need is Need.NAMESPACES and deployment.network is None:
        return "needs a deployment with --network namespaces"
    if need is Need.STORE and spec.store is None:
        return "needs a deployment with --kv-store mooncake"
    if need in (Need.ROUTER, Need.ROUTER_DRILLS) and (spec.router is None or spec.router.kind != "pdops"):
        return "needs a deployment with --router pdops"
    if need is Need.ROUTER_DRILLS and not router_drills:
        return "needs a router started with --allow-drills"
    if need is Need.CPU and spec.profile is not Profile.CPU:
        return "needs the cpu profile"
    return ""
