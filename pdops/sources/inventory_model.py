"""The inventory file as people write it, `pdops.yaml` version 1."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from pdops.catalog.load import catalog
from pdops.model.cluster import Role, Secret, Slo
from pdops.sources.inventory_names import Id, PoolName
from pdops.sources.inventory_operate import OperateEntry
from pdops.sources.validate import Positive, Ratio, Strict, Text, Url, did_you_mean, refuse, shown

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@/\\-]{0,252}")


def check_engine(value: str) -> str:
    """Check that an engine is in the catalog.

    Raises:
        PydanticCustomError: it is not.
    """
    engines = catalog().engines
    if value not in engines:
        raise refuse(f"unknown engine {shown(value)}", did_you_mean(value, engines, label="known engines"))
    return value


def check_name(value: str) -> str:
    """Check that a text can be the name of a unit, pod, container, namespace or context, and not an option.

    Raises:
        PydanticCustomError: it cannot.
    """
    if not _NAME.fullmatch(value):
        raise refuse(f"{shown(value)} is not a name", "use letters, digits and . _ : @ - only, no dash in front")
    return value


Name = Annotated[Text, AfterValidator(check_name)]
Engine = Annotated[str, AfterValidator(check_engine)]


class BasicAuth(Strict):
    """HTTP basic authentication; the password is read from a file at the moment of use."""

    username: Text
    password_file: Text


class Tls(Strict):
    """Paths of PEM files: who to trust, and who we are."""

    ca: Text | None = None
    cert: Text | None = None
    key: Text | None = None


class WithSecrets(Strict):
    """Secrets by reference, as in a Prometheus scrape configuration."""

    bearer_token_file: Text | None = None
    basic_auth: BasicAuth | None = None
    tls: Tls | None = None

    @model_validator(mode="after")
    def _one_way_in(self) -> WithSecrets:
        if self.bearer_token_file is not None and self.basic_auth is not None:
            raise refuse("both bearer_token_file and basic_auth are given", "keep one of them")
        return self

    def secret(self) -> Secret:
        """Return the references."""
        auth, tls = self.basic_auth, self.tls or Tls()
        return Secret(
            bearer_token_file=self.bearer_token_file,
            username=auth.username if auth else None,
            password_file=auth.password_file if auth else None,
            ca=tls.ca,
            cert=tls.cert,
            key=tls.key,
        )


class MetricsPage(Strict):
    """One page of metrics; without `engine` it is detected."""

    url: Url
    engine: Engine | None = None


def _metrics_form(value: object) -> str:
    return "pages" if isinstance(value, list) else "url"


Metrics = Annotated[
    Annotated[Url, Tag("url")] | Annotated[list[MetricsPage], Field(min_length=1), Tag("pages")],
    Discriminator(_metrics_form),
]


class KubernetesLog(Strict):
    """The log of a pod; without a namespace that of kubectl's context."""

    pod: Name
    namespace: Name | None = None
    container: Name | None = None
    context: Name | None = None


class LokiLog(WithSecrets):
    """Lines of a Loki server, by a log query; `tenant` is its X-Scope-OrgID."""

    url: Url
    query: Text
    tenant: Text | None = None

    @field_validator("query")
    @classmethod
    def _selector(cls, value: str) -> str:
        if not value.startswith("{"):
            raise refuse(f"expected a log query, got {shown(value)}", """write it as '{pod="decode-0"}'""")
        return value


def _log_form(value: object) -> str:
    return "entry" if isinstance(value, dict | BaseModel) else "text"


KubernetesPlace = Annotated[
    Annotated[Text, Tag("text")] | Annotated[KubernetesLog, Tag("entry")], Discriminator(_log_form)
]
LokiPlace = Annotated[Annotated[Text, Tag("text")] | Annotated[LokiLog, Tag("entry")], Discriminator(_log_form)]


class LogSource(Strict):
    """Where a worker's log lines are; exactly one of these.

    `journald` is a systemd unit of this machine, `kubernetes` a text NAMESPACE/POD or NAMESPACE/POD/CONTAINER, or its
    parts by name.
    """

    file: Text | None = None
    journald: Text | None = None
    kubernetes: KubernetesPlace | None = None
    loki: LokiPlace | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> LogSource:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise refuse(f"expected one of file, journald, kubernetes, loki; got {got}", "make one entry of each")
        if isinstance(self.loki, str):
            raise refuse(
                "loki needs url and query", """write it as loki: {url: 'http://loki:3100', query: '{pod="decode-0"}'}"""
            )
        if self.journald is not None:
            check_name(self.journald)
        if isinstance(self.kubernetes, str):
            _pod(self.kubernetes)
        return self

    def place(self) -> dict[str, str]:
        """Return it as flat text by key, the kind first; secrets stay references."""
        if self.file is not None:
            return {"file": self.file}
        if self.journald is not None:
            return {"journald": self.journald}
        if self.kubernetes is not None:
            pod = _pod(self.kubernetes) if isinstance(self.kubernetes, str) else self.kubernetes
            rest = pod.model_dump(exclude_none=True)
            return {"kubernetes": rest.pop("pod"), **rest}
        assert isinstance(self.loki, LokiLog)
        tenant = {} if self.loki.tenant is None else {"tenant": self.loki.tenant}
        secret = {k: v for k, v in asdict(self.loki.secret()).items() if v is not None}
        return {"loki": self.loki.url, "query": self.loki.query, **tenant, **secret}


def _pod(text: str) -> KubernetesLog:
    parts = text.split("/")
    if not 2 <= len(parts) <= 3:
        raise refuse(f"expected NAMESPACE/POD or NAMESPACE/POD/CONTAINER, got {shown(text)}", "such as llm/decode-0")
    for part in parts:
        check_name(part)
    return KubernetesLog(namespace=parts[0], pod=parts[1], container=parts[2] if len(parts) == 3 else None)


class AdminEndpoint(WithSecrets):
    """Where a worker takes administrative requests."""

    url: Url


class WorkerEntry(WithSecrets):
    """One engine instance, router or store."""

    id: Id
    role: Role
    pool: PoolName | None = None
    url: Url | None = None
    metrics: Metrics | None = None
    engine: Engine | None = None
    version: Text | None = None
    node: Text | None = None
    zone: Text | None = None
    logs: tuple[LogSource, ...] = ()
    admin: AdminEndpoint | None = None


class ModelEntry(Strict):
    """The model that is served."""

    name: Text
    kv_bytes_per_token: Positive | None = None


class SloEntry(Strict):
    """What is promised to clients; times in seconds, `percentile` and `attainment` as shares (0-1]."""

    ttft_s: Positive | None = None
    itl_s: Positive | None = None
    percentile: Ratio = 0.95
    attainment: Ratio = 0.95

    def slo(self) -> Slo:
        """Return it as the model's noun."""
        return Slo(ttft_s=self.ttft_s, itl_s=self.itl_s, percentile=self.percentile, attainment=self.attainment)


class LinksEntry(Strict):
    """What a healthy KV link carries, in bytes/s."""

    baseline_bytes_per_s: Positive | None = None


class KubernetesEntry(Strict):
    """Workers found by label selectors in one namespace."""

    namespace: Text
    roles: Annotated[dict[Role, Text], Field(min_length=1)]


class DiscoveryEntry(Strict):
    """How workers are found that are not listed."""

    kubernetes: KubernetesEntry


class PrometheusEntry(WithSecrets):
    """A Prometheus, Thanos, Mimir or VictoriaMetrics server that scrapes the cluster already."""

    url: Url
    selector: Text = "{}"
    role_label: Text = "role"

    @field_validator("selector")
    @classmethod
    def _braces(cls, value: str) -> str:
        if not (value.startswith("{") and value.endswith("}")):
            raise refuse(f"expected a selector in braces, got {shown(value)}", """write it as '{cluster="prod"}'""")
        return value

    @field_validator("role_label")
    @classmethod
    def _label(cls, value: str) -> str:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", value):
            raise refuse(f"{shown(value)} is not a label name", "use letters, digits and underscores")
        return value


class InventoryFile(Strict):
    """`pdops.yaml`: who is in the cluster, what is promised, and where data is read."""

    version: Literal[1]
    cluster: Text
    model: ModelEntry | None = None
    slo: SloEntry = SloEntry()
    workers: tuple[WorkerEntry, ...] = ()
    discovery: DiscoveryEntry | None = None
    prometheus: PrometheusEntry | None = None
    operate: OperateEntry | None = None
    links: LinksEntry = LinksEntry()
