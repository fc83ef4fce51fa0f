"""The pages that ship in the wheel: one a check, one a cause."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import resources

from pdops.catalog.load import catalog
from pdops.diagnose.checks import ALL
from pdops.diagnose.finding import Check

CAUSE = "cause/"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the index."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page as Markdown."""

    id: str
    title: str
    text: str


def index() -> tuple[Entry, ...]:
    """Return every id with its title: checks of a diagnosis in order of thought, those of preflight, then causes by name."""
    checks = tuple(Entry(check.meta.id, check.meta.title) for check in ALL)
    causes = tuple(Entry(CAUSE + name, spec.meaning) for name, spec in sorted(catalog().causes.items()))
    return checks + causes


def find(topic: str) -> Page | None:
    """Return a page by id; a cause is found without its prefix too. None when there is none."""
    for check in ALL:
        if check.meta.id == topic:
            return Page(topic, check.meta.title, _check_page(check))
    name = topic.removeprefix(CAUSE)
    return _cause_page(name) if name in catalog().causes else None


def close(topic: str) -> tuple[str, ...]:
    """Return ids that look like a mistyped one."""
    ids = [entry.id for entry in index()]
    near = difflib.get_close_matches(topic, ids, n=3, cutoff=0.5)
    return tuple(near or [i for i in ids if topic in i][:3])


def _check_page(check: Check) -> str:
    name = check.meta.id.replace("/", "_").replace("-", "_") + ".md"
    place = resources.files("pdops.diagnose.checks").joinpath(name)
    text = place.read_text(encoding="utf-8") if place.is_file() else f"# {check.meta.id}\n\n{check.meta.title}\n"
    meta = check.meta
    rows = [
        f"Causes: {', '.join(meta.causes)}",
        "Judged by: pdops preflight" if meta.preflight else f"Signals: {', '.join(meta.needs) or 'none'}",
        f"Alert: {meta.alert}, panel: {meta.panel}" if meta.alert else f"No alert: {meta.no_alert}",
    ]
    return text.rstrip("\n") + "\n\n---\n" + "\n".join(rows) + "\n"


def _cause_page(name: str) -> Page:
    spec = catalog().causes[name]
    found_by = [check.meta for check in ALL if name in check.meta.causes]
    lines = [
        f"# cause/{name}",
        "",
        f"{spec.meaning[0].upper()}{spec.meaning[1:]}.",
        "",
        f"Usual layer: {spec.layer}",
        "",
    ]
    if found_by:
        lines += ["Found by:", ""]
        lines += [f"- {meta.id}: {meta.title}" for meta in found_by]
    else:
        lines.append("No check of this version names it; it may be set by a person or by a later version.")
    return Page(CAUSE + name, spec.meaning, "\n".join(lines) + "\n")
