"""What engines let anybody change while they run, outside developer mode, found by asking each of them."""

from __future__ import annotations

from collections.abc import Mapping

from pdops.actuate.admin_http import AdminHttp
from pdops.actuate.backend import Capabilities, Effect, Params, Seen
from pdops.errors import ActionError

DROP = "worker.drop-cache"
DEVELOPER_ONLY = ("/reset_prefix_cache", "/sleep", "/wake_up", "/pause", "/resume", "/collective_rpc", "/server_info")
"""Paths that vLLM 0.32 has in developer mode only (`VLLM_SERVER_DEV_MODE`), which its own security page keeps out of production. None
of them is ever called."""
_FLUSH = "/flush_cache"


class _Engine(AdminHttp):
    who = "the engine"


class EngineAdmin:
    """Drops the prefix cache of an engine that offers it: SGLang, while no request is in it.

    Args:
        engines: id of each worker to where it serves.
    """

    name = "engines"

    def __init__(self, engines: Mapping[str, str]) -> None:
        self._engines = {worker: _Engine(url) for worker, url in engines.items()}

    def capabilities(self) -> Capabilities:
        """Offer it where at least one engine does; `apply` says why another does not."""
        refusals = {worker: self._refusal(worker) for worker in self._engines}
        if any(why is None for why in refusals.values()):
            return Capabilities(frozenset({DROP}))
        reasons = sorted({why for why in refusals.values() if why is not None})
        return Capabilities(frozenset(), {DROP: "; ".join(reasons) or "there is no engine"})

    def values(self) -> Mapping[str, Seen]:
        """Return nothing: what is cached is no value of a state."""
        return {}

    def apply(self, action: str, params: Params) -> Effect:
        """Drop what one engine has cached.

        Raises:
            ActionError: it does not offer that, or is not empty.
        """
        worker = str(params.get("worker"))
        if action != DROP or worker not in self._engines:
            raise ActionError(f"{action} is not offered", where=worker, hint="plan something else")
        if (why := self._refusal(worker)) is not None:
            raise ActionError(f"{action} is not offered", where=worker, why=why, hint="restart-worker drops it too")
        # SGLang answers 400 while requests are in it, which is an error here: nothing was dropped.
        self._engines[worker].ask("POST", _FLUSH)
        return Effect(changed=True, detail=f"{worker} has dropped what it had cached")

    def _refusal(self, worker: str) -> str | None:
        try:
            _, told = self._engines[worker].ask("GET", "/openapi.json")
        except ActionError as error:
            return f"what it offers cannot be read: {error}"
        paths = told.get("paths") if isinstance(told, dict) else None
        if not isinstance(paths, dict):
            return "it does not list what it offers"
        if _FLUSH in paths:
            return None
        if any(path in paths for path in DEVELOPER_ONLY):
            return "its engine runs in developer mode, whose switches are not for production and are not used"
        return "its engine does not list it; vLLM has it in developer mode only, which is not used"
