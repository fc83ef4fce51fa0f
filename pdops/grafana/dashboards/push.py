"""Bring our dashboards to a Grafana server: say first what would change, touch nothing that is not ours."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pdops.grafana.dashboards.build import TAG
from pdops.grafana.dashboards.client import Grafana

FOLDER_UID, FOLDER = "pdops", "pdops"
_SERVERS_OWN = ("id", "version")
"""Fields a server sets; they are no difference."""

Change = Literal["new", "changed", "same", "foreign"]


@dataclass(frozen=True, slots=True)
class Step:
    """One dashboard: what would happen to it, and the difference as lines; `version` is the server's, to notice rivals."""

    uid: str
    change: Change
    diff: tuple[str, ...] = ()
    version: int | None = None


def plan(server: Grafana, files: Mapping[str, str]) -> tuple[Step, ...]:
    """Return what pushing would change. A dashboard with our uid but without our tag is foreign and left alone."""
    found = []
    for text in files.values():
        ours = json.loads(text)
        there = server.get(ours["uid"])
        theirs = None if there is None else there.get("dashboard", {})
        if theirs is None:
            found.append(Step(ours["uid"], "new"))
        elif TAG not in theirs.get("tags", ()):
            found.append(Step(ours["uid"], "foreign"))
        else:
            diff = tuple(_diff(theirs, ours))
            found.append(Step(ours["uid"], "changed" if diff else "same", diff, theirs.get("version")))
    return tuple(found)


def push(server: Grafana, files: Mapping[str, str], steps: tuple[Step, ...], message: str, folder: str = FOLDER) -> int:
    """Carry out a plan and return how many dashboards were written; running it again writes none."""
    by_uid = {document["uid"]: document for document in map(json.loads, files.values())}
    todo = [step for step in steps if step.change in ("new", "changed")]
    if todo:
        server.folder(FOLDER_UID, folder)
    for step in todo:
        document = dict(by_uid[step.uid])
        if step.version is not None:
            document["version"] = step.version
        server.push(document, FOLDER_UID, message)
    return len(todo)


def _diff(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    before, after = (json.dumps(_plain(d), sort_keys=True, indent=1).splitlines() for d in (theirs, ours))
    return list(difflib.unified_diff(before, after, "on the server", "ours", lineterm="", n=1))


def _plain(document: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k not in _SERVERS_OWN}
