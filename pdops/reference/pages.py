"""Small blocking HTTP to our own components on loopback or in our own namespaces; answers are bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import requests
from prometheus_client.parser import text_string_to_metric_families

_LIMIT = 16 << 20
_PIECE = 1 << 18


class TooLargeError(OSError):
    """An answer larger than any of ours; nothing of it is used."""


def _session() -> requests.Session:
    session = requests.Session()
    # Our own components are never asked through a proxy.
    session.trust_env = False
    return session


def get(url: str, timeout_s: float = 10.0, token_file: Path | None = None) -> str:
    """Return the body of a page.

    Raises:
        OSError: no answer, one that is cut off or too large, or a status other than 2xx.
    """
    return _ask("GET", url, timeout_s, None, token_file)


def post(url: str, content: object, timeout_s: float = 60.0, token_file: Path | None = None) -> Any:
    """Post JSON and return the JSON of the answer.

    Raises:
        OSError: no answer, one that is cut off or too large, or a status other than 2xx.
        ValueError: the answer is no JSON.
    """
    return json.loads(_ask("POST", url, timeout_s, content, token_file))


def delete(url: str, timeout_s: float = 10.0, token_file: Path | None = None) -> None:
    """Delete what an address names.

    Raises:
        OSError: no answer, one that is cut off or too large, or a status other than 2xx.
    """
    _ask("DELETE", url, timeout_s, None, token_file)


def _ask(method: str, url: str, timeout_s: float, content: object, token_file: Path | None) -> str:
    headers = {"Authorization": f"Bearer {token_file.read_text().strip()}"} if token_file is not None else {}
    with (
        _session() as session,
        session.request(method, url, json=content, headers=headers, timeout=timeout_s, stream=True) as answer,
    ):
        answer.raise_for_status()
        # Not `raw`, whose errors for an answer that stalls or is cut off are no OSError.
        body = bytearray()
        for piece in answer.iter_content(_PIECE):
            body += piece
            if len(body) > _LIMIT:
                # A part of a page has a part of its samples, and what is counted from it looks like less.
                raise TooLargeError(f"{url} answers with more than {_LIMIT >> 20} MiB")
        return body.decode(errors="replace")


def total(page: str, family: str, **labels: str) -> float | None:
    """Return the sum of the samples of that name with these labels, or None when the page has none."""
    found = None
    for metric in text_string_to_metric_families(page):
        for sample in metric.samples:
            if sample.name == family and all(sample.labels.get(k) == v for k, v in labels.items()):
                found = (found or 0.0) + sample.value
    return found
