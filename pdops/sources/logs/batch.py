"""What every kind of log gives at one look, and which of its lines are kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from pdops.catalog.log_lines import recognise
from pdops.sources.redact import clean

MAX_READ_BYTES = 64 * 1024
"""Bytes of one log that are looked at each time; the newest ones."""
MAX_LINES = 200
"""Lines of one log that are kept each time; the newest ones."""
MAX_LINE_BYTES = 2 * 1024
_HEAD = 200

LogPattern = re.Pattern[str]

_LEVEL = re.compile(
    r"\b(?:WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
    r"|^[WEF][0-9]{4,8} "
    r"|(?i:\blevel\"?\s*[=:]\s*\"?(?:warn|error|crit|fatal))"
    r"|(?i:\bseverity\"?\s*[=:]\s*\"?(?:warn|error|crit|fatal))"
)
_CONTENT = re.compile(r"(?i)\bprompts?(?:_token_ids)?\"?\s*[:=]|\bmessages\"?\s*[:=]")
"""Lines that carry what a user wrote: it is nobody else's business, and may imitate any error."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line as read. `t_s` is Unix seconds when the log says so; `weighty` when the log itself marks a warning or worse."""

    text: str
    t_s: float | None = None
    weighty: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """What is new in a log, and what was too much to read, in bytes or lines.

    `or_more` says that of the lines left out only the least number is known.
    """

    lines: tuple[Line, ...] = ()
    left_out_bytes: int = 0
    left_out_lines: int = 0
    or_more: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a log cannot be read, or not all of it, and what to do."""

    why: str
    fix: str


class LogSource(Protocol):
    """One log of one worker. Reading never raises and never waits for the outside."""

    @property
    def name(self) -> str:
        """Kind and place, as `journald vllm.service`."""
        ...

    @property
    def trouble(self) -> Trouble | None:
        """What is wrong now, or None."""
        ...

    async def read(self) -> Batch:
        """Return what came since the last call."""
        ...

    async def aclose(self) -> None:
        """Let go of files, programs and connections; may be called twice."""
        ...


def decode(raw: bytes) -> str:
    """Return the text of a line, cut and without control characters."""
    text = clean(raw[:MAX_LINE_BYTES].decode("utf-8", errors="replace"))
    return text + "…" if len(raw) > MAX_LINE_BYTES else text


def keep(line: Line, pattern: LogPattern | None) -> bool:
    """Whether a line matters: a warning or worse, one the catalog knows, or one that was asked for."""
    if line.weighty or _LEVEL.search(line.text[:_HEAD]) is not None:
        return True
    if pattern is not None and pattern.search(line.text) is not None:
        return True
    return _CONTENT.search(line.text) is None and bool(recognise(line.text))
