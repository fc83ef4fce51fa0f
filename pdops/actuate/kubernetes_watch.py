"""Wait until the pods of a pool are as wanted: a list, then what changes after it, and a new list when that is too old."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pdops.actuate.kubernetes_api import PODS, Api, ApiError, Object

GONE = 410
_ONE_S = 10.0
"""One watch is asked for this long, in seconds: a connection that died silently is noticed then, and the lease is kept."""
_PAUSE_S = 2.0
Pods = Mapping[str, Object]


def until(api: Api, selector: str, done: Callable[[Pods], bool], limit_s: float, beat: Callable[[], None]) -> bool:
    """Return True once the pods that carry the labels, by name, are as wanted; False when the time is over before.

    `beat` is called between watches, for what has to be kept up meanwhile; what it raises ends the wait.

    Raises:
        ApiError: they cannot be listed or watched.
        BusyError: the server takes no more requests.
    """
    end = api.clock.monotonic() + limit_s
    while True:
        items, version = api.list(PODS, selector)
        pods = {_name(p): p for p in items}
        if done(pods):
            return True
        try:
            while (left_s := end - api.clock.monotonic()) > 0:
                began = version
                for kind, seen in api.watch(PODS, selector, version, min(left_s, _ONE_S)):
                    version = str((seen.get("metadata") or {}).get("resourceVersion") or version)
                    if kind == "BOOKMARK":
                        continue
                    if kind == "DELETED":
                        pods.pop(_name(seen), None)
                    else:
                        pods[_name(seen)] = seen
                    if done(pods):
                        return True
                beat()
                if version == began:
                    api.sleep(_PAUSE_S)
            return False
        except ApiError as error:
            if error.status != GONE or api.clock.monotonic() >= end:
                raise
            # What happened since is not kept any more, so only a new list can tell.
            api.sleep(_PAUSE_S)


def _name(pod: Object) -> str:
    return str((pod.get("metadata") or {}).get("name"))
