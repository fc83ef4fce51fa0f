"""Spans of the router, where OpenTelemetry is installed."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pdops.telemetry.tracing import NoTracer, OtelTracer, TelemetryError, tracer
from tests.router.doubles import bench

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_no_endpoint_means_no_spans() -> None:
    assert isinstance(tracer(None, "x"), NoTracer)


def test_a_missing_sdk_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TelemetryError) as caught:
        tracer("http://127.0.0.1:4318", "x")
    assert "pdops[otel]" in caught.value.hint


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:4318", "ftp://h"])
def test_an_endpoint_is_an_address(endpoint: str) -> None:
    with pytest.raises(TelemetryError):
        tracer(endpoint, "x")


async def _spans(**changes: Any) -> dict[str, Any]:
    exporter = InMemorySpanExporter()
    async with bench(tracer=OtelTracer("pdops-router", exporter, at_once=True)) as b:
        for name, value in changes.items():
            setattr(b.decode, name, value)
        body = {"prompt": "x", "model": "tiny", "stream": True, "max_tokens": 3}
        async with b.client.post("/v1/completions", json=body, headers={"traceparent": PARENT}) as answer:
            await answer.read()
        legs = {"prefill": b.prefill.headers[0], "decode": b.decode.headers[0]}
    spans = {s.name: s for s in exporter.get_finished_spans()}
    return {"spans": spans, "legs": legs}


async def test_a_request_has_a_child_for_each_phase_and_the_callers_trace() -> None:
    found = await _spans()
    spans, legs = found["spans"], found["legs"]
    names = {"queue", "prefill", "handoff", "decode_first_token", "stream"}
    assert set(spans) == {"text_completion tiny"} | {f"pdops.{n}" for n in names}
    root = spans["text_completion tiny"]
    assert f"{root.context.trace_id:032x}" == TRACE
    assert all(spans[f"pdops.{n}"].parent.span_id == root.context.span_id for n in names)
    assert root.attributes["gen_ai.operation.name"] == "text_completion"
    assert root.attributes["gen_ai.request.model"] == "tiny"
    assert root.attributes["gen_ai.usage.output_tokens"] == 5
    assert (root.attributes["pdops.pair.src"], root.attributes["pdops.pair.dst"]) == ("prefill-0", "decode-0")
    assert f"{spans['pdops.prefill'].context.span_id:016x}" in legs["prefill"]["traceparent"]
    assert f"{spans['pdops.handoff'].context.span_id:016x}" in legs["decode"]["traceparent"]


async def test_a_request_that_fails_says_where() -> None:
    spans = (await _spans(status=500))["spans"]
    assert spans["pdops.decode_first_token"].attributes["error.type"] == "engine"
    assert spans["text_completion tiny"].attributes["pdops.outcome"] == "error"
    assert not spans["text_completion tiny"].status.is_ok
