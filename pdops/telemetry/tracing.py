"""Spans, when somebody wants them: OpenTelemetry is imported only once an endpoint is named."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from pdops.errors import UsageError

Attribute = str | int | float | bool | list[str]
CARRIED = ("traceparent", "tracestate")
"""Headers of W3C Trace Context."""
_FLUSH_MS = 3000


class TelemetryError(UsageError):
    """Telemetry was asked for and cannot be given."""


class Span(Protocol):
    """One operation under way."""

    def note(self, name: str, value: Attribute | None) -> None:
        """Set an attribute; None sets nothing."""
        ...

    def rename(self, name: str) -> None:
        """Give it a better name, once more is known."""
        ...

    def fail(self, kind: str, message: str) -> None:
        """Mark it as failed, with `error.type`."""
        ...

    def headers(self) -> dict[str, str]:
        """Return the headers that make another service's spans its children."""
        ...

    def child(
        self, name: str, attributes: Mapping[str, Attribute], *, client: bool = False
    ) -> AbstractContextManager[Span]:
        """Open a span below it; `client` when it is a call to another service."""
        ...


class Tracer(Protocol):
    """Where spans start."""

    def request(
        self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, Attribute]
    ) -> AbstractContextManager[Span]:
        """Open the span of a request that came with these headers."""
        ...

    def close(self) -> None:
        """Send what is left, within three seconds."""
        ...


class _NoSpan:
    """Keeps nothing, and passes the caller's trace on."""

    def __init__(self, carrier: Mapping[str, str]) -> None:
        self._headers = {name: carrier[name] for name in CARRIED if name in carrier}

    def note(self, name: str, value: Attribute | None) -> None:
        """Do nothing."""

    def rename(self, name: str) -> None:
        """Do nothing."""

    def fail(self, kind: str, message: str) -> None:
        """Do nothing."""

    def headers(self) -> dict[str, str]:
        """Return the trace headers that came."""
        return dict(self._headers)

    @contextmanager
    def child(self, name: str, attributes: Mapping[str, Attribute], *, client: bool = False) -> Iterator[Span]:  # noqa: ARG002  nothing is kept
        """Return itself."""
        yield self


class NoTracer:
    """Makes no spans."""

    @contextmanager
    def request(self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, Attribute]) -> Iterator[Span]:  # noqa: ARG002  nothing is kept
        """Return a span that keeps nothing."""
        yield _NoSpan(carrier)

    def close(self) -> None:
        """Do nothing."""


class _OtelSpan:
    def __init__(self, tracer: OtelTracer, span: Any) -> None:
        self._tracer, self._span = tracer, span
        self._context = tracer.api.set_span_in_context(span)

    def note(self, name: str, value: Attribute | None) -> None:
        if value is not None:
            self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, kind: str, message: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(self._tracer.api.Status(self._tracer.api.StatusCode.ERROR, message))

    def headers(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        self._tracer.propagator.inject(carrier, context=self._context)
        return carrier

    @contextmanager
    def child(self, name: str, attributes: Mapping[str, Attribute], *, client: bool = False) -> Iterator[Span]:
        kind = self._tracer.api.SpanKind.CLIENT if client else self._tracer.api.SpanKind.INTERNAL
        with self._tracer.span(name, self._context, kind, attributes) as span:
            yield span


class OtelTracer:
    """Makes OpenTelemetry spans.

    Args:
        service: `service.name` of the resource.
        exporter: an OpenTelemetry span exporter.
        at_once: export each span as it ends; for tests.

    Raises:
        TelemetryError: the OpenTelemetry SDK is not installed.
    """

    def __init__(self, service: str, exporter: Any, *, at_once: bool = False) -> None:
        self.api = load("opentelemetry.trace")
        self.propagator = load("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()
        sdk, export = load("opentelemetry.sdk.trace"), load("opentelemetry.sdk.trace.export")
        resource = load("opentelemetry.sdk.resources").Resource.create({"service.name": service})
        self._provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        processor = export.SimpleSpanProcessor if at_once else export.BatchSpanProcessor
        self._provider.add_span_processor(processor(exporter))
        self._tracer = self._provider.get_tracer("pdops")

    @contextmanager
    def request(self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, Attribute]) -> Iterator[Span]:
        """Open a server span, child of the caller's where the headers name one."""
        parent = self.propagator.extract({k: carrier[k] for k in CARRIED if k in carrier})
        with self.span(name, parent, self.api.SpanKind.SERVER, attributes) as span:
            yield span

    @contextmanager
    def span(self, name: str, parent: Any, kind: Any, attributes: Mapping[str, Attribute]) -> Iterator[Span]:
        """Open a span below a context; it ends with the block, and a cancelled block is not an error."""
        span = self._tracer.start_span(name, context=parent, kind=kind, attributes=dict(attributes))
        try:
            yield _OtelSpan(self, span)
        finally:
            span.end()

    def close(self) -> None:
        """Send what is left, within three seconds."""
        self._provider.force_flush(_FLUSH_MS)
        self._provider.shutdown()


def tracer(endpoint: str | None, service: str) -> Tracer:
    """Return a tracer that exports to an OTLP endpoint over HTTP, or one that makes no spans without an endpoint.

    `/v1/traces` is added to an endpoint without a path.

    Raises:
        TelemetryError: the endpoint is no address, or the extra `otel` is not installed.
    """
    if endpoint is None:
        return NoTracer()
    url = traces_url(endpoint)
    exporter = load("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter(endpoint=url, timeout=3)
    return OtelTracer(service, exporter)


def traces_url(endpoint: str) -> str:
    """Return where spans are posted to: an endpoint, with `/v1/traces` when it has no path.

    Raises:
        TelemetryError: it is no address.
    """
    try:
        parts = urlsplit(endpoint)
        valid = bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or parts.scheme not in ("http", "https"):
        raise TelemetryError(
            "not an OTLP endpoint",
            where=repr(endpoint),
            why="expected http://HOST:4318",
            hint="give the address of an OTLP receiver over HTTP",
        )
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"


def load(name: str) -> Any:
    """Import a module of OpenTelemetry.

    Raises:
        TelemetryError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TelemetryError(
            "traces need OpenTelemetry", why=f"{error.name} is not installed", hint="pip install 'pdops[otel]'"
        ) from error
