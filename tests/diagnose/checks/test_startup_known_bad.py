"""startup/known-bad: combinations that misbehave are found, other versions are not, unread ones are unknown."""

from __future__ import annotations

import pytest

from pdops.catalog.known_bad import known_bad
from pdops.diagnose.finding import Status
from tests.diagnose.build import ask, causes, golden_preflight, one, unread, values, verdict, view, worker
from tests.diagnose.hostfacts import D, P, because, engine, judge, seen

ID = "startup/known-bad"


def versions(
    vllm: str | None, nixl: str | None, engine_name: str = "vllm", **more: str | None
) -> tuple[str, list[str]]:
    facts = engine("a", version=vllm, nixl_version=nixl, **more)
    found = judge(ID, facts, engine("b"), engine_name=engine_name)
    return verdict(found), causes(found)


@pytest.mark.parametrize(
    ("vllm", "nixl", "says", "why"),
    [
        ("0.25.0", "1.3.1", "fail", "engine-crash"),
        ("0.25.1+cu130", "1.3.1", "fail", "engine-crash"),
        ("0.25.2", "1.3.1", "warn", "peer-restart-stale-state"),
        ("0.26.0", "1.3.1", "fail", "transport-error"),
        ("0.28.0", "1.3.2", "warn", "peer-restart-stale-state"),
        ("0.28.0", "1.3.0", "warn", "transport-error"),
        ("0.27.1", "1.5.1", "warn", "kv-strand-prefill"),
        ("0.29.0", "1.5.1", "warn", "silent-corruption"),
        ("0.28.0", "0.10.0", "warn", "transport-config"),
        ("0.32.0", "1.5.1", "ok", None),
        ("0.25.0rc1", "1.5.1", "ok", None),
    ],
)
def test_the_list(vllm: str, nixl: str, says: str, why: str | None) -> None:
    outcome, found = versions(vllm, nixl)
    assert outcome == says
    assert why in found if why else found == []


def test_an_engine_s_own_combination() -> None:
    assert versions("0.5.17", "1.3.2", "sglang") == ("warn", ["peer-restart-stale-state", "engine-crash"])
    assert "engine-crash" not in versions("0.5.18", "1.3.2", "sglang")[1]


@pytest.mark.parametrize(("backends", "n"), [('["LIBFABRIC"]', 2), ('["UCX"]', 1), (None, 1)])
def test_what_concerns_one_backend_only(backends: str | None, n: int) -> None:
    assert len(versions("0.28.0", "1.3.0", backends=backends)[1]) == n


def test_both_versions_stand_side_by_side() -> None:
    found = judge(ID, engine("a", version="0.26.0", nixl_version="1.3.1"), engine("b"))
    assert {(P, "version", "0.26.0"), (P, "nixl_version", "1.3.1")} <= set(values(found))
    assert D not in {scope for scope, _, _ in values(found)}


def test_lmcache_only_where_it_is_used() -> None:
    assert (
        "hash-mismatch" in versions("0.32.0", "1.5.1", kv_connector="LMCacheConnectorV1", lmcache_version="0.3.12")[1]
    )
    assert versions("0.32.0", "1.5.1", lmcache_version="0.3.12")[0] == "ok"


@pytest.mark.parametrize(
    ("vllm", "nixl", "lost"),
    [(None, "1.5.1", "version"), ("0.32.0", None, "nixl_version"), ("dev", "1.5.1", "version")],
)
def test_what_was_not_read_or_does_not_compare_is_unknown(vllm: str | None, nixl: str | None, lost: str) -> None:
    facts = engine("a", version=vllm, nixl_version=nixl)
    found = judge(ID, facts, engine("b"))
    assert unread(found) == [(P, lost)]
    assert one(found, Status.UNKNOWN).cause == "version-skew"


def test_the_inventory_s_version_counts() -> None:
    workers = [worker("prefill-0", version="0.29.0"), worker("decode-0", version="0.32.0")]
    assert "silent-corruption" in causes(ask(ID, view(workers=workers, facts={})))


def test_what_is_sound_is_told() -> None:
    assert "vllm 0.32.0, nixl 1.5.1" in because(judge(ID, engine("a"), engine("b")))


def test_every_entry_can_be_met() -> None:
    """An entry whose component no worker has would never be looked at."""
    assert {component for entry in known_bad() for component in entry.versions} <= {
        "vllm",
        "sglang",
        "nixl",
        "lmcache",
        "mooncake",
    }


def test_golden() -> None:
    facts = engine("a", version="0.26.0", nixl_version="1.3.1")
    assert verdict(golden_preflight(ID, seen(facts, engine("b", version="0.29.0")))) == "fail"
