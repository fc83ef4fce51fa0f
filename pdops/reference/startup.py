"""What engines spent their start on, from the start-up spans they export over OTLP.

The file is OTLP/JSON, one export a line, as the file exporter of an OpenTelemetry Collector writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdops.errors import UsageError
from pdops.sources.redact import clean

STAGES = (
    "API server setup",
    "AsyncMPClient init",
    "Overall Loading",
    "EngineCoreProc init",
    "Executor init",
    "Worker init",
    "Init device",
    "Load model",
    "Download weights - HF",
    "Initialize model",
    "Load weights",
    "Loading (CPU)",
    "Loading (GPU)",
    "Prepare model",
    "Compile graph",
    "Inductor compilation",
    "Allocate KV cache",
    "Warmup (CPU)",
    "Warmup (GPU)",
    "Capture model",
)
"""Names of the spans of a start, as vLLM 0.32 gives them (`@instrument` in its sources); they lie in each other."""
MAX_BYTES = 64 << 20
_MOST_SPANS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSpan:
    """A part of a start of one engine: when it began (Unix seconds) and how long it took."""

    worker: str
    name: str
    begin_s: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSpans:
    """What a file tells; `unreadable` counts lines that are no export."""

    spans: tuple[StartSpan, ...]
    unreadable: int = 0

    def of(self, worker: str, since_s: float) -> tuple[StartSpan, ...]:
        """Return the spans of a worker's start that began after a moment (Unix seconds), in order of time.

        Of spans with one name, which several processes of an engine give, the longest stands for all.
        """
        longest: dict[str, StartSpan] = {}
        for span in self.spans:
            if span.worker == worker and span.begin_s >= since_s:
                known = longest.get(span.name)
                if known is None or span.seconds > known.seconds:
                    longest[span.name] = span
        return tuple(sorted(longest.values(), key=lambda s: (s.begin_s, -s.seconds)))


def read(path: Path) -> StartSpans:
    """Read a file of exports.

    Raises:
        UsageError: it cannot be read, or is larger than 64 MiB.
    """
    what, hint = "spans cannot be read", "give the file that an OpenTelemetry Collector's file exporter writes"
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(what, where=str(path), why=(error.strerror or str(error)).lower(), hint=hint) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(what, where=str(path), why="it is larger than 64 MiB", hint="give the part of the start only")
    spans: list[StartSpan] = []
    unreadable = 0
    for line in raw.splitlines():
        if not line.strip():
            continue
        try:
            spans += _spans(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            unreadable += 1
        if len(spans) > _MOST_SPANS:
            raise UsageError(what, where=str(path), why=f"it has more than {_MOST_SPANS} spans of starts", hint=hint)
    return StartSpans(spans=tuple(spans), unreadable=unreadable)


def _spans(export: Mapping[str, Any]) -> Iterator[StartSpan]:
    for resource in export["resourceSpans"]:
        worker = _service(resource.get("resource", {}).get("attributes", ()))
        if worker is None:
            continue
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                if span.get("name") in STAGES:
                    begin_ns, end_ns = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                    yield StartSpan(
                        worker=worker,
                        name=span["name"],
                        begin_s=begin_ns / 1e9,
                        seconds=max(0, end_ns - begin_ns) / 1e9,
                    )


def _service(attributes: Any) -> str | None:
    for entry in attributes:
        if entry.get("key") == "service.name":
            return clean(str(entry["value"]["stringValue"]))[:63]
    return None
