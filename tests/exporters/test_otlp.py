"""The same families, pushed to a double of an OTLP/HTTP receiver that keeps what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pdops.errors import UsageError
from pdops_exporters.otlp import OtlpPush
from pdops_exporters.watched import Watched

from .conftest import registry_of


class ReceiverDouble(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: ReceiverDouble

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[ReceiverDouble]:
    server = ReceiverDouble()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_families_arrive_with_their_labels(played: Callable[..., Watched], receiver: ReceiverDouble) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    push = OtlpPush(registry_of(played("healthy-load", 100)), receiver.url, every_s=3600)
    push.refresh()
    push.close()
    path, body = receiver.bodies[-1]
    assert path == "/v1/metrics"
    request = ExportMetricsServiceRequest.FromString(body)
    metrics = {
        m.name: m for resource in request.resource_metrics for scope in resource.scope_metrics for m in scope.metrics
    }
    tokens = metrics["pdops_generated_tokens_total"].sum
    assert tokens.is_monotonic
    by_role = {
        next(a.value.string_value for a in p.attributes if a.key == "role"): p.as_double for p in tokens.data_points
    }
    assert by_role == {"prefill": 79.0, "decode": 1896.0}
    assert metrics["pdops_worker_up"].gauge.data_points
    edges = {
        a.value.string_value
        for p in metrics["pdops_client_ttft_seconds_bucket"].sum.data_points
        for a in p.attributes
        if a.key == "le"
    }
    assert "+Inf" in edges


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://x", "http://", "http://127.0.0.1:99999", "http://[::1"])
def test_an_endpoint_that_is_no_url_is_refused(endpoint: str, played: Callable[..., Watched]) -> None:
    with pytest.raises(UsageError) as refused:
        OtlpPush(registry_of(played("healthy-load", 20)), endpoint)
    assert refused.value.hint
