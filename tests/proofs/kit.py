"""What the proofs share: a deployment of their own, the command line as a user types it, a load, and what is printed."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.reference import model, pages
from pdops.reference.running import Running
from pdops.runbook.journal import Journal, Run
from pdops.runbook.load import find_runbook
from pdops.runbook.states import RunState

ROOT = Path(__file__).parents[2]
PDOPS = (sys.executable, "-m", "pdops")
READY_S = 600.0
"""Bound of every wait for an engine: a busy machine needed 460 s."""


class ProofError(Exception):
    """What was to be proved is not so."""


@dataclass
class Proof:
    """One deployment, one journal, one story told on standard output."""

    folder: Path
    begin: float = field(default_factory=time.monotonic)
    loads: list[Load] = field(default_factory=list)

    @property
    def place(self) -> Path:
        """Folder of the deployment."""
        return self.folder / "state"

    @property
    def now(self) -> Running:
        """The deployment as it is written down."""
        return Running.open(self.place)

    @property
    def journal(self) -> tuple[str, str]:
        """Option that names the journal."""
        return "--journal", str(self.folder / "journal.db")

    def say(self, text: str) -> None:
        """Tell what happens, with the seconds since the start."""
        print(f"[{time.monotonic() - self.begin:6.0f} s] {text}", flush=True)

    def pdops(self, *args: str, codes: tuple[int, ...] = (0,), show: bool = True, limit_s: float = 1800) -> str:
        """Run a command and return what it prints.

        Raises:
            ProofError: it ended with another status than one of `codes`.
        """
        self.say("$ pdops " + " ".join(args).replace(str(self.folder), "DIR"))
        env = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
        done = subprocess.run(
            [*PDOPS, *args], cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit_s, check=False
        )
        if show:
            print("".join(f"    {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
        if done.returncode not in codes:
            raise ProofError(f"`pdops {args[0]} …` ended with {done.returncode}: {done.stderr.strip()[-1500:]}")
        return done.stdout

    def load(self, rate: float, seconds: float, **more: float) -> Load:
        """Send requests through the router."""
        started = Load(self.now.router_url, rate, seconds, more, self.folder / f"load-{len(self.loads)}.json")
        self.loads.append(started)
        return started

    def wait(self, what: str, look: Callable[[], Any], limit_s: float) -> Any:
        """Return what a look finds once it finds something.

        Raises:
            ProofError: it does not in time.
        """
        self.say(f"waiting for {what} (at most {limit_s:.0f} s)")
        end = time.monotonic() + limit_s
        while True:
            with contextlib.suppress(OSError):
                if found := look():
                    return found
            if time.monotonic() > end:
                raise ProofError(f"not within {limit_s:.0f} s: {what}")
            time.sleep(1.0)

    def served(self) -> float:
        """Return how many requests the router has answered well.

        Raises:
            ProofError: it tells of none.
        """
        found = pages.total(self.now.metrics("router-0"), "pdops_router_requests_total", outcome="ok")
        if found is None:
            raise ProofError("the router tells of no request that it answered well")
        return found

    def throughput(self, seconds: float) -> float:
        """Return requests/s that are answered well, over so many seconds from now."""
        before, begin = self.served(), time.monotonic()
        time.sleep(seconds)
        return (self.served() - before) / (time.monotonic() - begin)

    def runs(self, runbook: str) -> tuple[Run, ...]:
        """Return the runs of a runbook, the oldest first."""
        with Journal(Path(self.journal[1]), WallClock()) as journal:
            return tuple(sorted((r for r in journal.runs() if r.runbook == runbook), key=lambda r: r.opened_at_s))

    def plan(self, runbook: str, *more: str, watch_s: int = 15, codes: tuple[int, ...] = (0,)) -> Path:
        """Plan a runbook, show the plan and return its file."""
        file = self.folder / f"plan-{Path(runbook).stem}-{len(list(self.folder.glob('plan-*')))}.json"
        self.pdops("runbook", "plan", runbook, *more, "-c", str(self.now.inventory), "--for", str(watch_s), "-o", str(file), codes=codes)  # fmt: skip
        return file

    def short(self, runbook: str, name: str, *, observe_s: int, alerts: bool = True) -> str:
        """Return the file of a shipped runbook with a shorter watch and no pause after it; without `alerts` none starts it."""
        content = find_runbook(runbook).model_dump(mode="json", by_alias=True, exclude_none=True)
        content |= {"id": name, "observe_s": observe_s, "cooldown_s": 0}
        if "recovery" in content:
            content["recovery"]["observe_s"] = observe_s
        if not alerts:
            content["triggers"]["alerts"] = []
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content))
        started = "" if alerts else ", which no alert starts here"
        self.say(f"{file.name} is the shipped {runbook}, watched for {observe_s} s at its end{started}")
        return str(file)

    def carry_out(self, plan: Path, *, codes: tuple[int, ...] = (0,), watch_s: int = 10) -> None:
        """Carry a plan out; one that waits for approval is approved by another name first."""
        where = ("-c", str(self.now.inventory), *self.journal, "--for", str(watch_s))
        made = json.loads(plan.read_text())
        if made["risk"] == "safe" and made["asked"] == "person":
            self.pdops("runbook", "apply", str(plan), *where, "--as", "ada", codes=codes)
            return
        self.pdops("runbook", "apply", str(plan), *where, "--as", "ada", codes=(6,), show=False)
        self.pdops("runbook", "approve", made["id"], *self.journal, "--as", "ben")
        self.pdops("runbook", "resume", made["id"], *where, "--as", "ada", codes=codes)


class Load:
    """A load process; what it counted is there when it has ended."""

    def __init__(self, url: str, rate: float, seconds: float, more: dict[str, float], file: Path) -> None:
        options = [f"--{name}={value:g}" for name, value in more.items()]
        command = [sys.executable, "-m", "pdops.reference.load", url, f"--model={model.NAME}", f"--rate={rate:g}"]
        self._file = file
        with file.open("w") as out:
            self._process = subprocess.Popen([*command, f"--duration={seconds:g}", *options], cwd=ROOT, stdout=out)

    def phase(self) -> None:
        """Count what is sent from now on by itself."""
        self._process.send_signal(signal.SIGUSR1)

    def end(self) -> dict[str, Any]:
        """End it and return its summary."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(200)
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found


@contextlib.contextmanager
def proof(title: str, *up: str) -> Iterator[Proof]:
    """Bring a deployment up for a proof, and take everything down at its end; the status is that of the proof."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep journal, plans and logs there")
    given = parser.parse_args()
    # Ended from outside it takes down what it started, as with Ctrl-C, which what runs in the background never gets.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        temporary = given.keep is None
        folder = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdops-proof-"))) if temporary else given.keep
        )
        folder.mkdir(parents=True, exist_ok=True)
        told = Proof(folder.absolute())
        told.say(title)
        try:
            told.pdops("up", "--state-dir", str(told.place), *up, show=False)
            stack.callback(_down, told)
            yield told
            told.say("PROVED")
        except ProofError as error:
            told.say(f"NOT PROVED: {error}")
            raise SystemExit(1) from None


def _down(told: Proof) -> None:
    for load in told.loads:
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            load.end()
    told.pdops("down", "--state-dir", str(told.place), "--deadline", "10", codes=(0, 1), show=False)


def over(run: Run) -> bool:
    """Whether a run has ended, or waits for a person."""
    return run.ended or run.state is RunState.HELD


def firing(told: Proof, *names: str) -> str | None:
    """Return which of these alerts Alertmanager has, the first that is named."""
    manager = next(s for s in told.now.spec.services if s.id == "alertmanager")
    alerts = json.loads(pages.get(f"{manager.url}/api/v2/alerts"))
    here = {a["labels"]["alertname"] for a in alerts if a["status"]["state"] == "active"}
    return next((n for n in names if n in here), None)


@contextlib.contextmanager
def responding(told: Proof, *modes: str, runbooks: tuple[str, ...] = (), watch_s: int = 30) -> Iterator[str]:
    """Run `pdops respond`, have Alertmanager send it every alert, and give its address; `runbooks` replace shipped ones."""
    tokens, token = told.folder / "respond.tokens", secrets.token_hex(16)
    tokens.touch(mode=0o600)
    tokens.write_text(f"alertmanager:operator:{token}\nada:admin:{secrets.token_hex(16)}\n")
    manager = next(s for s in told.now.spec.services if s.id == "alertmanager")
    args = ["respond", "-c", str(told.now.inventory), *told.journal, "--tokens", str(tokens), "--port", "0"]
    args += ["--alertmanager", manager.url, "--for", str(watch_s)]
    args += [word for mode in modes for word in ("--mode", mode)]
    args += [word for file in runbooks for word in ("--runbook", file)]
    told.say("$ pdops " + " ".join(args).replace(str(told.folder), "DIR") + " &")
    log = told.folder / "respond.log"
    with log.open("w") as err, subprocess.Popen([*PDOPS, *args], cwd=ROOT, stderr=err, stdout=err) as process:
        try:
            told.wait("respond to listen", lambda: _address(log, process), READY_S)
            url = _address(log, process)
            _route(told, manager.url, url, token)
            yield url
        finally:
            process.terminate()
            process.wait(60)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    if process.poll() is not None:
        raise ProofError(f"respond ended with {process.returncode}: {log.read_text()[-1000:]}")
    return next((w for line in log.read_text().splitlines() for w in line.split() if w.endswith("/alerts")), "")


def _route(told: Proof, manager: str, url: str, token: str) -> None:
    """Name respond as Alertmanager's receiver, and have it read that."""
    file = told.place / "alertmanager" / "alertmanager.yml"
    content = yaml.safe_load(file.read_text())
    hook = {"url": url, "http_config": {"authorization": {"credentials": token}}, "send_resolved": True}
    content["receivers"] = [{"name": "nobody"}, {"name": "respond", "webhook_configs": [hook]}]
    content["route"]["receiver"] = "respond"
    # Respond starts nothing by itself once the alert that always fires has not been heard for minutes.
    pulse = {"matchers": ['alertname="Watchdog"'], "receiver": "respond", "repeat_interval": "1m"}
    content["route"]["routes"] = [pulse]
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    ref = told.now.state.ref("alertmanager")
    assert ref is not None
    processes.send(ref, signal.SIGHUP)
    told.wait("Alertmanager to take it", lambda: "respond" in pages.get(f"{manager}/api/v2/status"), 30)
