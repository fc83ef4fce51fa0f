"""The stage a drill acts on: a deployment under load that is being recorded, and the list of what has to be put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pdops.clock import Clock
from pdops.errors import DeploymentError
from pdops.model.cluster import Role
from pdops.reference import pages
from pdops.reference.drills.deployment import Deployment, Network
from pdops.reference.drills.plan import Expect
from pdops.sources.exposition import NotExposition

_STEP_S = 0.5
READY_S = 600.0
"""The longest a restarted part may take: a minute on two idle cores, seven were seen on busy ones."""
LOAD_MOST_S = 1800.0
"""Load and recording end by themselves after this, should we be killed before we stop them."""


class Crew(Protocol):
    """Programs that run beside a drill: load and recording."""

    def load(self, url: str, model: str, settings: Mapping[str, float]) -> Callable[[], None]:
        """Start load and return what ends it; ending it twice is no error."""
        ...

    def record(self, inventory: Path, output: Path) -> float:
        """Start recording and return Unix seconds of its first frame."""
        ...

    def check(self) -> None:
        """Raise DeploymentError when the recording has ended early."""
        ...

    def finish(self) -> float:
        """End load and recording; return the recording's length in seconds."""
        ...

    def stop(self) -> None:
        """Stop whatever still runs."""
        ...


@dataclass(frozen=True, slots=True)
class Undo:
    """How one thing is put back. `run` may be called when there is nothing to put back."""

    what: str
    target: str
    run: Callable[[], object]


@dataclass(slots=True)
class Stage:
    """A drill in progress. Times are seconds from the start of the recording, or of the drill before there is one.

    `settings` is the steady load, which `prepare` may fit to the machine; `measured` is what it found out for that.
    """

    deployment: Deployment
    crew: Crew
    clock: Clock
    pause: Callable[[float], None]
    say: Callable[[str], None]
    start_s: float = 0.0
    recording: bool = False
    actions: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, float] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    steady: Callable[[], None] = lambda: None
    undos: list[Undo] = field(default_factory=list)

    @property
    def names(self) -> dict[str, str]:
        """The parts a drill acts on: the first of each role."""
        spec = self.deployment.spec
        first = {e.role: e.id for e in reversed(spec.engines)}
        return {
            "prefill": first[Role.PREFILL],
            "decode": first[Role.DECODE],
            "router": spec.router.id if spec.router is not None else "",
            "store": spec.store.id if spec.store is not None else "",
        }

    @property
    def prefill(self) -> str:
        """The prefill worker that is acted on."""
        return self.names["prefill"]

    @property
    def decode(self) -> str:
        """The decode worker that is acted on."""
        return self.names["decode"]

    @property
    def router(self) -> str:
        """The router."""
        return self.names["router"]

    @property
    def network(self) -> Network:
        """The deployment's network.

        Raises:
            DeploymentError: its workers have no links of their own.
        """
        if self.deployment.network is None:
            raise DeploymentError(
                "the workers have no KV links of their own", hint="bring it up with `pdops up --network namespaces`"
            )
        return self.deployment.network

    def now(self) -> float:
        """Return seconds from the start."""
        return round(self.clock.now() - self.start_s, 1)

    def wait_until(self, at_s: float) -> None:
        """Wait, and notice when the recording has ended."""
        while (left := at_s - self.now()) > 0:
            self.crew.check()
            self.pause(min(_STEP_S, max(0.05, left)))

    def wait(self, seconds: float) -> None:
        """Wait for a while."""
        self.wait_until(self.now() + seconds)

    def wait_for(self, what: str, holds: Callable[[], bool], limit_s: float) -> None:
        """Wait until something holds; looks once a second.

        Raises:
            DeploymentError: it did not within `limit_s`.
        """
        end_s = self.clock.monotonic() + limit_s
        while not holds():
            if self.clock.monotonic() >= end_s:
                raise DeploymentError(
                    "the drill did not take effect",
                    where=what,
                    why=f"not within {limit_s:.0f} s",
                    hint="everything was put back; run it again when the machine is less busy",
                )
            self.wait(1.0)

    def did(self, what: str, target: str) -> float:
        """Write down what was done and return when."""
        at = max(0.0, self.now())
        if self.recording:
            self.actions.append({"t_s": at, "what": what, "target": target})
        self.say(f"{at:7.1f} s  {target}: {what}")
        return at

    def window(self, until_s: float, expect: Expect | None) -> None:
        """Label the time from the last window on; None is a transition. An empty span is left out."""
        begin = self.windows[-1]["to_s"] if self.windows else 0.0
        if until_s > begin:
            labels = {"transition": True} if expect is None else expect.labels(self.names)
            self.windows.append({"from_s": begin, "to_s": round(until_s, 1), **labels})

    def undo(self, what: str, target: str, run: Callable[[], object]) -> Undo:
        """Say how something is put back, before it is done: what fails half way is put back too."""
        self.undos.append(Undo(what, target, run))
        return self.undos[-1]

    def end(self, undo: Undo) -> None:
        """Put one thing back now."""
        undo.run()
        self.undos.remove(undo)
        self.did(undo.what, undo.target)

    def put_back(self, keep: int = 0) -> None:
        """Put everything back, the last first, down to the first `keep`.

        One that fails does not keep the others from being put back, and stays on the list to be tried again.

        Raises:
            DeploymentError: something could not be put back.
        """
        failed, why = list[Undo](), list[str]()
        while len(self.undos) > keep:
            undo = self.undos.pop()
            try:
                undo.run()
            except Exception as error:  # noqa: BLE001  whatever one says, the others must be put back as well
                failed.append(undo)
                why.append(f"{undo.what} {undo.target}: {error}")
            else:
                self.did(undo.what, undo.target)
        self.undos += reversed(failed)
        if failed:
            raise DeploymentError(
                "not everything could be put back",
                why="; ".join(why),
                hint="`pdops status` shows what is left; `pdops down`, then `pdops up` makes a new deployment",
            )

    def load(self, **settings: float) -> Callable[[], None]:
        """Start load at the router and return what ends it; it ends by itself too."""
        return self.crew.load(self.deployment.router_url, self.deployment.spec.served_model, settings)

    def read(self, part: str, family: str, **labels: str) -> float | None:
        """Return the sum of a family on a part's page of metrics; None while it cannot be read or has none."""
        try:
            return pages.total(self.deployment.metrics(part), family, **labels)
        except (OSError, NotExposition):
            return None

    def total(self, part: str, family: str, **labels: str) -> float:
        """Return the same, 0 for what is not there."""
        return self.read(part, family, **labels) or 0.0

    def baseline(self, part: str, family: str) -> float:
        """Return where a counter stands before something is done; what cannot be read is waited for, never taken for 0.

        Raises:
            DeploymentError: it could not be read within ten seconds.
        """
        found: list[float] = []

        def read() -> bool:
            value = self.read(part, family)
            found.extend([] if value is None else [value])
            return bool(found)

        self.wait_for(f"{family} of {part} can be read", read, 10)
        return found[0]

    def until_moved(self, part: str, family: str, limit_s: float) -> None:
        """Wait until a counter has grown since it could first be read.

        Raises:
            DeploymentError: it did not within `limit_s`.
        """
        first: list[float] = []

        def moved() -> bool:
            value = self.read(part, family)
            if value is None:
                return False
            first.append(value)
            return value > first[0]

        self.wait_for(f"{family} of {part}", moved, limit_s)

    def switch_router(self, mode: str, **more: object) -> None:
        """Set the router's drill switch."""
        d = self.deployment
        pages.post(f"{d.router_url}/admin/drills", {"mode": mode, **more}, 10.0, d.admin_token_file)

    def restart(
        self, part: str, *, overrides: Mapping[str, str | None] | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Stop a part and start it with other options, or with its own; returns when it serves."""
        self.did("stop and start", part)
        if self.deployment.alive(part):
            self.deployment.stop(part, grace_s=20.0)
        self.deployment.start(part, overrides=overrides or {}, env=env or {})
        self.deployment.wait_ready(part, timeout_s=READY_S)

    def revive(self, part: str) -> None:
        """Start a part anew unless it runs; returns when it serves."""
        if not self.deployment.alive(part):
            self.did("start a new one", part)
            self.deployment.start(part)
        self.deployment.wait_ready(part, timeout_s=READY_S)
