"""Keep secrets and control characters out of what is shown, recorded or logged."""

from __future__ import annotations

import os
import re

REDACTED = "[redacted]"
_HOME = os.path.expanduser("~").rstrip("/") + "/"
"""Recordings are handed on; where somebody's files lie is nobody else's business."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_IN_URL: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"), REDACTED),
    (
        re.compile(
            r"(?i)([?&;](?:[\w.~%-]*(?:token|secret|passw(?:or)?d|passwd|credentials?|signature)|"
            r"(?:[\w.~%-]*[_.-])?(?:key|api_?key|pwd|sig|auth|jwt))=)(?!\[redacted\])[^&;#\s\"'<>]+"
        ),
        rf"\1{REDACTED}",
    ),
)
"""Credentials inside an address: user and password, and values of a query whose name says what they are."""
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {REDACTED}"),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"), REDACTED),
    (re.compile(r"\bhf_[A-Za-z0-9]{12,}"), REDACTED),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abpr]-|nvapi-)[A-Za-z0-9_-]{12,}"), REDACTED),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*"), REDACTED),
    (
        re.compile(r"(?i)(\bauthorization[\"']?\s*[=:]\s*+[\"']?+)(?!(?:bearer|basic)\s|\[redacted\])[^\"',;]+"),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"(?i)(\b(?:set-)?cookie[\"']?\s*[=:]\s*).+"), rf"\1{REDACTED}"),
    (
        re.compile(r"(?i)(--[a-z-]*(?:api-key|hf-token|auth-token|access-token|password|secret)\s+)(?!-)\S+"),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\bAKIA[0-9A-Z]{12,}"), REDACTED),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"), REDACTED),
    _IN_URL[0],
    _IN_URL[1],
    (
        re.compile(
            r"(?i)((?:\b|_)(?:api[_-]?keys?|passwords?|passwd|secrets?|(?:access|auth|hf|api|bearer)[_-]?token)"
            r"[\"']?\s*[=:]\s*+\[?+[\"']?+)(?!\[?redacted\])[^\s\"',;\]})]+"
        ),
        rf"\1{REDACTED}",
    ),
)
_ALWAYS_SECRET = re.compile(r"(?i)password|passwd|secret|api_?-?key|credential")
_TOKEN_KEY = re.compile(r"(?i)(?:^|[_.-])token(?:$|[_.-])")
_HARMLESS = re.compile(r"(?i)[+-]?[0-9.]+(?:e[+-]?[0-9]+)?|true|false|none|null|")


def clean(text: str) -> str:
    """Return text without terminal escapes, control and direction characters, and what is no text; tabs are spaces."""
    return _CONTROL.sub("", _ANSI.sub("", text).replace("\t", " "))


def redact(text: str) -> str:
    """Return text with everything that looks like a credential replaced, and the home folder as `~`."""
    if len(_HOME) > 1:
        text = text.replace(_HOME, "~/")
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def redact_urls(text: str) -> str:
    """Return text with the credentials inside the addresses in it replaced, and nothing else."""
    for pattern, instead in _IN_URL:
        text = pattern.sub(instead, text)
    return text


def is_secret(key: str, value: str) -> bool:
    """Return whether a configuration entry must not be kept.

    Options that count tokens of a model are not secrets, so a key that says token is one only with a value that is
    no number.
    """
    if _ALWAYS_SECRET.search(key):
        return True
    return _TOKEN_KEY.search(key) is not None and _HARMLESS.fullmatch(value) is None
