"""Who keeps engines running on a host: systemd and Docker Compose, asked through their own programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pdops.actuate import programs
from pdops.errors import ActionError

Running = Literal["running", "frozen", "stopped"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit or service: whether it runs (None: nobody can tell, and `why`), and a text that is another at every start."""

    process: Running | None
    incarnation: str = ""
    why: str = ""


class Supervisor(Protocol):
    """What is needed of one."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def missing(self) -> str | None:
        """Return why it cannot be asked here, or None."""
        ...

    def units(self, names: Sequence[str]) -> Mapping[str, Unit]:
        """Return every name with how it is; one that cannot be read is unknown, not stopped."""
        ...

    def start(self, name: str) -> None:
        """Start it; one that runs is left alone.

        Raises:
            ActionError: it could not be done.
        """
        ...

    def stop(self, name: str) -> None:
        """Stop it; one that does not run is left alone.

        Raises:
            ActionError: it could not be done.
        """
        ...


class Systemd:
    """Units of systemd.

    Args:
        user: units of the user's own manager, not of the system.
    """

    _SHOWN = "Id,Names,LoadState,ActiveState,SubState,FreezerState,InvocationID"

    def __init__(self, *, user: bool = False) -> None:
        self._base = ("systemctl", *(("--user",) if user else ()), "--no-pager", "--no-ask-password")
        self.name = "systemd" + (" --user" if user else "")

    def missing(self) -> str | None:
        """Return why it cannot be asked here, or None."""
        return programs.missing("systemctl")

    def units(self, names: Sequence[str]) -> Mapping[str, Unit]:
        """Ask `systemctl show`. See `Supervisor.units`."""
        try:
            told = programs.run((*self._base, "show", "--property", self._SHOWN, "--", *names), programs.LOOK_S)
        except ActionError as error:
            return {name: Unit(None, why=str(error)) for name in names}
        found: dict[str, Unit] = {}
        for block in told.split("\n\n"):
            values = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
            for name in {values.get("Id", ""), *values.get("Names", "").split()}:
                found[name] = _systemd_unit(values)
        return {name: found.get(name, Unit(None, why=f"systemd says nothing of {name}")) for name in names}

    def start(self, name: str) -> None:
        """Start it, and wait until systemd calls it started."""
        programs.run((*self._base, "start", "--", name), programs.CHANGE_S)

    def stop(self, name: str) -> None:
        """Stop it, and wait for its end."""
        programs.run((*self._base, "stop", "--", name), programs.CHANGE_S)


def _systemd_unit(values: Mapping[str, str]) -> Unit:
    state, load = values.get("ActiveState", ""), values.get("LoadState", "")
    if load != "loaded":
        return Unit(None, why=f"its unit is {load or 'not known'}")
    if values.get("FreezerState") in ("frozen", "freezing"):
        return Unit("frozen", values.get("InvocationID", ""), "its unit is frozen")
    if state in ("active", "reloading", "activating"):
        # A unit that waits to be started again after a failure has no process.
        if values.get("SubState") == "auto-restart":
            return Unit("stopped", why="it ended and waits to be started again")
        return Unit("running", values.get("InvocationID", ""))
    if state in ("inactive", "failed"):
        return Unit("stopped", why=f"its unit is {state}")
    return Unit(None, why=f"its unit is {state or 'not told'}")


class Compose:
    """Services of a Docker Compose project; one container each.

    Args:
        file: the project's file.
        project: its name.
    """

    def __init__(self, file: Path, project: str) -> None:
        self._base = ("docker", "compose", "--file", str(file), "--project-name", project, "--ansi", "never")
        self.name = f"compose {project}"
        self._found = False

    def missing(self) -> str | None:
        """Return why it cannot be asked here, or None."""
        if self._found:
            return None
        if (why := programs.missing("docker")) is not None:
            return why
        try:
            programs.run(("docker", "compose", "version"), programs.LOOK_S)
        except ActionError as error:
            return f"docker has no compose here: {error.why}"
        self._found = True
        return None

    def units(self, names: Sequence[str]) -> Mapping[str, Unit]:
        """Ask `docker compose ps` and `docker inspect`. See `Supervisor.units`."""
        try:
            told = programs.run((*self._base, "ps", "--all", "--format", "json"), programs.LOOK_S)
            listed = [row for row in _rows(told) if row.get("Service") in names]
            looks = _inspected([str(row["ID"]) for row in listed])
        except ActionError as error:
            return {name: Unit(None, why=str(error)) for name in names}
        except (ValueError, KeyError, TypeError) as error:
            return {name: Unit(None, why=f"what compose prints makes no sense: {error}") for name in names}
        found: dict[str, list[Unit]] = {}
        for row, look in zip(listed, looks, strict=True):
            found.setdefault(str(row["Service"]), []).append(look)
        return {name: _one(found.get(name, [])) for name in names}

    def start(self, name: str) -> None:
        """Create it where it is not, and start it, without what it depends on: order is the runbook's."""
        programs.run((*self._base, "up", "--detach", "--no-deps", "--no-recreate", "--", name), programs.CHANGE_S)

    def stop(self, name: str) -> None:
        """Stop it."""
        programs.run((*self._base, "stop", "--", name), programs.CHANGE_S)


def _rows(told: str) -> list[dict[str, Any]]:
    """Return rows of JSON: one list as older versions print, or a line each."""
    if told.lstrip().startswith("["):
        return list(json.loads(told))
    return [json.loads(line) for line in told.splitlines() if line.strip()]


def _inspected(ids: Sequence[str]) -> list[Unit]:
    if not ids:
        return []
    looks = json.loads(programs.run(("docker", "inspect", "--type", "container", "--", *ids), programs.LOOK_S))
    return [_container(look) for look in looks]


def _container(look: Mapping[str, Any]) -> Unit:
    state = look["State"]
    status = str(state["Status"])
    incarnation = f"{look['Id']} {state['StartedAt']}"
    if status == "running":
        return Unit("running", incarnation)
    if status == "paused":
        return Unit("frozen", incarnation, "its container is paused")
    if status in ("created", "exited", "dead", "restarting", "removing"):
        return Unit("stopped", why=f"its container is {status}")
    return Unit(None, why=f"its container is {status}")


def _one(found: Sequence[Unit]) -> Unit:
    if not found:
        return Unit("stopped", why="it has no container")
    if len(found) > 1:
        return Unit(None, why=f"it has {len(found)} containers; one service is one worker")
    return found[0]
