"""Spans of what is over already, with ids that follow from its name: the same thing written again is the same span."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pdops.telemetry.tracing import Attribute, TelemetryError, load, traces_url

SENDING_S = 5
"""The longest to send a batch, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSpan:
    """One span. `trace` and `key` name it; `parent` is the key of another of the trace, None at the root. Unix seconds.

    `moments` are what happened in it: time and name. `error` is why it failed, empty when it did not.
    """

    trace: str
    key: str
    parent: str | None
    name: str
    start_s: float
    end_s: float
    attributes: dict[str, Attribute] = field(default_factory=dict)
    moments: tuple[tuple[float, str], ...] = ()
    error: str = ""


def trace_id(trace: str) -> int:
    """Return the 128-bit id of a trace: the beginning of SHA-256 of its name, never 0."""
    return int.from_bytes(hashlib.sha256(trace.encode()).digest()[:16], "big") or 1


def span_id(trace: str, key: str) -> int:
    """Return the 64-bit id of a span of a trace, never 0."""
    return int.from_bytes(hashlib.sha256(f"{trace}\0{key}".encode()).digest()[:8], "big") or 1


class PastWriter:
    """Sends spans with OpenTelemetry.

    Args:
        service: `service.name` of the resource.
        exporter: an OpenTelemetry span exporter.

    Raises:
        TelemetryError: the OpenTelemetry SDK is not installed.
    """

    def __init__(self, service: str, exporter: Any) -> None:
        self._api, self._exporter = load("opentelemetry.trace"), exporter
        # What could not be sent is raised here; the library would print it too, with the whole address.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        sdk, self._results = load("opentelemetry.sdk.trace"), load("opentelemetry.sdk.trace.export").SpanExportResult
        ids = load("opentelemetry.sdk.trace.id_generator")
        sampling = load("opentelemetry.sdk.trace.sampling")
        resource = load("opentelemetry.sdk.resources").Resource.create({"service.name": service})

        class Given(ids.IdGenerator):  # type: ignore[misc,name-defined]
            """Gives the ids that were set last."""

            trace, span = 1, 1

            def generate_trace_id(self) -> int:
                return self.trace

            def generate_span_id(self) -> int:
                return self.span

        self._ids = Given()
        provider = sdk.TracerProvider(
            resource=resource, id_generator=self._ids, sampler=sampling.ALWAYS_ON, shutdown_on_exit=False
        )
        self._tracer = provider.get_tracer("pdops")

    def write(self, spans: Sequence[PastSpan]) -> None:
        """Send spans, all or none as far as can be told.

        Raises:
            TelemetryError: the receiver did not take them.
        """
        try:
            result = self._exporter.export([self._made(span) for span in spans])
        except Exception as error:
            # What exporters raise has no common base.
            raise TelemetryError("spans were not sent", why=type(error).__name__, hint="check the receiver") from error
        if result is not self._results.SUCCESS:
            raise TelemetryError("spans were not sent", why="the receiver did not take them", hint="check the receiver")

    def _made(self, span: PastSpan) -> Any:
        api = self._api
        self._ids.trace, self._ids.span = trace_id(span.trace), span_id(span.trace, span.key)
        context = api.set_span_in_context(api.INVALID_SPAN)
        if span.parent is not None:
            above = api.SpanContext(
                trace_id(span.trace), span_id(span.trace, span.parent), False, api.TraceFlags(api.TraceFlags.SAMPLED)
            )
            context = api.set_span_in_context(api.NonRecordingSpan(above))
        made = self._tracer.start_span(
            span.name, context=context, start_time=_ns(span.start_s), attributes=dict(span.attributes)
        )
        for at_s, name in span.moments:
            made.add_event(name, timestamp=_ns(at_s))
        if span.error:
            made.set_status(api.Status(api.StatusCode.ERROR, span.error))
        made.end(_ns(span.end_s))
        return made


def past_writer(endpoint: str, service: str) -> PastWriter:
    """Return a writer to an OTLP endpoint over HTTP; `/v1/traces` is added to one without a path.

    Raises:
        TelemetryError: the endpoint is no address, or the extra `otel` is not installed.
    """
    url = traces_url(endpoint)
    made = load("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter(
        endpoint=url, timeout=SENDING_S
    )
    return PastWriter(service, made)


def _ns(at_s: float) -> int:
    return int(at_s * 1e9)
