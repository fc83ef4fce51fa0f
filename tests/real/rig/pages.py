"""Small blocking HTTP: JSON in and out, and sums over a page of metrics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.real.rig.procs import RigError

# Loopback is never asked through a proxy.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, timeout_s: float = 10.0) -> str:
    """Return the body of a page.

    Raises:
        OSError: no answer, or a status other than 2xx.
    """
    with _OPENER.open(url, timeout=timeout_s) as answer:
        body: bytes = answer.read()
    return body.decode()


def post(url: str, content: object, timeout_s: float = 120.0) -> Any:
    """Post JSON and return the JSON of the answer.

    Raises:
        RigError: no answer, or a status other than 2xx.
    """
    body = json.dumps(content).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        why = f"status {error.code}: {error.read()[:300].decode(errors='replace')}"
        raise RigError("a request was refused", where=url, why=why) from error
    except OSError as error:
        raise RigError("no answer", where=url, why=str(error)) from error


def total(page: str, sample: str, **labels: str) -> float | None:
    """Sum the series of one sample name whose labels contain the given ones; None when there is no such series."""
    found = [
        series.value
        for family in text_string_to_metric_families(page)
        for series in family.samples
        if series.name == sample and labels.items() <= series.labels.items()
    ]
    return sum(found) if found else None
