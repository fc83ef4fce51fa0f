"""The first record of a recording: which cluster, from when, how often."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field

from pdops.model.cluster import Cluster, Endpoint, Role, Slo, Worker
from pdops.model.times import LAST_S
from pdops.sources.recording.format import SCHEMA
from pdops.sources.redact import redact_urls


class _Written(BaseModel):
    """Fields of a later release are left out."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class HeaderEndpoint(_Written):
    """One page of metrics."""

    url: str
    engine: str | None = None


class HeaderWorker(_Written):
    """One worker; secrets and log sources are never written."""

    id: str
    role: Role
    pool: str
    url: str | None = None
    endpoints: tuple[HeaderEndpoint, ...] = ()
    engine: str | None = None
    version: str | None = None
    node: str | None = None
    zone: str | None = None


class HeaderSlo(_Written):
    """What is promised; times in seconds."""

    ttft_s: float | None = None
    itl_s: float | None = None
    percentile: float = 0.95
    attainment: float = 0.95


class HeaderCluster(_Written):
    """The inventory without secrets."""

    name: str
    workers: tuple[HeaderWorker, ...]
    slo: HeaderSlo = HeaderSlo()
    model: str | None = None
    kv_bytes_per_token: float | None = None
    link_bytes_per_s: float | None = None

    def cluster(self) -> Cluster:
        """Return it as the model's noun."""
        return Cluster(
            name=self.name,
            workers=tuple(
                Worker(
                    id=w.id,
                    role=w.role,
                    pool=w.pool,
                    url=w.url,
                    endpoints=tuple(Endpoint(e.url, e.engine) for e in w.endpoints),
                    engine=w.engine,
                    version=w.version,
                    node=w.node,
                    zone=w.zone,
                )
                for w in self.workers
            ),
            slo=Slo(**self.slo.model_dump()),
            model=self.model,
            kv_bytes_per_token=self.kv_bytes_per_token,
            link_bytes_per_s=self.link_bytes_per_s,
        )


class RecordingHeader(_Written):
    """The header record of `pdops/rec/v1`."""

    kind: Literal["header"] = "header"
    schema_: Annotated[str, Field(alias="schema")] = SCHEMA
    cluster: HeaderCluster
    start_s: Annotated[float, Field(ge=0, le=LAST_S)] | None = None
    interval_s: Annotated[float, Field(ge=0.001, le=86_400)]
    pdops_version: str = ""


def header_of(cluster: Cluster, *, start_s: float | None, interval_s: float, version: str) -> RecordingHeader:
    """Return the header of a new recording."""
    return RecordingHeader(
        cluster=HeaderCluster(
            name=cluster.name,
            workers=tuple(
                HeaderWorker(
                    id=w.id,
                    role=w.role,
                    pool=w.pool,
                    url=None if w.url is None else without_credentials(w.url),
                    endpoints=tuple(
                        HeaderEndpoint(url=without_credentials(e.url), engine=e.engine) for e in w.endpoints
                    ),
                    engine=w.engine,
                    version=w.version,
                    node=w.node,
                    zone=w.zone,
                )
                for w in cluster.workers
            ),
            slo=HeaderSlo(
                ttft_s=cluster.slo.ttft_s,
                itl_s=cluster.slo.itl_s,
                percentile=cluster.slo.percentile,
                attainment=cluster.slo.attainment,
            ),
            model=cluster.model,
            kv_bytes_per_token=cluster.kv_bytes_per_token,
            link_bytes_per_s=cluster.link_bytes_per_s,
        ),
        start_s=start_s,
        interval_s=interval_s,
        pdops_version=version,
    )


def without_credentials(url: str) -> str:
    """Return a URL without user, password and what its query gives away; text that is no URL keeps the rest."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return redact_urls(url)
    return redact_urls(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
