"""KV stores: what their own APIs let anybody change while they run, which is little, and why not the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from pdops.actuate.admin_http import AdminHttp
from pdops.actuate.backend import Capabilities, Effect, Params, Seen
from pdops.errors import ActionError

BYPASS = ("store.bypass", "store.use")
PARTLY = "partly"
"""Value of `store/ID/bypassed` while some engines leave the store out and some do not."""


class _Internal(AdminHttp):
    who = "LMCache's internal API"


class LmcacheBypass:
    """Lets engines work without a store through LMCache's internal API, which each engine process has for itself.

    The API is off until `internal_api_server_enabled` is set, listens on loopback and asks for no password; so it is reached on the
    engine's host or through a forwarded port. A bypass is kept in memory: an engine that restarts uses its store again, and so
    does one whose LMCache finds the store well by its own health check. Read at LMCache 0.5.6.

    Args:
        store: id of the store in the inventory.
        urls: the internal API of every engine process that uses it.
        backend: LMCache's name for the store.
    """

    def __init__(self, store: str, urls: Sequence[str], backend: str = "RemoteBackend") -> None:
        self._store, self._backend = store, backend
        self._engines = tuple(_Internal(url) for url in urls)

    @property
    def name(self) -> str:
        """What people call it."""
        return f"LMCache of {len(self._engines)} engine processes"

    def capabilities(self) -> Capabilities:
        """Offer the bypass where every engine process answers and has that backend."""
        try:
            for engine in self._engines:
                self._bypassed(engine)
        except ActionError as error:
            return Capabilities(frozenset(), dict.fromkeys(BYPASS, str(error)))
        return Capabilities(frozenset(BYPASS))

    def values(self) -> Mapping[str, Seen]:
        """Return whether the engines leave the store out."""
        subject = f"store/{self._store}/bypassed"
        try:
            found = [self._bypassed(engine) for engine in self._engines]
        except ActionError as error:
            return {subject: Seen(None, self.name, str(error))}
        return {subject: Seen(found[0] if len(set(found)) == 1 else PARTLY, self.name)}

    def apply(self, action: str, params: Params) -> Effect:
        """Set it in every engine process; in those where it is so already nothing happens.

        Raises:
            ActionError: one of them does not take it; those before it have it.
        """
        if params.get("store") != self._store:
            raise ActionError("no such store", where=str(params.get("store")), hint="name it under operate.lmcache")
        wanted = action == "store.bypass"
        todo = [engine for engine in self._engines if self._bypassed(engine) is not wanted]
        path = f"/bypass/{'add' if wanted else 'remove'}?backend_name={quote(self._backend, safe='')}"
        for engine in todo:
            engine.ask("PUT", path)
        how = "leave out" if wanted else "use"
        return Effect(changed=bool(todo), detail=f"{len(self._engines)} engine processes {how} {self._store}")

    def _bypassed(self, engine: _Internal) -> bool:
        _, told = engine.ask("GET", "/bypass/list")
        try:
            known, left_out = list(told["all_backends"]), list(told["bypassed_backends"])
        except (KeyError, TypeError) as error:
            raise ActionError(
                "the list of backends makes no sense", where=engine.url, hint="is it LMCache's internal API?"
            ) from error
        if self._backend not in known:
            raise ActionError(
                f"an engine has no backend {self._backend}", where=engine.url, why=f"it has {', '.join(map(str, known)) or 'none'}",
                hint="set operate.lmcache.backend",
            )  # fmt: skip
        return self._backend in left_out


class _Master(AdminHttp):
    who = "Mooncake's master"


class MooncakeMaster:
    """A Mooncake master: asked whether it is well; there is nothing in its API that a runbook could use.

    Read at Mooncake 0.3.13: the master's HTTP side answers questions, and what removes objects removes them for every cluster
    that shares the master.

    Args:
        store: id of the store in the inventory.
        url: the master's HTTP side, where its metrics are.
    """

    def __init__(self, store: str, url: str) -> None:
        self._store, self._master = store, _Master(url)

    @property
    def name(self) -> str:
        """What people call it."""
        return f"Mooncake {self._store}"

    def capabilities(self) -> Capabilities:
        """Offer nothing, and say why."""
        why = "Mooncake's master has no switch for it: which store an engine uses is read when the engine starts"
        return Capabilities(frozenset(), dict.fromkeys(BYPASS, why))

    def values(self) -> Mapping[str, Seen]:
        """Return whether the master calls itself well, which says nothing of whether objects can be put and got."""
        subject = f"store/{self._store}/serving"
        try:
            self._master.ask("GET", "/health")
        except ActionError as error:
            late = "timed out" in error.why.lower()
            return {subject: Seen(None if late else False, self.name, str(error))}
        return {subject: Seen(True, self.name)}

    def apply(self, action: str, params: Params) -> Effect:  # noqa: ARG002  the protocol's
        """Refuse.

        Raises:
            ActionError: always.
        """
        raise ActionError(f"{action} is not offered", where=self.name, hint="plan something else")
