"""The published schemas accept what the loaders accept, and refuse what they refuse by structure."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pdops.model.cluster import Cluster
from pdops.sources.recording import RecordingWriter
from pdops.sources.schemas import NAMES, schema
from pdops.sources.yamlfile import parse_yaml

INVENTORY = """
version: 1
cluster: prod-eu
slo: {ttft_s: 1.0}
workers:
  - {id: decode-0, role: decode, url: "http://h:1", metrics: [{url: "http://h:2/metrics", engine: dcgm}], logs: [{file: a}]}
  - {id: store-0, role: kvstore, url: "http://h:3", metrics: "http://h:4/metrics", bearer_token_file: /t}
links: {baseline_bytes_per_s: 45e9}
"""
CASE = """
schema: pdops/case/v1
id: inc-004
cluster: {workers: [{id: decode-0, role: decode}]}
signals:
  queue_depth: {decode-0: {before: 1, now: null}}
  preemptions: {decode-0: [[-60, 4], [0, null]]}
facts: {decode-0: {a: [1], b: {c: true}}}
expect: {verdict: fault, not: [scale-out-decode]}
"""
TRUTH = """
schema: pdops/truth/v1
source: simulated
command: x
windows: [{from_s: 0, to_s: 10, verdict: healthy}, {from_s: 10, to_s: 20, transition: true}]
"""


def read(text: str) -> dict[str, Any]:
    data = parse_yaml(text, path="x", error=ValueError, what="x").data  # type: ignore[type-var]
    return json.loads(json.dumps(data))  # type: ignore[no-any-return]


def header(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "a.pdrec"
    RecordingWriter(path, Cluster(name="c", workers=())).close()
    return json.loads(gzip.decompress(path.read_bytes()).splitlines()[0])  # type: ignore[no-any-return]


def examples(tmp_path: Path) -> dict[str, dict[str, Any]]:
    return {
        "inventory": read(INVENTORY),
        "case": read(CASE),
        "truth": read(TRUTH),
        "recording-header": header(tmp_path),
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_sound_and_accepts_its_format(name: str, tmp_path: Path) -> None:
    found = schema(name)
    jsonschema.Draft202012Validator.check_schema(found)
    jsonschema.validate(examples(tmp_path)[name], found)
    assert found["description"]


@pytest.mark.parametrize("name", ["inventory", "case", "truth"])
def test_a_schema_refuses_unknown_keys(name: str, tmp_path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError, match="Additional properties"):
        jsonschema.validate(examples(tmp_path)[name] | {"x": 1}, schema(name))


def test_an_unknown_schema() -> None:
    with pytest.raises(KeyError):
        schema("frobs")
