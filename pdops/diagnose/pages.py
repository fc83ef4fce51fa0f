"""The pages that ship in the wheel: one a check, one a cause, one a known log line, one a known-bad version."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from pdops.catalog.known_bad import KnownBad, known_bad
from pdops.catalog.line_search import PREFIX as LOG
from pdops.catalog.line_search import find as find_line
from pdops.catalog.line_search import near, search
from pdops.catalog.load import catalog
from pdops.catalog.log_lines import LineSpec, log_lines
from pdops.diagnose.checks import ALL
from pdops.diagnose.finding import Check

CAUSE = "cause/"
KNOWN_BAD = "known-bad/"

_MOST = 4
_SHOWN = 200

PageKind = Literal["check", "cause", "log", "known-bad", "alert"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the index."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page as Markdown; `line` is the entry a page about a log line is made of."""

    id: str
    title: str
    text: str
    kind: PageKind = "check"
    line: LineSpec | None = None


def index() -> tuple[Entry, ...]:
    """Return every id with its title.

    Checks of a diagnosis come in order of thought, then those of preflight, causes by name, known log lines and
    known-bad versions in the order of their tables.
    """
    checks = tuple(Entry(check.meta.id, check.meta.title) for check in ALL)
    causes = tuple(Entry(CAUSE + name, spec.meaning) for name, spec in sorted(catalog().causes.items()))
    lines = tuple(Entry(LOG + spec.id, spec.meaning) for spec in log_lines())
    return checks + causes + lines + tuple(Entry(KNOWN_BAD + entry.id, entry.what) for entry in known_bad())


def find(topic: str) -> Page | None:
    """Return a page by id; all but those of checks are found without their prefix too. None when there is none."""
    for check in ALL:
        if check.meta.id == topic:
            return Page(topic, check.meta.title, _check_page(check))
    name = topic.removeprefix(CAUSE)
    if name in catalog().causes:
        return _cause_page(name)
    line = find_line(topic)
    if line is not None:
        return _line_page(line)
    name = topic.removeprefix(KNOWN_BAD)
    return next((_bad_page(entry) for entry in known_bad() if entry.id == name), None)


def about(text: str) -> tuple[Page, ...]:
    """Return the pages of the known log lines that a pasted text is, or is a piece of, the best first."""
    pages = []
    for found in search(text):
        page = _line_page(found.spec)
        many = f"Found {found.times} times, first as:\n\n    {found.sample[:_SHOWN]}\n\n" if found.times > 1 else ""
        head, _, body = page.text.partition("\n\n")
        pages.append(Page(page.id, page.title, f"{head}\n\n{many}{body}", "log", found.spec))
    return tuple(pages)


def close(topic: str) -> tuple[str, ...]:
    """Return ids that look like a mistyped one, or that share words with a text."""
    ids = [entry.id for entry in index()]
    topic = topic[:_SHOWN]
    alike = difflib.get_close_matches(topic, ids, n=3, cutoff=0.5)
    if not alike:
        alike = [i for i in ids if topic in i][:3] if len(topic) > 2 else []
    return tuple(dict.fromkeys((*alike, *near(topic))))[:_MOST]


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
    told = [line for line in log_lines() if name in line.causes]
    if told:
        lines += ["", "Told by log lines:", ""]
        lines += [f"- {LOG}{line.id}: `{' … '.join(line.contains)}`" for line in told]
    return Page(CAUSE + name, spec.meaning, "\n".join(lines) + "\n", "cause")


def _line_page(spec: LineSpec) -> Page:
    cause = f"{CAUSE}{spec.cause}" if spec.cause else "none: the line is no sign of a fault"
    also = f"; it may also be {', '.join(CAUSE + name for name in spec.also)}" if spec.also else ""
    weighs = "little: it follows from a fault elsewhere" if spec.consequence else spec.weight
    lines = [
        f"# {LOG}{spec.id}",
        "",
        f"`{' … '.join(spec.contains)}`",
        "",
        f"{spec.meaning[0].upper()}{spec.meaning[1:]}.",
        "",
        f"- Logged by: {spec.component}{f' ({spec.seen_in})' if spec.seen_in else ''}",
        f"- Cause: {cause}{also}",
        f"- Layer: {spec.layer}",
        f"- First check: {spec.first_check}",
        f"- What ends it: {spec.fix or 'not known'}",
    ]
    if spec.runbooks:
        lines.append(f"- Runbooks: {', '.join(spec.runbooks)}")
    if spec.cause:
        lines.append(f"- As evidence it weighs: {weighs}")
    if spec.source:
        lines.append(f"- Source: {spec.source}")
    return Page(LOG + spec.id, spec.meaning, "\n".join(lines) + "\n", "log", spec)


def _bad_page(entry: KnownBad) -> Page:
    versions = ", ".join(f"{component} {spec}" for component, spec in sorted(entry.versions.items()))
    lines = [
        f"# {KNOWN_BAD}{entry.id}",
        "",
        f"{entry.what[0].upper()}{entry.what[1:]}.",
        "",
        f"- Versions: {versions}",
        *([f"- Only with backend: {entry.backend}"] if entry.backend else []),
        *([f"- Only where: {entry.where}"] if entry.where else []),
        f"- Cause: {CAUSE}{entry.cause}",
        f"- What to do: {entry.fix}",
        f"- How well founded: {entry.evidence}, {entry.source}",
    ]
    return Page(KNOWN_BAD + entry.id, entry.what, "\n".join(lines) + "\n", "known-bad")
