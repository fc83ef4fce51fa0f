"""The programs that print logs: journalctl and kubectl, their argument lists and line forms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pdops.model.times import rfc3339
from pdops.sources.logs.batch import MAX_LINE_BYTES, Line, decode
from pdops.sources.logs.follow import Program

_WARNING = 4
"""syslog's severity of a warning; smaller is worse (RFC 5424, table 2)."""
_LONGEST = 4 * MAX_LINE_BYTES


def journald(unit: str) -> Program:
    """Return how the journal of a systemd unit of this machine is followed."""

    def argv(since_s: float | None) -> Sequence[str]:
        # The last line there is tells a unit that logs from one that nobody knows; it is old and is left out.
        begin = "--lines=1" if since_s is None else f"--since=@{since_s:.0f}"
        fields = "--output-fields=MESSAGE,PRIORITY"
        return ("journalctl", f"--unit={unit}", "--follow", begin, "--output=json", fields, "--no-pager")

    return Program(
        f"journald {unit}",
        argv,
        journal_line,
        absent="run pdops on the machine of that worker, or name its log as file, kubernetes or loki",
        failed=f"run `journalctl --unit={unit}` by hand; reading needs the group systemd-journal",
        silent="nothing of this unit is in the journal",
    )


def kubernetes(pod: str, *, namespace: str | None, container: str | None, context: str | None) -> Program:
    """Return how the log of a pod is followed."""
    options = {"namespace": namespace, "container": container, "context": context}
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]

    def argv(since_s: float | None) -> Sequence[str]:
        begin = ["--tail=0"] if since_s is None else [f"--since-time={rfc3339(since_s)}"]
        return ("kubectl", "logs", "--follow", *begin, *given, pod)

    place = "/".join(part for part in (namespace, pod, container) if part is not None)
    return Program(
        f"kubernetes {place}",
        argv,
        plain_line,
        absent="install kubectl where pdops runs, or name the log as file, journald or loki",
        failed=f"run `kubectl logs {' '.join([*given, pod])}` by hand; reading needs get on pods/log",
    )


def plain_line(raw: bytes) -> Line:
    """Read a line that is only text."""
    return Line(decode(raw))


def journal_line(raw: bytes) -> Line | None:
    """Read an entry of `journalctl --output=json`; None when it has no text."""
    if len(raw) > _LONGEST * 4:
        return None
    try:
        entry = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    text = _message(entry.get("MESSAGE"))
    if text is None:
        return None
    return Line(decode(text), _time(entry.get("__REALTIME_TIMESTAMP")), _severe(entry.get("PRIORITY")))


def _message(message: Any) -> bytes | None:
    """Return a message, which journald gives as numbers when it is no text."""
    if isinstance(message, str):
        return message.encode("utf-8", "replace")
    if isinstance(message, list) and all(isinstance(n, int) and 0 <= n < 256 for n in message):
        return bytes(message)
    return None


def _time(microseconds: Any) -> float | None:
    if isinstance(microseconds, str) and microseconds.isascii() and microseconds.isdigit() and len(microseconds) < 18:
        return int(microseconds) / 1e6
    return None


def _severe(priority: Any) -> bool:
    return isinstance(priority, str) and priority in set(map(str, range(_WARNING + 1)))
