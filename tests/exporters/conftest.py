"""A watched cluster fed from a recording."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from pdops.sources.recording import open_recording
from pdops_exporters.collector import ClusterCollector
from pdops_exporters.watched import Watched

Sample = tuple[str, tuple[tuple[str, str], ...]]


@pytest.fixture
def played(fixtures: Path) -> Callable[..., Watched]:
    """Feed a recording up to a moment in seconds from its start."""

    def play(name: str, until_s: float, from_s: float = 0.0) -> Watched:
        record = open_recording(fixtures / "recordings" / f"{name}.pdrec")
        watched = Watched(record.cluster, interval_s=record.interval_s, monotonic=lambda: 0.0)
        for frame in record.iter_frames():
            if record.start_s + from_s <= frame.at_s <= record.start_s + until_s:
                watched.add(frame)
        return watched

    return play


def registry_of(watched: Watched) -> CollectorRegistry:
    registry = CollectorRegistry()
    ClusterCollector(watched.snapshot, registry)
    return registry


def samples(text: str) -> dict[Sample, float]:
    """Return every sample of a page by name and labels; a repeated one is an error."""
    found: dict[Sample, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"twice on one page: {key}"
            found[key] = sample.value
    return found
