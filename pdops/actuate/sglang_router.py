"""sglang-router: workers come and go while it runs, so what is taken out can be put back.

It has no cordon of its own. Keeping new requests away from a worker is a removal here; requests that are in it are finished
(seen with answers in one piece, not with streams). A prefill worker is put back with the bootstrap port that its engine tells, so
one whose engine does not tell it is not cordoned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pdops.actuate.admin_http import AdminHttp
from pdops.actuate.backend import Capabilities, Effect
from pdops.actuate.router_admin import ACTIONS, START_OPTIONS, Known, Unchanging
from pdops.clock import Clock
from pdops.errors import ActionError

SETTLE_S = 20.0
"""How long a removal or an addition may take, in seconds: the router takes both as jobs and asks a new worker first."""
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class _Entry:
    """One worker as it is listed; `uuid` is the router's own id."""

    uuid: str
    known: Known
    bootstrap_port: int | None


class SglangRouter(Unchanging, AdminHttp):
    """The admin API of sglang-router (Model Gateway), read and tried at 0.3.2.

    Args:
        url: of the router.
        ids: address of a worker to its id; the router knows addresses and ids of its own.
        clock: where time comes from.
        sleep: waits seconds.
        token_file: holds an admin key of --control-plane-api-keys, None where none is wanted.
    """

    who, cordons_by_removal = "the router", True

    def __init__(
        self,
        url: str,
        ids: Mapping[str, str],
        clock: Clock,
        sleep: Callable[[float], None],
        token_file: Path | None = None,
    ) -> None:
        super().__init__(url, token_file)
        self._ids = {address.rstrip("/"): worker for address, worker in ids.items()}
        self._clock, self._sleep = clock, sleep

    def capabilities(self) -> Capabilities:
        """Offer all of it where the list of workers is read and has ids; other routers list addresses only."""
        try:
            self._entries()
        except ActionError as error:
            return Capabilities(frozenset(), {**START_OPTIONS, **dict.fromkeys(ACTIONS, str(error))})
        return Capabilities(frozenset(ACTIONS), START_OPTIONS)

    def workers(self) -> Mapping[str, Known]:
        """Return the workers by id. See `RouterAdmin.workers`."""
        return {worker: entry.known for worker, entry in self._entries().items()}

    def set(self, action: str, worker: str, role: str, url: str) -> Effect:
        """Put a worker in or take it out; a cordon is the same here. See `RouterAdmin.set`."""
        entry = self._entries().get(worker)
        if action in ("router.add", "worker.uncordon"):
            if entry is not None:
                return Effect(changed=False, detail=f"{worker} is routed")
            wanted: dict[str, object] = {"url": url, "worker_type": role}
            port = _bootstrap_port(url) if role == "prefill" else None
            if port is not None:
                wanted["bootstrap_port"] = port
            self.ask("POST", "/workers", wanted)
            self._wait(worker, there=True)
            return Effect(changed=True, detail=f"{worker} is routed")
        if entry is None:
            return Effect(changed=False, detail=f"{worker} is not routed")
        cordon = action == "worker.cordon"
        if cordon and entry.bootstrap_port is not None and _bootstrap_port(entry.known.url) != entry.bootstrap_port:
            raise ActionError(
                f"{worker} could not be put back", where=self.url,
                why=f"the router has bootstrap port {entry.bootstrap_port}, and its engine does not tell the same",
                hint="remove it for good, or by hand",
            )  # fmt: skip
        self.ask("DELETE", f"/workers/{quote(entry.uuid, safe='')}", fine=(404,))
        self._wait(worker, there=False)
        return Effect(changed=True, detail=f"{worker} is not routed")

    def _wait(self, worker: str, *, there: bool) -> None:
        """Wait for a job of the router to be done.

        Raises:
            ActionError: it is not within `SETTLE_S`.
        """
        end = self._clock.monotonic() + SETTLE_S
        while (worker in self._entries()) is not there:
            if self._clock.monotonic() >= end:
                raise ActionError(
                    f"the router did not {'take' if there else 'let go of'} {worker}", where=self.url,
                    why=f"not within {SETTLE_S:.0f} s", hint="does the worker answer? See the router's log",
                )  # fmt: skip
            self._sleep(_POLL_S)

    def _entries(self) -> dict[str, _Entry]:
        _, told = self.ask("GET", "/workers")
        try:
            found = {}
            _ = told["stats"], told["total"]
            for entry in told["workers"]:
                url, port = str(entry["url"]).rstrip("/"), entry.get("bootstrap_port")
                known = Known(
                    role=str(entry["worker_type"]), url=url, cordoned=False, up=entry.get("is_healthy"),
                    inflight=entry.get("load"),
                )  # fmt: skip
                found[self._ids.get(url, url)] = _Entry(
                    str(entry["id"]), known, port if isinstance(port, int) else None
                )
        except (KeyError, TypeError, AttributeError) as error:
            raise ActionError(
                "the router's list of workers makes no sense", where=self.url, hint="is it a sglang-router?"
            ) from error
        return found


class _Engine(AdminHttp):
    who = "the engine"


def _bootstrap_port(url: str) -> int | None:
    """Return the bootstrap port an SGLang engine says it has, None for one that says none, as vLLM does."""
    try:
        _, told = _Engine(url).ask("GET", "/get_server_info")
    except ActionError:
        return None
    port = told.get("disaggregation_bootstrap_port") if isinstance(told, dict) else None
    return port if isinstance(port, int) and not isinstance(port, bool) else None
