"""A Lease of Kubernetes: one pdops at a time changes a namespace, and a number that only grows tells who came later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from pdops.actuate.backend import Fence
from pdops.actuate.kubernetes_api import LEASES, Api, ApiError, Object
from pdops.errors import BusyError, FencedError

DURATION_S = 30
"""How long a holder may be silent before others may take over, in seconds; two tries to renew fit in."""
RENEW_S = 10.0
"""A lease that was renewed less than this ago is not renewed again, in seconds."""
WAIT_S = 60.0
"""The longest to wait for a silent holder's lease to run out, in seconds."""
_LOOK_S = 2.0
_TRIES = 5
FENCE = "pdops.dev/fence"
STARTS = "pdops.dev/starts"
Seen = tuple[str, str, str]


class Leader:
    """Takes, keeps and gives back a lease.

    Whether a holder is silent is judged by whether its lease changes while it is looked at, on this machine's monotonic
    clock: clocks of two machines are never compared.

    Args:
        api: where the lease is.
        name: of the lease.
        holder: who this is; nobody else may be called so.
    """

    def __init__(self, api: Api, name: str, holder: str) -> None:
        self._api, self._name, self._holder = api, name, holder
        self._number: int | None = None
        self._renewed_s = 0.0
        self._seen: tuple[Seen, float] | None = None

    @property
    def number(self) -> int | None:
        """How often the lease has changed hands up to now, which no later holder shares; None when it is not held."""
        return self._number

    def take(self, fence: Fence) -> int:
        """Hold the lease for a run, and return the lease's own number.

        Raises:
            BusyError: somebody else holds it, and goes on renewing it.
            FencedError: a later run has held it.
            ApiError: it cannot be read or written.
        """
        end, lost = self._api.clock.monotonic() + WAIT_S, 0
        while True:
            now = self._api.clock.monotonic()
            lease = self._read()
            if lease is None or self._free(lease, now):
                if lease is not None:
                    self._turn_away(lease, fence)
                written = self._write(lease, fence)
                if written is not None:
                    self._number, self._renewed_s = written, now
                    return written
                # Somebody was faster: what they wrote decides, so it is read again.
                lost += 1
            if now >= end or lost >= _TRIES:
                holder = _spec(lease).get("holderIdentity") if lease is not None else "somebody"
                raise BusyError(
                    "another pdops is changing the cluster", where=f"lease {self._name}", why=f"held by {holder}",
                    hint=f"wait for it; a holder that died is replaced after {DURATION_S} s",
                )  # fmt: skip
            self._api.sleep(_LOOK_S)

    def keep(self) -> None:
        """Make sure that the lease is still held, right before something is changed.

        Raises:
            FencedError: somebody else has taken it.
            ApiError: it cannot be read or written.
        """
        now = self._api.clock.monotonic()
        if self._number is None:
            raise self._lost("it is not held")
        if now - self._renewed_s < RENEW_S:
            return
        for _ in range(_TRIES):
            lease = self._read()
            if lease is None or not self._ours(lease):
                self._number = None
                raise self._lost(f"held by {_spec(lease or {}).get('holderIdentity') or 'nobody'}")
            now = self._api.clock.monotonic()
            if self._put(lease, {"renewTime": _now(self._api.clock.now())}) is not None:
                self._renewed_s = now
                return
        raise self._lost("others write it all the time")

    def give_back(self) -> None:
        """Let others have it at once. Where that fails it runs out by itself."""
        if self._number is None:
            return
        try:
            lease = self._read()
            if lease is not None and self._ours(lease):
                self._put(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except (ApiError, BusyError):
            pass
        self._number = None

    def note(self, starts: Mapping[str, tuple[str, int, int]]) -> None:
        """Write down how often workers were started. See `starts_of`.

        Raises:
            FencedError: somebody else has taken the lease.
            BusyError: others write it all the time.
        """
        text = json.dumps(starts, sort_keys=True)
        for _ in range(_TRIES):
            lease = self._read()
            if lease is None or not self._ours(lease):
                self._number = None
                raise self._lost("it was taken over")
            if self._put(lease, {}, {STARTS: text}) is not None:
                return
        raise BusyError("the lease cannot be written", where=self._name, why="others write it", hint="try again")

    def _read(self) -> Object | None:
        try:
            return self._api.get(LEASES, self._name)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _free(self, lease: Object, now: float) -> bool:
        spec = _spec(lease)
        holder = str(spec.get("holderIdentity") or "")
        if holder in ("", self._holder):
            return True
        seen = (holder, str(spec.get("renewTime")), str(_meta(lease).get("resourceVersion")))
        if self._seen is None or self._seen[0] != seen:
            self._seen = (seen, now)
            return False
        return now - self._seen[1] >= float(spec.get("leaseDurationSeconds") or DURATION_S)

    def _turn_away(self, lease: Object, fence: Fence) -> None:
        noted = str((_meta(lease).get("annotations") or {}).get(FENCE) or "0")
        if not noted.isascii() or not noted.isdigit() or int(noted) > fence.number:
            raise FencedError(
                "another run has been here since", where=f"lease {self._name}", why=f"number {noted}, this is {fence.number}",
                hint=f"see `pdops runbook log`; with a new journal remove the annotation {FENCE}",
            )  # fmt: skip

    def _write(self, lease: Object | None, fence: Fence) -> int | None:
        """Return the lease's number, or None when somebody else wrote it first."""
        at = _now(self._api.clock.now())
        mine = {"holderIdentity": self._holder, "leaseDurationSeconds": DURATION_S, "renewTime": at}
        marks = {FENCE: str(fence.number)}
        if lease is None:
            body: Object = {
                "apiVersion": LEASES.api, "kind": "Lease", "metadata": {"name": self._name, "annotations": marks},
                "spec": {**mine, "acquireTime": at, "leaseTransitions": 0},
            }  # fmt: skip
            try:
                return int(_spec(self._api.call("create", LEASES, body=body)).get("leaseTransitions") or 0)
            except ApiError as error:
                if error.status == 409:
                    return None
                raise
        changes = int(_spec(lease).get("leaseTransitions") or 0)
        if _spec(lease).get("holderIdentity") != self._holder:
            changes += 1
            mine["acquireTime"] = at
        return changes if self._put(lease, {**mine, "leaseTransitions": changes}, marks) is not None else None

    def _put(self, lease: Object, spec: Object, marks: Mapping[str, str] | None = None) -> Object | None:
        """Return the new lease, or None when it is not any more what was read."""
        meta = {**_meta(lease), "annotations": {**(_meta(lease).get("annotations") or {}), **(marks or {})}}
        body = {**lease, "metadata": meta, "spec": {**_spec(lease), **spec}}
        try:
            return self._api.call("update", LEASES, self._name, body=body)
        except ApiError as error:
            if error.status == 409:
                return None
            raise

    def _ours(self, lease: Object) -> bool:
        spec = _spec(lease)
        return spec.get("holderIdentity") == self._holder and int(spec.get("leaseTransitions") or 0) == self._number

    def _lost(self, why: str) -> FencedError:
        return FencedError("the lease was lost", where=f"lease {self._name}", why=why, hint="see `pdops runbook log`")


def starts_of(lease: Object | None) -> dict[str, tuple[str, int, int]]:
    """Return by worker: uid of the pod it had when that was written, starts up to its first, restarts seen in it.

    What is not there or makes no sense is nothing: counting then begins with the pods that are there.
    """
    try:
        told = json.loads((_meta(lease or {}).get("annotations") or {}).get(STARTS) or "{}")
        return {str(w): (str(uid), int(first), int(more)) for w, (uid, first, more) in told.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _spec(lease: Object) -> Object:
    return lease.get("spec") or {}


def _meta(lease: Object) -> Object:
    return lease.get("metadata") or {}


def _now(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
