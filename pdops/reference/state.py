"""What a deployment writes down about itself, so that any later command finds it: one JSON file, replaced as a whole."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from pdops.actuate.processes import Ref
from pdops.errors import BusyError, DeploymentError, UsageError
from pdops.reference.folders import user_folder
from pdops.reference.spec import DeploymentSpec

SCHEMA = "pdops/deployment/v1"
_FILE = "state.json"
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")

Phase = Literal["starting", "up", "failed", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """One process as it was started; `starts` counts how often, times are Unix seconds."""

    pid: int
    start_ticks: int
    started_at_s: float
    command: tuple[str, ...]
    starts: int = 1
    engine_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """How far a stage of the start has come, since when (Unix seconds), and what it waits for."""

    id: str
    state: str
    since_s: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything later commands need to know."""

    mark: str
    phase: Phase
    created_at_s: float
    spec: DeploymentSpec
    engine_python: str
    network: str = "loopback"
    processes: dict[str, ProcessState] = field(default_factory=dict)
    stages: tuple[StageState, ...] = ()
    schema: str = SCHEMA

    def ref(self, process_id: str) -> Ref | None:
        """Return how a process of ours is found, or None when it was never started."""
        entry = self.processes.get(process_id)
        return Ref(entry.pid, entry.start_ticks, self.mark) if entry is not None else None

    def refs(self) -> tuple[Ref, ...]:
        """Return how all processes are found that were ever started."""
        return tuple(Ref(p.pid, p.start_ticks, self.mark) for p in self.processes.values())

    def with_process(self, process_id: str, entry: ProcessState) -> State:
        """Return a state in which a process has been started (again)."""
        return replace(self, processes={**self.processes, process_id: entry})


_ADAPTER = TypeAdapter(State)


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one deployment."""

    path: Path

    @property
    def file(self) -> Path:
        """The state file."""
        return self.path / _FILE

    @property
    def inventory(self) -> Path:
        """The inventory that `-c` takes."""
        return self.path / "pdops.yaml"

    @property
    def logs(self) -> Path:
        """Where everything logs."""
        return self.path / "logs"

    @property
    def model(self) -> Path:
        """The generated model."""
        return self.path / "model"

    @property
    def cache(self) -> Path:
        """What engines compile."""
        return self.path / "cache"

    @property
    def store(self) -> Path:
        """Configuration files of the KV store's clients."""
        return self.path / "store"

    @property
    def router(self) -> Path:
        """The router's token and list of workers."""
        return self.path / "router"

    @property
    def admin_token(self) -> Path:
        """The file with the token of the router's admin API."""
        return self.router / "admin.token"

    def log(self, process_id: str) -> Path:
        """Return where a process logs."""
        return self.logs / f"{process_id}.log"

    def prepare(self) -> None:
        """Make the folders, readable by their owner only.

        Raises:
            DeploymentError: they cannot be made or written to.
        """
        try:
            for folder in (self.path, self.logs, self.cache, self.store, self.router):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self.path / ".writable").open("wb"):
                pass
            (self.path / ".writable").unlink()
        except OSError as error:
            raise DeploymentError(
                "cannot write the deployment's state",
                where=str(self.path),
                why=error.strerror or str(error),
                hint="give another folder with --state-dir",
            ) from error

    def read(self) -> State | None:
        """Return what was written down, or None when nothing was.

        Raises:
            DeploymentError: it cannot be read.
        """
        try:
            text = self.file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DeploymentError(
                "cannot read the deployment's state",
                where=str(self.file),
                why=error.strerror or str(error),
                hint="make it readable; `pdops down --force` stops whatever carries the deployment's mark without it",
            ) from error
        try:
            if json.loads(text).get("schema") != SCHEMA:
                raise ValueError(f"not {SCHEMA}")
            state = _ADAPTER.validate_json(text)
        except (ValueError, AttributeError, RecursionError) as error:
            why = f"{len(error.errors())} fields do not fit" if isinstance(error, ValidationError) else str(error)
            raise DeploymentError(
                "the deployment's state does not make sense",
                where=str(self.file),
                why=why,
                hint="`pdops down --force` stops whatever carries its mark and removes the file",
            ) from error
        if state.mark != self.mark():
            raise DeploymentError(
                "this state belongs to a deployment in another folder",
                where=str(self.file),
                why=f"it is of {state.mark}",
                hint=f"give --state-dir {state.mark}",
            )
        return state

    def write(self, state: State) -> None:
        """Replace what is written down; a crash leaves the old or the new, never a part."""
        fresh = self.file.with_suffix(".new")
        with fresh.open("wb") as handle:
            handle.write(_ADAPTER.dump_json(state, indent=1) + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        fresh.replace(self.file)

    def clear(self) -> None:
        """Remove what is written down of a deployment that is down.

        Raises:
            DeploymentError: something else lies in its place, or it cannot be removed.
        """
        # A worker that was taken out of this router is not meant to be missing from the next.
        for path in (self.file, self.inventory, self.router / "workers.json"):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                why = "it is a folder, which pdops never made" if path.is_dir() else error.strerror or str(error)
                raise DeploymentError(
                    "everything is stopped, but what was written down of the deployment stays",
                    where=str(path),
                    why=why,
                    hint="move it away or remove it; the next `pdops up` makes its own",
                ) from error

    def mark(self) -> str:
        """Return the mark of this deployment's processes, the same for one folder at all times."""
        return str(self.path.resolve())

    @contextlib.contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Keep other commands from changing this deployment meanwhile.

        Raises:
            BusyError: another command is at it.
        """
        with (self.path / ".lock").open("a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.seek(0)
                raise BusyError(
                    f"cannot {what} now",
                    where=str(self.path),
                    why=f"another command is at it ({handle.read(80).strip() or 'unknown'})",
                    hint="wait for it, or stop it with Ctrl-C there; `pdops status` shows how far it is",
                ) from None
            handle.truncate(0)
            handle.write(f"{what}, pid {os.getpid()}\n")
            handle.flush()
            yield


def home(name: str = "default", state_dir: Path | None = None) -> Home:
    """Return the folder of a deployment: `state_dir`, else the user's state folder.

    Raises:
        UsageError: the name cannot be one.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:60]!r} cannot be a deployment's name",
            why="lower-case letters, digits and dashes, at most 32",
            hint="for example --name default",
        )
    if state_dir is not None:
        return Home(state_dir.absolute())
    return Home(user_folder("XDG_STATE_HOME", ".local/state") / "pdops" / "deployments" / name)
