"""A deployment, a crew and a clock that only pretend: drills run against them in no time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pdops.clock import VirtualClock
from pdops.model.cluster import Role
from pdops.reference.drills.play import Hands
from pdops.reference.spec import DeploymentSpec, EngineSpec, Profile, RouterSpec, StoreSpec

START_S = 1_800_000_000.0
P, D, R, S = "prefill-0", "decode-0", "router-0", "store-0"


def spec(*, store: bool = False, router: str = "pdops") -> DeploymentSpec:
    return DeploymentSpec(
        name="double",
        profile=Profile.CPU,
        model="/model",
        served_model="tiny",
        engines=(
            EngineSpec(id=P, role=Role.PREFILL, host="127.0.0.1", port=1, side_port=2, engine_id=P, blocks=1000),
            EngineSpec(id=D, role=Role.DECODE, host="127.0.0.1", port=3, side_port=4, engine_id=D, blocks=400),
        ),
        router=RouterSpec(port=5, kind=router),  # type: ignore[arg-type]
        store=StoreSpec(rpc_port=6, metrics_port=7, http_port=8) if store else None,
        kv_bytes_per_token=1024,
    )


@dataclass
class Links:
    """KV links that remember what is wrong with them."""

    did: Callable[[str, str], None]
    broken: set[str] = field(default_factory=set)

    def slow(self, worker: str, bits_per_s: float, latency_ms: float = 400.0) -> None:
        self._break("slow", worker)

    def lossy(self, worker: str, percent: float) -> None:
        self._break("lossy", worker)

    def cut(self, worker: str) -> None:
        self._break("cut", worker)

    def _break(self, how: str, worker: str) -> None:
        self.broken.add(worker)
        self.did(how, worker)

    def clear(self, worker: str) -> None:
        self.did("clear", worker)
        self.broken.discard(worker)

    def enter(self, worker: str) -> list[str]:
        return ["env"]

    def kv_address(self, worker: str) -> str:
        return "127.0.0.1"


@dataclass
class Double:
    """A deployment that is up. Every counter grows with each look, so every effect shows at once."""

    state_dir: Path
    spec: DeploymentSpec
    network: Links | None = None
    calls: list[str] = field(default_factory=list)
    dead: set[str] = field(default_factory=set)
    frozen: set[str] = field(default_factory=set)
    options: dict[str, dict[str, str | None]] = field(default_factory=dict)
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    switch: str = "none"
    registered: set[str] = field(default_factory=lambda: {P, D})
    looks: int = 0
    fails: str = ""

    @property
    def inventory(self) -> Path:
        return self.state_dir / "pdops.yaml"

    @property
    def router_url(self) -> str:
        return "http://127.0.0.1:5"

    @property
    def admin_token_file(self) -> Path:
        return self.state_dir / "token"

    def url(self, worker: str) -> str:
        return f"http://double/{worker}"

    def alive(self, worker: str) -> bool:
        return worker not in self.dead

    def serves(self, worker: str) -> str | None:
        return "its process has ended" if worker in self.dead else None

    def metrics(self, worker: str) -> str:
        self.looks += 1
        names = ("nixl_num_failed_transfers_total", "nixl_num_kv_expired_reqs_total", "num_preemptions_total")
        names += ("nixl_num_notifications_after_expiry_total", "num_requests_waiting", "prompt_tokens_total")
        lines = [f'vllm:{name}{{engine="0"}} {10 * self.looks}' for name in names]
        lines.append('vllm:num_requests_kv_fetch_by_stage{stage="in_progress"} 1')
        return "\n".join(lines) + "\n"

    def kill(self, worker: str) -> None:
        self.did("kill", worker)
        self.dead.add(worker)

    def stop(self, worker: str, grace_s: float = 15.0) -> object:
        self.did("stop", worker)
        self.dead.add(worker)
        return True

    def freeze(self, worker: str) -> None:
        self.did("freeze", worker)
        self.frozen.add(worker)

    def thaw(self, worker: str) -> None:
        self.did("thaw", worker)
        self.frozen.discard(worker)

    def start(
        self,
        worker: str,
        *,
        same_identity: bool = False,
        overrides: Mapping[str, str | None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        assert worker in self.dead, f"{worker} runs already"
        self.did("start", worker)
        self.dead.discard(worker)
        self.options[worker], self.environment[worker] = dict(overrides or {}), dict(env or {})
        (self.stale.add if same_identity else self.stale.discard)(worker)

    def wait_ready(self, worker: str, timeout_s: float = 900.0) -> float:
        assert worker not in self.dead
        self.did("wait_ready", worker)
        return 1.0

    def whole(self) -> bool:
        """Whether nothing is left of any drill."""
        changed = any(self.options.values()) or any(self.environment.values())
        broken = self.network.broken if self.network is not None else set()
        lost = self.registered != {P, D}
        return not (self.dead or self.frozen or self.stale or changed or broken or lost) and self.switch == "none"

    def did(self, what: str, worker: str) -> None:
        self.calls.append(f"{what} {worker}")
        if self.fails == self.calls[-1]:
            self.fails = ""
            raise RuntimeError(f"{what} {worker} fails")


@dataclass
class Cast:
    """A crew that starts nothing; the recording is as long as the clock says."""

    clock: VirtualClock
    loads: list[dict[str, float]] = field(default_factory=list)
    running: int = 0
    recording: bool = False
    begun_s: float = 0.0
    at: Callable[[float], None] = lambda _seconds: None

    def load(self, url: str, model: str, settings: Mapping[str, float]) -> Callable[[], None]:
        self.loads.append(dict(settings))
        self.running += 1
        ended: list[bool] = []

        def end() -> None:
            if not ended:
                ended.append(True)
                self.running -= 1

        return end

    def record(self, inventory: Path, output: Path) -> float:
        output.write_bytes(b"recorded")
        self.recording, self.begun_s = True, self.clock.now()
        return self.begun_s

    def check(self) -> None:
        if self.recording:
            self.at(self.clock.now() - self.begun_s)

    def finish(self) -> float:
        self.stop()
        return self.clock.now() - self.begun_s + 1.3

    def stop(self) -> None:
        self.recording, self.running = False, 0


def hands(clock: VirtualClock, lines: list[str]) -> Hands:
    return Hands(lines.append, clock, clock.advance)
