"""Debian's Prometheus over what the exporter says of recordings of the real pair, written into blocks by promtool."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.real.stored import Stored, blocks, prometheus, samples_of

STEP_S = 5.0
_VALUES = {"cluster": ".*", "model": ".*", "pool": ".*", "worker": ".*", "__rate_interval": "30s"}


def installed() -> bool:
    """Say whether Prometheus and promtool are."""
    return None not in (shutil.which("prometheus"), shutil.which("promtool"))


@contextlib.contextmanager
def played(names: Sequence[str], folder: Path) -> Iterator[Stored]:
    """Run a Prometheus that knows recordings by name, with their own times."""
    spans = {}
    for name in names:
        text, spans[name] = samples_of(name, step_s=STEP_S)
        blocks(folder, text)
    with prometheus(folder, {}, "--storage.tsdb.retention.time=100y") as url:
        yield Stored(url, spans)


def answer(url: str, expr: str, span: tuple[float, float]) -> list[dict[str, Any]]:
    """Return what an expression of a dashboard gives over a span, as Prometheus answers a range query."""
    expr = re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: _VALUES[m[1] or m[2]], expr)
    asked = {"query": expr, "start": span[0], "end": span[1], "step": STEP_S}
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(asked)}", timeout=30) as reply:
        found = json.load(reply)
    assert found["status"] == "success"
    return list(found["data"]["result"])
