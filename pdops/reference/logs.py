"""Say in one sentence why a program of ours ended, from the end of its log."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from pdops.catalog.log_lines import recognise
from pdops.sources.redact import clean, redact

_TAIL_BYTES = 256 << 10
_MOST = 240
_STAMP = re.compile(r"^(\([^)]*\)\s*)?(ERROR|CRITICAL|WARNING|INFO)?\s*[\d:.\- ]*(\[[^\]]*\])?\s*")
_LAST_WORD = re.compile(r"^(\([^)]*\)\s*)?(ERROR [^\]]*\]\s*)?\w*(Error|Exception|Exit)\b.*:")
_VLLM = (
    (
        "No available memory for the cache blocks",
        "too little memory for KV: fewer blocks, or a shorter --max-model-len",
    ),
    ("Address already in use", "a port is taken"),
    (
        "To serve at least one request with the model's max seq len",
        "the longest request does not fit into KV: more blocks, or a shorter --max-model-len",
    ),
    ("No common block size", "the block size does not suit the attention backend"),
)
"""What an engine says when it does not start, and what that comes down to."""


def tail(log: Path, since_bytes: int = 0) -> list[str]:
    """Return the last lines of a log, at most 256 KiB, none before an offset."""
    with contextlib.suppress(OSError), log.open("rb") as handle:
        size = handle.seek(0, os.SEEK_END)
        handle.seek(max(since_bytes, size - _TAIL_BYTES, 0))
        return handle.read().decode(errors="replace").splitlines()
    return []


def why(log: Path, since_bytes: int = 0) -> str:
    """Return what the log says last: a line of which the catalog knows a cause, else the last error, else nothing."""
    lines = tail(log, since_bytes)
    for line in reversed(lines):
        for text, meaning in _VLLM:
            if text in line:
                return f"{meaning}: {_short(line)}"
        # Lines without a cause are good to know, but nothing ends of them.
        if known := next((entry for entry in recognise(line) if entry.cause is not None), None):
            return f"{known.meaning} ({known.cause}): {_short(line)}"
    for line in reversed(lines):
        if _LAST_WORD.match(line) and "EngineCore failed" not in line and "See root cause above" not in line:
            return _short(line)
    return ""


def _short(line: str) -> str:
    return redact(clean(_STAMP.sub("", line)))[:_MOST]
