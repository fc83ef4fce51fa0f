"""Start-up spans, as a collector's double writes them, in the view of a start. No engine runs here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from pdops.cli import cli
from pdops.errors import UsageError
from pdops.reference import profiles, schemas, startup
from pdops.reference.state import ProcessState, State, home
from tests.reference.otlp_double import collecting

NS = 1_000_000_000


def export(url: str, service: str, *spans: tuple[str, float, float]) -> None:
    """Export spans of (name, begin, end) in Unix seconds as an engine does."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=url)))
    tracer = provider.get_tracer("vllm.engine_core")
    for name, begin_s, end_s in spans:
        tracer.start_span(name, start_time=int(begin_s * NS)).end(int(end_s * NS))
    provider.shutdown()


def test_the_last_start_of_each_engine_is_told_by_its_longest_spans(tmp_path: Path) -> None:
    with collecting(tmp_path / "traces.jsonl") as double:
        url = f"{double.url}/v1/traces"
        export(url, "decode-0", ("Load model", 900, 901), ("Load model", 1011, 1013))
        export(
            url, "decode-0", ("Load model", 1011, 1012), ("Overall Loading", 1010, 1022), ("llm_request", 1030, 1031)
        )
        export(url, "prefill-0", ("Load model", 1011, 1019))
        assert set(double.paths) == {"/v1/traces"}
    found = startup.read(tmp_path / "traces.jsonl")
    told = [(s.name, s.begin_s, s.seconds) for s in found.of("decode-0", 1000.0)]
    assert told == [("Overall Loading", 1010.0, 12.0), ("Load model", 1011.0, 2.0)]
    assert found.of("decode-1", 0.0) == ()
    assert found.unreadable == 0


@pytest.mark.parametrize(
    "line", ["{", "[]", "5", '{"resourceSpans": 5}', '{"resourceSpans": [5]}', "[" * 100_000, "\xff"]
)
def test_lines_that_are_no_export_are_counted(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x"
    path.write_text(f'{line}\n\n{{"resourceSpans": []}}\n', encoding="latin-1")
    assert startup.read(path).unreadable == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="spans cannot be read"):
        startup.read(tmp_path / "none")
    monkeypatch.setattr(startup, "MAX_BYTES", 3)
    (tmp_path / "long").write_text("long")
    with pytest.raises(UsageError, match="larger than"):
        startup.read(tmp_path / "long")


def test_status_shows_where_a_start_went(tmp_path: Path) -> None:
    place = home(state_dir=tmp_path / "state")
    place.prepare()
    process = ProcessState(pid=2**22, start_ticks=1, started_at_s=1000.0, command=("vllm",))
    spec = profiles.plan(profiles.Wish(router="none"), "/model")
    state = State(mark=place.mark(), phase="up", created_at_s=1.0, spec=spec, engine_python="/python")
    place.write(replace(state, processes={"prefill-0": process, "decode-0": process}))
    with collecting(tmp_path / "traces.jsonl") as double:
        export(f"{double.url}/v1/traces", "prefill-0", ("Overall Loading", 1010, 1022), ("Load model", 1011, 1013.5))
    with double.file.open("a") as file:
        file.write("cut off {\n")
    args = ["status", "--state-dir", str(place.path), "--spans", str(double.file)]
    done = CliRunner().invoke(cli, args)
    assert "start: +  0.00 s    12.00 s  Overall Loading" in done.stdout
    assert "start: +  1.00 s     2.50 s  Load model" in done.stdout
    assert "start: no spans of it" in done.stdout
    assert "1 lines of" in done.stderr
    document = json.loads(CliRunner().invoke(cli, [*args, "--json"]).stdout)
    jsonschema.validate(document, schemas.status())
    assert [s["span"] for s in document["workers"][0]["startup"]] == ["Overall Loading", "Load model"]
    assert document["workers"][1]["startup"] is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("http://c:4318/v1/traces", "http://c:4318/v1/traces"),
        ("https://c/otlp/x", "https://c/otlp/x"),
    ],
)
def test_engines_are_told_where_traces_are_taken(given: str, told: str) -> None:
    assert profiles.plan(profiles.Wish(otlp_endpoint=given), "/model").otlp_endpoint == told


@pytest.mark.parametrize("given", ["c:4318", "grpc://c:4317", "http://", "http://c:x", "http://c:0"])
def test_what_is_no_endpoint_is_refused_before_anything_starts(given: str) -> None:
    with pytest.raises(UsageError, match="not an OTLP endpoint"):
        profiles.check(profiles.Wish(otlp_endpoint=given))
