"""What drills use of a deployment that is up, so that they can be played on one that pretends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pdops.reference.spec import DeploymentSpec


class Network(Protocol):
    """What drills use of the deployment's network: the KV link of one worker at a time."""

    def slow(self, worker: str, bits_per_s: float, latency_ms: float) -> None:
        """Limit the rate of a worker's KV link, in bits/s, with a queue of so many milliseconds."""
        ...

    def lossy(self, worker: str, percent: float) -> None:
        """Drop a share of the packets of a worker's KV link."""
        ...

    def cut(self, worker: str) -> None:
        """Drop every packet of a worker's KV link."""
        ...

    def clear(self, worker: str) -> None:
        """Undo all of it."""
        ...

    def enter(self, worker: str) -> list[str]:
        """Return the beginning of a command line that runs in a worker's namespace."""
        ...

    def kv_address(self, worker: str) -> str:
        """Return the address of a worker's KV interface."""
        ...


class Deployment(Protocol):
    """What drills use of a deployment that is up; `pdops.reference.running.Running` is one."""

    @property
    def spec(self) -> DeploymentSpec:
        """What it consists of."""
        ...

    @property
    def state_dir(self) -> Path:
        """Its folder."""
        ...

    @property
    def inventory(self) -> Path:
        """Its inventory file."""
        ...

    @property
    def router_url(self) -> str:
        """Where clients ask."""
        ...

    @property
    def admin_token_file(self) -> Path:
        """The token of the router's admin API."""
        ...

    @property
    def network(self) -> Network | None:
        """The links of its workers, None on loopback."""
        ...

    def url(self, worker: str) -> str:
        """Return where a worker serves."""
        ...

    def alive(self, worker: str) -> bool:
        """Say whether its process runs."""
        ...

    def serves(self, worker: str) -> str | None:
        """Return None when it serves, else why not."""
        ...

    def metrics(self, worker: str) -> str:
        """Return its page of metrics."""
        ...

    def kill(self, worker: str) -> None:
        """End it at once, as a crash would."""
        ...

    def stop(self, worker: str, grace_s: float = 15.0) -> object:
        """Ask it to end, and insist."""
        ...

    def freeze(self, worker: str) -> None:
        """Stop it where it is."""
        ...

    def thaw(self, worker: str) -> None:
        """Let it go on."""
        ...

    def start(
        self,
        worker: str,
        *,
        same_identity: bool = False,
        overrides: Mapping[str, str | None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it (again); `overrides` are options of its command line, None removes one."""
        ...

    def wait_ready(self, worker: str, timeout_s: float = ...) -> float:
        """Wait until it serves; return the seconds it took."""
        ...
