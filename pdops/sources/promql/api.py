"""Read answers of the Prometheus HTTP API, and tell every way in which one can fail apart."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from pdops.model.series import Floats

_BIG_BYTES = 1024 * 1024
"""Above this, JSON is decoded off the event loop."""
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


class Trouble(StrEnum):
    """Why a question got no usable answer."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    BUSY = "busy"
    REFUSED = "refused"
    NOT_FOUND = "not found"
    NOT_THE_API = "not the API"
    BAD_QUERY = "bad query"
    TOO_LARGE = "too large"


CONFIGURATION = frozenset({Trouble.REFUSED, Trouble.NOT_FOUND, Trouble.NOT_THE_API, Trouble.BAD_QUERY})
"""Troubles that asking again does not cure."""


class QueryError(Exception):
    """One question got no usable answer: `why` in the server's words where it gave some, `hint` what to do."""

    def __init__(self, trouble: Trouble, why: str, hint: str) -> None:
        super().__init__(why)
        self.trouble = trouble
        self.why = why
        self.hint = hint


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One series of an answer: sample times (n,) in Unix seconds and values (n,)."""

    labels: Mapping[str, str]
    t: Floats
    v: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The series of an answer, and what the server said about their completeness."""

    rows: tuple[Row, ...]
    warnings: tuple[str, ...] = ()
    size_bytes: int = 0


def plain(text: object, limit: int = 300) -> str:
    """Return foreign text on one line, without control characters and cut to a length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


async def checked(status: int, kind: str, body: bytes) -> tuple[Any, tuple[str, ...], int]:
    """Return the `data` of an answer, its warnings and its size in bytes.

    Args:
        status: HTTP status.
        kind: content type without parameters.
        body: the decompressed body.

    Raises:
        QueryError: it is an error, or not an answer of the API.
    """
    head = body[:4096].decode("utf-8", "replace").lstrip()
    if kind == "text/html" or head[:1] == "<":
        title = _TITLE.search(head)
        if status not in (401, 403, 404, 502, 503, 504):
            raise not_api(f"answers with a web page{f' titled {plain(title[1], 80)!r}' if title else ''}")
    data: Any = None
    try:
        data = await asyncio.to_thread(json.loads, body) if len(body) > _BIG_BYTES else json.loads(body)
    except (ValueError, RecursionError):
        data = None
    said = data if isinstance(data, dict) else {}
    if status == 200 and said.get("status") == "success":
        return said.get("data"), _warnings(said), len(body)
    text = plain(said.get("error") or (head if head[:1] != "<" else ""))
    error_type = plain(said.get("errorType", ""), 40)
    why = f"HTTP {status}" + (f" {error_type}" if error_type else "") + (f": {text}" if text else "")
    if status in (401, 403):
        raise QueryError(Trouble.REFUSED, why, "give bearer_token_file, basic_auth or tls under prometheus:")
    if status == 404:
        hint = "add the path prefix to the URL, such as /prometheus or /select/0/prometheus"
        raise QueryError(Trouble.NOT_FOUND, why, hint)
    if error_type in ("timeout", "canceled") or status in (408, 504):
        raise QueryError(Trouble.TIMEOUT, why, "look at the server's load, or ask less often")
    if status in (400, 422):
        raise QueryError(Trouble.BAD_QUERY, why, "check the selector, and the server's limits on series and samples")
    if status == 429 or status >= 500:
        raise QueryError(Trouble.BUSY, why, "wait, or look at the server's own log")
    raise not_api(f"answers HTTP {status} with something that is not the API's JSON" if status == 200 else why)


def rows(data: Mapping[str, Any]) -> tuple[Row, ...]:
    """Return the series of a vector, a matrix or a scalar; native histograms are left out.

    Raises:
        ValueError, KeyError, IndexError, TypeError, AttributeError: the shape is not the API's.
    """
    kind, result = data["resultType"], data["result"]
    if kind == "scalar":
        return (_row({"value": result}),)
    if kind not in ("vector", "matrix"):
        raise ValueError(f"resultType {kind}")
    return tuple(_row(item) for item in result if "value" in item or "values" in item)


def _row(item: Mapping[str, Any]) -> Row:
    pairs = item["values"] if "values" in item else [item["value"]]
    t = np.array([float(pair[0]) for pair in pairs])
    v = np.array([float(pair[1]) for pair in pairs])
    return Row({str(k): str(value) for k, value in item.get("metric", {}).items()}, t, v)


def _warnings(said: Mapping[str, Any]) -> tuple[str, ...]:
    given = said.get("warnings")
    found = tuple(plain(text, 160) for text in given) if isinstance(given, list) else ()
    return (*found, "the server says that the answer is partial") if said.get("isPartial") is True else found


def not_api(why: str) -> QueryError:
    """Return the error for an answer that some other server gave."""
    hint = "a log-in page or proxy may stand before it: use the API's own address, or give credentials by file"
    return QueryError(Trouble.NOT_THE_API, why, hint)
