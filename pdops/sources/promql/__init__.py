"""Read a cluster from a Prometheus-compatible server."""

from pdops.sources.promql.source import PromqlSource
from pdops.sources.promql.survey import PromqlSettings

__all__ = ["PromqlSettings", "PromqlSource"]
