"""The page of an alert: when it fires, what to do, and the page of the check behind it."""

from __future__ import annotations

import difflib

from pdops.diagnose import pages
from pdops.diagnose.pages import Entry, Page
from pdops.grafana.rules.build import alerts
from pdops.grafana.rules.types import Alert


def index() -> tuple[Entry, ...]:
    """Return every alert with its first line, in the order of the files."""
    found: dict[str, Entry] = {}
    for alert in alerts():
        found.setdefault(alert.name, Entry(alert.name, _plain(alert.summary)))
    return tuple(found.values())


def find(name: str) -> Page | None:
    """Return the page of an alert by its name, in any case; None when there is no such alert."""
    found = [alert for alert in alerts() if alert.name.lower() == name.lower()]
    return Page(found[0].name, _plain(found[0].summary), _text(found), "alert") if found else None


def close(name: str) -> tuple[str, ...]:
    """Return names of alerts that look like a mistyped one."""
    return tuple(difflib.get_close_matches(name, [entry.id for entry in index()], n=3, cutoff=0.6))


def _text(found: list[Alert]) -> str:
    first = found[0]
    lines = [f"# {first.name}", f"{_plain(first.summary)}.", "", "## When it fires"]
    for alert in found:
        held = "" if alert.for_.startswith("0") else f", held for {alert.for_}"
        told = "".join(f", {name} {value}" for name, value in alert.labels.items())
        lines += [f"Severity {alert.severity}{told}{held}:", "", f"    {alert.expr}", ""]
    lines += ["## What to do", *dict.fromkeys(alert.do for alert in found)]
    if first.cause is not None:
        lines += ["", f"Suspects: {first.cause} (`pdops explain cause/{first.cause}`)."]
    if first.symptom is not None:
        lines += ["", f"Symptom: {first.symptom}."]
    lines += ["", "It says nothing while its series are absent: that nothing fires is no health, see PDNoData."]
    behind = pages.find(first.check) if first.check is not None else None
    text = "\n".join(lines) + "\n"
    return text if behind is None else f"{text}\n{behind.text}"


def _plain(summary: str) -> str:
    """Return a summary with its label templates as words."""
    for left, right in (("{{ $labels.", "<"), (" }}", ">")):
        summary = summary.replace(left, right)
    return summary
