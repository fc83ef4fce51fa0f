"""Read the machine from a node exporter's page or a store's page, where a worker has one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

_NODE = {
    "node_memory_MemTotal_bytes": "host.memory_total_bytes",
    "node_memory_MemAvailable_bytes": "host.memory_available_bytes",
    "node_filefd_maximum": "host.file_max",
}
_STORE_TOTAL, _STORE_USED = "master_total_capacity_bytes", "master_allocated_bytes"


def page_numbers(series: Iterable[str], values: Iterable[float]) -> dict[str, float]:
    """Return the finite samples of a page that have no labels, by name."""
    return {s: float(v) for s, v in zip(series, values, strict=True) if "{" not in s and math.isfinite(v)}


def page_facts(numbers: Mapping[str, float], at_s: float) -> dict[str, str]:
    """Return the facts of such a page that was read at `at_s` (Unix seconds of this machine).

    `node_time_seconds` is taken when the page is made, so the offset it gives is good to the time of one request.
    """
    facts = {key: str(int(numbers[name])) for name, key in _NODE.items() if name in numbers}
    if "node_time_seconds" in numbers:
        facts["host.clock_offset_s"] = f"{numbers['node_time_seconds'] - at_s:.3f}"
    if _STORE_TOTAL in numbers:
        facts |= {"reachable": "true", "segment_total_bytes": str(int(numbers[_STORE_TOTAL]))}
        if _STORE_USED in numbers:
            facts["segment_free_bytes"] = str(int(numbers[_STORE_TOTAL] - numbers[_STORE_USED]))
    return facts
