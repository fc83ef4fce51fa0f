"""Doubles of `systemctl` and `docker`: programs on PATH that keep units in a file and write down how they were called.

They stand for the few subcommands that are used, with output as systemd 252 and Docker Compose 2 print it.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

_HEAD = """#!{python} -IS
import json, sys
from pathlib import Path
world_file, calls = Path({world!r}), Path({calls!r})
argv = sys.argv[1:]
with calls.open("a") as out:
    out.write(json.dumps([{name!r}, *argv]) + "\\n")
world = json.loads(world_file.read_text())
if world.get("broken"):
    print(world["broken"], file=sys.stderr)
    sys.exit(1)
def save():
    world_file.write_text(json.dumps(world))
def begin(name):
    world["units"][name]["starts"] += 1
    world["units"][name]["state"] = "running"
    save()
def end(name):
    world["units"][name]["state"] = "stopped"
    save()
"""
_SYSTEMCTL = """
rest = [a for a in argv if not a.startswith("--")]
verb, names = rest[0], argv[argv.index("--") + 1:]
if verb == "show":
    for name in names:
        unit = world["units"].get(name)
        state = {"running": ("active", "running"), "stopped": ("inactive", "dead"), "failed": ("failed", "failed"),
                 "waits": ("activating", "auto-restart"), "odd": ("maintenance", "")}
        active, sub = state[unit["state"]] if unit else ("inactive", "dead")
        print(f"Id={name}\\nNames={name}\\nLoadState={'loaded' if unit else 'not-found'}\\nActiveState={active}")
        print(f"SubState={sub}\\nFreezerState=running\\nInvocationID={'%032x' % unit['starts'] if unit else ''}\\n")
else:
    for name in names:
        if name not in world["units"]:
            print(f"Failed to {verb} {name}: Unit {name} not found.", file=sys.stderr)
            sys.exit(5)
        if verb == "start" and world["units"][name]["state"] != "running":
            begin(name)
        if verb == "stop" and world["units"][name]["state"] != "stopped":
            end(name)
"""
_DOCKER = """
if argv[:2] == ["compose", "version"]:
    if world.get("no_compose"):
        print("docker: 'compose' is not a docker command.", file=sys.stderr)
        sys.exit(1)
    print("Docker Compose version v2.39.0")
elif argv[0] == "inspect":
    ids, found = argv[argv.index("--") + 1:], []
    for one in ids:
        unit = world["units"][one.removeprefix("id-")]
        status = {"running": "running", "stopped": "exited", "failed": "dead", "waits": "restarting", "odd": "strange"}
        found.append({"Id": one, "State": {"Status": status[unit["state"]], "StartedAt": "T%d" % unit["starts"]}})
    print(json.dumps(found))
elif "ps" in argv:
    for name, unit in world["units"].items():
        if unit["starts"]:
            print(json.dumps({"ID": "id-" + name, "Service": name, "State": unit["state"]}))
else:
    name = argv[argv.index("--") + 1]
    if name not in world["units"]:
        print(f"no such service: {name}", file=sys.stderr)
        sys.exit(1)
    if "up" in argv and world["units"][name]["state"] != "running":
        begin(name)
    if "stop" in argv and world["units"][name]["state"] != "stopped":
        end(name)
"""


@dataclass(eq=False)
class ProgramDouble:
    """Where its world and its calls are."""

    folder: Path
    name: str

    @property
    def world(self) -> dict:
        return json.loads((self.folder / "world.json").read_text())

    def move(self, **more: object) -> None:
        """Let somebody else change its world."""
        (self.folder / "world.json").write_text(json.dumps({**self.world, **more}))

    def set_state(self, unit: str, state: str) -> None:
        """Set how one unit is."""
        world = self.world
        world["units"][unit]["state"] = state
        (self.folder / "world.json").write_text(json.dumps(world))

    @property
    def calls(self) -> list[list[str]]:
        """How it was called, program first."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def changes(self) -> list[list[str]]:
        """Calls that change something."""
        return [c for c in self.calls if {"start", "stop", "up"} & set(c)]


def program(folder: Path, name: str, units: dict[str, str]) -> ProgramDouble:
    """Put a double into a folder of PATH; `units` are names and states."""
    bin_ = folder / "bin"
    bin_.mkdir(exist_ok=True)
    made = {unit: {"state": state, "starts": int(state != "stopped")} for unit, state in units.items()}
    (folder / "world.json").write_text(json.dumps({"units": made}))
    text = (
        _HEAD.format(python=sys.executable, world=str(folder / "world.json"), calls=str(folder / "calls"), name=name)
        + {"systemctl": _SYSTEMCTL, "docker": _DOCKER}[name]
    )
    file = bin_ / name
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return ProgramDouble(folder, name)


def first_on_path(folder: Path) -> str:
    """Return a PATH on which the doubles of a folder come first."""
    return f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
