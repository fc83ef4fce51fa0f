"""host/rcache: a bound, hooks off, or an engine that sets the bound itself."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, because, engine, judge, seen

ID = "host/rcache"
BOUND, HOOKS = "UCX_RCACHE_MAX_UNRELEASED", "UCX_MEM_MMAP_HOOK_MODE"


def ask_of(engine_name: str | None = "vllm", **more: str | None) -> tuple[str, list[tuple[str, str, object]]]:
    found = judge(ID, engine("a", **more), engine("b", **{BOUND: "1024"}), engine_name=engine_name)
    return verdict(found), values(found)


@pytest.mark.parametrize(
    ("bound", "hooks", "version", "says"),
    [
        ("1024", None, "0.20.0", "ok"),
        ("inf", None, "0.32.0", "warn"),
        (None, "none", "0.20.0", "ok"),
        (None, "reloc", "0.20.0", "warn"),
        (None, None, "0.32.0", "ok"),
        (None, None, "0.33.1+cu130", "ok"),
        (None, None, "0.31.9", "warn"),
        (None, None, "0.32.0rc1", "warn"),
        (None, None, None, "unknown"),
        (None, None, "dev", "unknown"),
    ],
)
def test_bound_hooks_or_version(bound: str | None, hooks: str | None, version: str | None, says: str) -> None:
    assert ask_of(**{BOUND: bound, HOOKS: hooks, "version": version})[0] == says


def test_other_engines_do_not_set_it() -> None:
    assert ask_of("sglang", version="0.5.23") == ("warn", [(P, BOUND, "not set")])


def test_what_the_engine_sets_is_told() -> None:
    assert "set by the engine itself" in because(judge(ID, engine("a"), engine("b")))


def test_what_was_not_read_is_unknown() -> None:
    nixl = {"kv_connector": "NixlConnector"}
    assert unread(judge(ID, nixl, nixl)) == [(P, BOUND), (D, BOUND)]
    assert unread(judge(ID)) == [(P, "kv_connector"), (D, "kv_connector")]


def test_only_of_ucx() -> None:
    facts = engine("a", kv_connector="MooncakeConnector")
    assert verdict(judge(ID, facts, facts)) == "not-applicable"


def test_golden() -> None:
    found = golden_preflight(ID, seen(engine("a", version="0.31.0"), engine("b", **{BOUND: "inf"})))
    assert verdict(found) == "warn"
