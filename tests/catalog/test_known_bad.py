"""The list of known-bad versions: how versions compare, and what is refused."""

from __future__ import annotations

import pytest

from pdops.catalog.known_bad import known_bad, parse, release
from pdops.errors import CatalogError

ENTRY = """
schema: pdops/known-bad/v1
known_bad:
  - {id: a, versions: {vllm: ">=1.2,<1.4"}, cause: engine-crash, what: w, fix: f, source: s, evidence: reported}
"""


@pytest.mark.parametrize(
    ("less", "more"),
    [("1.2.3", "1.2.4"), ("1.9", "1.10"), ("1.2rc1", "1.2"), ("1.2.dev3+g1", "1.2"), ("1.1.9", "1.2.0rc1")],
)
def test_versions_in_order(less: str, more: str) -> None:
    a, b = release(less), release(more)
    assert a is not None
    assert b is not None
    assert a < b


@pytest.mark.parametrize(("a", "b"), [("1.2", "1.2.0"), ("v1.2", "1.2"), ("1.2+cu130", "1.2"), ("1.2.post1", "1.2")])
def test_versions_that_are_one(a: str, b: str) -> None:
    assert release(a) == release(b)


@pytest.mark.parametrize("text", ["", "dev", "main-3f2c", "latest"])
def test_what_is_no_version(text: str) -> None:
    assert release(text) is None


@pytest.mark.parametrize(
    ("version", "inside"),
    [("1.1.9", False), ("1.2", True), ("1.3.99", True), ("1.4", False), ("1.4rc1", True), ("dev", None)],
)
def test_ranges(version: str, inside: bool | None) -> None:
    assert parse(ENTRY)[0].covers("vllm", version) is inside


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("pdops/known-bad/v1", "pdops/known-bad/v9"), "schema"),
        (("engine-crash", "gremlins"), "unknown cause"),
        ((">=1.2,<1.4", "around 1.2"), "no range"),
        ((">=1.2,<1.4", ">=1.2;<1.4"), "no range"),
        (("{vllm: ", "{"), "not valid"),
        (("what: w, ", ""), "not valid"),
        (("what: w", "what: w, colour: red"), "not valid"),
        (("evidence: reported", "evidence: rumour"), "not valid"),
        ((": a, ", ": a: "), "not YAML"),
    ],
)
def test_bad_lists_are_refused(change: tuple[str, str], why: str) -> None:
    with pytest.raises(CatalogError, match=why):
        parse(ENTRY.replace(*change))


def test_the_same_id_twice_is_refused() -> None:
    with pytest.raises(CatalogError, match="twice"):
        parse(ENTRY + ENTRY.strip().splitlines()[-1])


def test_the_shipped_list() -> None:
    entries = known_bad()
    assert len(entries) >= 10
    for entry in entries:
        assert entry.source.startswith("https://github.com/")
        assert entry.what
        assert entry.fix
