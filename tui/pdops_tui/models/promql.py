"""The PromQL that asks a Prometheus for a signal of one worker, as its engine exports it."""

from __future__ import annotations

from urllib.parse import urlsplit

from pdops.catalog.load import catalog
from pdops.catalog.types import SourceSpec
from pdops.model.cluster import Worker


def promql(worker: Worker, signal: str) -> tuple[str, str] | None:
    """Return (metric, query) of a worker's signal, or None when its engine is not known to export it.

    Counters are asked for per second over a minute, histograms for their 95th percentile. The first metric that the
    catalog has for the engine is taken.
    """
    spec = catalog().signals.get(signal.partition(".")[0].partition("[")[0])
    for engine in dict.fromkeys((worker.engine, *(e.engine for e in worker.endpoints))):
        for source in spec.sources.get(engine or "", ()) if spec is not None else ():
            if source.metric is not None and source.key.scope is None and source.key.worker is None:
                return source.metric, _query(source, _matchers(worker, source))
    return None


def _query(source: SourceSpec, chosen: str) -> str:
    name = source.metric or ""
    if source.kind == "histogram" and source.take is None:
        return f"histogram_quantile(0.95, sum by (le) (rate({name}_bucket{chosen}[1m])))"
    if source.take is not None:
        return f"rate({name}_{source.take}{chosen}[1m])"
    return f"rate({name}{chosen}[1m])" if source.kind == "counter" else f"{name}{chosen}"


def _matchers(worker: Worker, source: SourceSpec) -> str:
    place = _address(worker.endpoints[0].url if worker.endpoints else worker.url or "")
    found = [f'{label}=~"{_quoted(words)}"' for label, words in source.match.items()]
    if place:
        found.insert(0, f'instance="{_quoted(place)}"')
    return "{" + ",".join(found) + "}" if found else ""


def _address(url: str) -> str:
    """Return host and port, or nothing when the URL names none."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "")
