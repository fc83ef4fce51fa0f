"""Who else sets the size of a pool: an autoscaler, or an operator that made the workload; and acting through the first."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.actuate.backend import Effect
from pdops.actuate.kubernetes_api import AUTOSCALERS, Api, ApiError, Object
from pdops.actuate.kubernetes_model import Workload
from pdops.errors import ActionError, BusyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who sets the size; `autoscaler` is the object when its bounds may be set, and `why` says why not otherwise."""

    name: str
    autoscaler: Object | None
    why: str = ""


def owner_of(workload: Workload, found: Object, autoscalers: list[Object], *, bounds: bool) -> Owner | None:
    """Return who sets the size of a workload, None when it is nobody."""
    maker = _controller(found)
    if maker is not None:
        return Owner(name=maker, autoscaler=None, why=f"{maker} made {workload} and puts back what others set")
    mine = [a for a in autoscalers if _target(a) == (workload.kind, workload.name)]
    if not mine:
        return None
    name = f"HorizontalPodAutoscaler/{_name(mine[0])}"
    if len(mine) > 1:
        return Owner(name=name, autoscaler=None, why=f"{len(mine)} autoscalers set {workload}")
    maker = _controller(mine[0])
    if maker is not None:
        return Owner(name=maker, autoscaler=None, why=f"{maker} made {name} and puts its bounds back; set them there")
    if not bounds:
        return Owner(name=name, autoscaler=None, why="`autoscalers: bounds` in the inventory allows setting its bounds")
    return Owner(name=name, autoscaler=mine[0])


def raise_floor(api: Api, owner: Owner, before: int, after: int) -> Effect:
    """Let an autoscaler keep at least `after` workers.

    Raises:
        ActionError: it may not have so many.
        BusyError: somebody else changed it.
    """
    spec = _bounds(owner)
    most = int(spec["maxReplicas"])
    if after > most:
        raise ActionError(
            f"{owner.name} may not go so far", where=owner.name, why=f"maxReplicas is {most}, {after} are wanted",
            hint="raise maxReplicas first",
        )  # fmt: skip
    if int(spec.get("minReplicas") or 1) >= after:
        return Effect(
            changed=False, detail=f"{owner.name} keeps at least {after} already; it goes from {before} itself"
        )
    return _set(api, owner, after)


def lower_floor(api: Api, owner: Owner, before: int, after: int) -> Effect:
    """Let an autoscaler have fewer workers than it keeps now; when one goes is for it to decide.

    Raises:
        ActionError: its floor is not what keeps them.
        BusyError: somebody else changed it.
    """
    least = int(_bounds(owner).get("minReplicas") or 1)
    if least <= after:
        raise ActionError(
            f"{owner.name} decides when a worker goes", where=owner.name,
            why=f"it may have {after}, its minReplicas is {least}, and it keeps {before} by what it measures",
            hint="lower its maxReplicas, or wait until it sees less load",
        )  # fmt: skip
    return _set(api, owner, after)


def _set(api: Api, owner: Owner, least: int) -> Effect:
    assert owner.autoscaler is not None, "asked only of one whose bounds may be set"
    spec = {**(owner.autoscaler.get("spec") or {}), "minReplicas": least}
    try:
        # With the resource version it was read with: what others set since then is not undone.
        api.call("update", AUTOSCALERS, _name(owner.autoscaler), body={**owner.autoscaler, "spec": spec})
    except ApiError as error:
        if error.status == 409:
            raise BusyError(
                "somebody else changed the autoscaler", where=owner.name, why=error.why, hint="look again, then go on"
            ) from error
        raise
    return Effect(changed=True, detail=f"minReplicas of {owner.name} is {least}; it sets the replicas")


def _bounds(owner: Owner) -> Object:
    return (owner.autoscaler or {}).get("spec") or {}


def _controller(found: Object) -> str | None:
    owners = (found.get("metadata") or {}).get("ownerReferences") or []
    chosen = next((o for o in owners if o.get("controller")), None)
    return f"{chosen.get('kind')}/{chosen.get('name')}" if chosen else None


def _target(autoscaler: Object) -> tuple[str, str]:
    target = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    return str(target.get("kind")), str(target.get("name"))


def _name(found: Object) -> str:
    return str((found.get("metadata") or {}).get("name"))
