"""A double of a backend: a world in one file, replaced as a whole, which remembers every effect that happened to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from pdops.actuate.backend import Capabilities, Effect, Fence, Params, Seen, State, Value
from pdops.errors import ActionError, FencedError
from pdops.runbook.actions import SHIPPED

START: dict[str, Value] = {
    "pool/prefill/replicas": 1,
    "pool/decode/replicas": 2,
    "worker/prefill-0/role": "prefill",
    "worker/prefill-0/cordoned": False,
    "worker/prefill-0/starts": 1,
    "worker/decode-0/role": "decode",
    "worker/decode-0/cordoned": False,
    "worker/decode-0/starts": 1,
    "worker/prefill-1/routed": False,
}


class DoubleBackend:
    """Does what it is told, unless it is told to fail.

    Args:
        path: the file of its world.
        on_effect: called before an effect changes the world.
    """

    name = "double"

    def __init__(self, path: Path, on_effect: Callable[[str], None] = lambda _: None) -> None:
        self.path, self.on_effect = path, on_effect
        self.fails: set[str] = set()
        self.blind: set[str] = set()
        if not path.exists():
            self._write({"values": dict(START), "effects": [], "fence": 0})

    def capabilities(self) -> Capabilities:
        return Capabilities(frozenset(spec.name for spec in SHIPPED))

    def observe(self) -> State:
        values = {
            subject: Seen(None, "double", "it is blind") if subject in self.blind else Seen(value, "double")
            for subject, value in self.world["values"].items()
        }
        return State(at_s=0.0, values=values)

    def apply(self, action: str, params: Params, fence: Fence) -> Effect:
        world = self.world
        if fence.number < world["fence"]:
            raise FencedError("an older fence", hint="-")
        subject, value = aimed(action, params)
        if action in self.fails:
            raise ActionError(f"{action} does not work", hint="-")
        if subject is None:
            return Effect(changed=False, detail="looked")
        if world["values"].get(subject) == value:
            return Effect(changed=False)
        self.on_effect(subject)
        world["values"][subject] = value
        world["effects"].append([fence.run, action, subject, value])
        world["fence"] = fence.number
        self._write(world)
        return Effect(changed=True, detail=f"{subject} is {value}")

    def move(self, subject: str, value: Value) -> None:
        """Let somebody else change the world."""
        world = self.world
        world["values"][subject] = value
        self._write(world)

    @property
    def world(self) -> dict:
        """All of it."""
        return json.loads(self.path.read_text())

    @property
    def effects(self) -> list[list]:
        """What happened: run, action, subject, value."""
        return self.world["effects"]

    def _write(self, world: dict) -> None:
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(world))
        fresh.replace(self.path)


def aimed(action: str, params: Params) -> tuple[str | None, Value]:
    """Return what an action sets, from its parameters alone."""
    worker = params.get("worker")
    return {
        "pool.scale-out": (f"pool/{params.get('role')}/replicas", params.get("replicas")),
        "pool.scale-in": (f"pool/{params.get('role')}/replicas", params.get("replicas")),
        "router.add": (f"worker/{worker}/routed", True),
        "router.remove": (f"worker/{worker}/routed", False),
        "worker.cordon": (f"worker/{worker}/cordoned", True),
        "worker.uncordon": (f"worker/{worker}/cordoned", False),
        "worker.restart": (f"worker/{worker}/starts", params.get("starts")),
    }.get(action, (None, None))
