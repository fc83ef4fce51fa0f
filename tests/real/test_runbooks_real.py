"""Runbooks on the real pair: what they add is proved before it is used, taken back when it is wrong, and survives kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdops.actuate.router_admin import PdopsRouter
from pdops.reference import model
from pdops.reference.running import Running
from pdops.runbook.load import find_runbook
from tests.real.conftest import PREFILL, ROOT, pdops

pytestmark = [pytest.mark.real, pytest.mark.kills, pytest.mark.timeout(1800)]

NEW = "prefill-1"
WATCH = ("--for", "4")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The shared deployment, and where runs on it are written down."""

    place: Path
    folder: Path

    @property
    def now(self) -> Running:
        """The deployment as it is written down now."""
        return Running.open(self.place)

    def runbook(self, *args: str, code: int | None = 0) -> dict[str, Any]:
        """Run a command that looks at the cluster and prints JSON."""
        done = pdops("runbook", *args, *self.where(*args), timeout_s=900)
        print(done.stdout, done.stderr)
        assert code is None or done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def where(self, *args: str) -> tuple[str, ...]:
        """Return the options every such command needs."""
        mine = ("-c", str(self.now.inventory), *WATCH, "--json")
        return mine if args[0] == "plan" else (*mine, *self.journal())

    def journal(self) -> tuple[str, str]:
        """Return where runs are written down."""
        return "--journal", str(self.folder / "journal.db")

    def routed(self) -> set[str]:
        """Return whom the router knows."""
        return set(PdopsRouter(self.now.router_url, self.now.admin_token_file).workers())

    def plan(self, runbook: str | Path, *sets: str) -> Path:
        """Make a plan that is ready, and return its file."""
        file = self.folder / f"{Path(runbook).stem}-plan.json"
        chosen = [word for one in sets for word in ("--set", one)]
        assert self.runbook("plan", str(runbook), *chosen, "-o", str(file))["decision"] == "ready"
        return file

    def whole(self) -> None:
        """Look that nothing is left of what was tried: two engines, both routed, every pair right."""
        assert [e.id for e in self.now.spec.engines] == [PREFILL, "decode-0"]
        assert self.routed() == {PREFILL, "decode-0"}
        ports = [w for pid in self.now.pids() for w in _words(pid) if w.startswith("--port=")]
        assert sorted(ports) == sorted(f"--port={p}" for p in self._ports()), ports
        done = pdops("canary", "--state-dir", str(self.place))
        assert done.returncode == 0, done.stdout + done.stderr
        done = pdops("runbook", "verify-audit", *self.journal())
        assert done.returncode == 0, done.stdout + done.stderr

    def _ports(self) -> Iterator[int]:
        yield from (e.port for e in self.now.spec.engines)
        assert self.now.spec.router is not None
        yield self.now.spec.router.port


def _words(pid: int) -> list[str]:
    """Return the command line of a process that leads its group; workers of an engine have none of their own."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return words if os.getpgid(pid) == pid else []
    except OSError:
        return []


@pytest.fixture
def cluster(running: Running, tmp_path: Path) -> Cluster:
    """A journal for each test, as one for all would rightly refuse a fourth run within an hour."""
    return Cluster(running.state_dir, tmp_path)


@pytest.fixture
def other_weights(cluster: Cluster) -> Iterator[None]:
    """Publish other weights where the engines that run have loaded theirs from, and put the right ones back."""
    right = cluster.now.home.model / "model.safetensors"
    aside = right.with_suffix(".right")
    script = "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import model; model.SEED += 1; model.write(pathlib.Path(sys.argv[2]))"
    command = [str(cluster.now.python), "-c", script, str(Path(model.__file__).parent), str(right.parent)]
    right.rename(aside)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert right.read_bytes() != aside.read_bytes()
        yield
    finally:
        aside.rename(right)


def variant(runbook: str, name: str) -> dict[str, Any]:
    """Return a shipped runbook under another id, without its long watch and the pauses between runs, for a person to start."""
    content = find_runbook(runbook).model_dump(mode="json", by_alias=True, exclude_none=True)
    content["triggers"]["by_hand"] = True
    return {**content, "id": name, "observe_s": 1, "cooldown_s": 0, "budget_per_hour": 12}


def steps(run: dict[str, Any], phase: str = "do") -> dict[str, str]:
    """Return how far each step is."""
    return {
        e["body"]["id"]: e["body"]["to"] for e in run["events"] if e["kind"] == "step" and e["body"]["phase"] == phase
    }


@pytest.fixture(scope="module")
def more_and_less(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The shipped scale-out and scale-in without what needs traffic: nobody sends load here, so no latency is known."""
    folder = tmp_path_factory.mktemp("runbooks")
    out = _without_watch(
        "scale-out-prefill", "one-more", [{"check": "serving", "with": {"worker": {"new": "prefill"}}}]
    )
    less = _without_watch("scale-in", "one-less", [])
    less["guards"] = [g for g in less["guards"] if g["check"] in ("data-fresh", "no-rollout", "own-replicas")]
    less["steps"] = [{**s, "verify": []} for s in less["steps"] if s["id"] in ("evidence", "cordon", "scale")]
    for name, content in (("one-more", out), ("one-less", less)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder / "one-more.yaml", folder / "one-less.yaml"


def _without_watch(runbook: str, name: str, success: list[Any]) -> dict[str, Any]:
    return variant(runbook, name) | {"success": success}


@pytest.mark.soak
@pytest.mark.parametrize("point", ["after-intent", "after-effect"])
def test_a_scale_out_killed_at_a_boundary_is_resumed_with_one_engine_more(
    cluster: Cluster, more_and_less: tuple[Path, Path], point: str
) -> None:
    file = cluster.plan(more_and_less[0])
    command = [sys.executable, "-m", "tests.real.dies_at", "scale", point, "--", "runbook", "apply", str(file)]
    done = subprocess.run(
        [*command, *cluster.where("apply")], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    last = cluster.now.state.processes.get(NEW)
    assert (last is not None) == (point == "after-effect")
    run = cluster.runbook("resume", json.loads(file.read_text())["id"])
    assert run["state"] == "done"
    assert steps(run) == {"evidence": "verified", "scale": "verified", "canary": "verified", "route": "verified"}
    now = cluster.now.state.processes[NEW]
    assert now.starts == 1
    assert last is None or now.pid == last.pid
    assert cluster.routed() == {PREFILL, NEW, "decode-0"}

    file = cluster.plan(more_and_less[1], f"worker={NEW}")
    waiting = pdops("runbook", "apply", str(file), *cluster.where("apply"))
    assert waiting.returncode == 6, waiting.stdout + waiting.stderr
    name = json.loads(file.read_text())["id"]
    assert pdops("runbook", "approve", name, *cluster.journal(), "--as", "ben").returncode == 0
    assert cluster.runbook("resume", name)["state"] == "done"
    cluster.whole()


@pytest.mark.usefixtures("other_weights")
def test_a_scale_out_whose_new_worker_fails_its_canary_is_rolled_back(
    cluster: Cluster, more_and_less: tuple[Path, Path]
) -> None:
    run = cluster.runbook("apply", str(cluster.plan(more_and_less[0])), code=4)
    print("rolled back because", run["why"])
    assert run["state"] == "rolled-back"
    assert f"{NEW}>decode-0" in run["why"]
    assert "canary-passed" in run["why"]
    assert steps(run) == {"evidence": "verified", "scale": "verified", "canary": "failed"}
    assert steps(run, "undo") == {"scale": "verified"}
    cluster.whole()
