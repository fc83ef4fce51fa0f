"""How far the start of a deployment of `pdops up` is: its stages in order, and every process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pdops.errors import PdopsError
from pdops_tui.draw.line import Line, span, wrap
from pdops_tui.draw.sheet import Draft, Sheet
from pdops_tui.models.format import Style, seconds
from pdops_tui.models.text import clean, clip, pad
from pdops_tui.screens.scene import Scene

_STAGE: dict[str, tuple[str, Style]] = {
    "waiting": ("..", "dim"),
    "running": (">>", "key"),
    "ready": ("ok", "good"),
    "skipped": ("--", "dim"),
    "degraded": ("[!]", "warn"),
    "failed": ("[X]", "bad"),
}
_OVER = frozenset({"ready", "skipped", "degraded"})
_PROCESS: dict[str, Style] = {
    "serving": "good",
    "dead": "bad",
    "frozen": "warn",
    "not-ready": "warn",
    "never-started": "dim",
}
_BAR = 24


def sheet(scene: Scene) -> Sheet:
    """Return the start as the deployment's own state tells it."""
    out = Draft(scene.width)
    if scene.desk.starting is None:
        out.title("START")
        out.add(span(" no deployment of `pdops up` is known here: give -c with its inventory", "unknown"))
        return out.sheet()
    try:
        found = scene.desk.starting()
    except PdopsError as error:
        out.title("START")
        lines = wrap(clean(f"? its state cannot be read: {error}"), max(20, scene.width - 2))
        out.extend(span(f" {line}", "unknown") for line in lines)
        return out.sheet()
    if found is None:
        out.title("START")
        out.add(span(" the inventory belongs to no deployment of `pdops up`, so nothing is starting here", "dim"))
        return out.sheet()
    _stages(out, found)
    _processes(out, found)
    return out.sheet()


def _stages(out: Draft, found: Mapping[str, Any]) -> None:
    stages = list(found.get("stages", ()))
    done = sum(s["state"] in _OVER for s in stages)
    phase = clean(str(found.get("phase", "?")))
    out.title(
        f"START of {clean(str(found.get('name', '?')), 40)} · {phase}",
        f"profile {clean(str(found.get('profile', '?')))}",
    )
    if stages:
        full = round(done / len(stages) * _BAR)
        style: Style = "bad" if any(s["state"] == "failed" for s in stages) else "key"
        out.add((("  ", ""), ("█" * full + "░" * (_BAR - full), style), (f" {done} of {len(stages)} stages", "")))
    name = max((len(clean(str(s["id"]))) for s in stages), default=0)
    for stage in stages:
        sign, style = _STAGE.get(str(stage["state"]), ("?", "unknown"))
        lead: Line = (
            (f"  {pad(sign, 3)} ", style),
            (pad(clean(str(stage["id"])), name), ""),
            (pad(f" {clean(str(stage['state']))}", 10), style),
            (pad("" if stage["state"] in _OVER else seconds(float(stage["for_s"])), 6, right=True), "dim"),
        )
        room = max(10, out.width - name - 24)
        first, *rest = wrap(clean(str(stage["detail"] or "")), room)
        out.add((*lead, (f"  {first}", "")))
        out.extend(span(" " * (name + 24) + line) for line in rest)


def _processes(out: Draft, found: Mapping[str, Any]) -> None:
    entries = [*found.get("workers", ()), *found.get("services", ())]
    out.title(f"PROCESSES · {sum(e['state'] == 'serving' for e in entries)} of {len(entries)} serve")
    name = max((len(clean(str(e["id"]))) for e in entries), default=0)
    for entry in entries:
        state = clean(str(entry["state"]))
        up = entry.get("up_s")
        line: Line = (
            (f"  {pad(clean(str(entry['id'])), name)} ", ""), (pad(state, 14), _PROCESS.get(state, "unknown")),
            (pad(f"up {seconds(float(up))}" if up is not None else "", 10), "dim"),
            (clip(clean(str(entry.get("why") or entry.get("url") or "")), max(10, out.width - name - 30)), "dim"),
        )  # fmt: skip
        out.add(line)
