"""startup/kv-events: events where the policy follows them, equal blocks where it counts in blocks."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, because, engine, judge, seen

ID = "startup/kv-events"
ON = '{"enable_kv_cache_events": true, "publisher": "zmq"}'
OFF = '{"enable_kv_cache_events": false}'


def ends(
    events: str | None, size: str | None = "32", **more: str | None
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    return engine("a", kv_events_config=events, block_size=size, **more), engine(
        "b", kv_events_config=ON, block_size="32"
    )


@pytest.mark.parametrize("policy", ["kv", "precise-prefix-cache-scorer", "kv-aware"])
@pytest.mark.parametrize(
    ("events", "says"), [(ON, "ok"), (OFF, "fail"), (None, "fail"), ("{}", "fail"), ("no json", "unknown")]
)
def test_policies_that_follow_events(policy: str, events: str | None, says: str) -> None:
    found = judge(ID, *ends(events), router={"policy": policy, "block_size": "32"})
    assert verdict(found) == says
    if says == "fail":
        assert {scope for scope, _, _ in values(found)} == {"router-0", P}


@pytest.mark.parametrize(("size", "says"), [("32", "ok"), ("32.0", "ok"), ("16", "fail"), (None, "unknown")])
def test_policies_that_hash_themselves_need_equal_blocks_only(size: str | None, says: str) -> None:
    found = judge(ID, *ends(None, size), router={"policy": "prefix-affinity", "block_size": "32"})
    assert verdict(found) == says


def test_a_dotted_switch_counts() -> None:
    facts = ends(None, kv_events_config__enable_kv_cache_events="True")
    assert verdict(judge(ID, *facts, router={"policy": "kv", "block_size": "32"})) == "ok"


@pytest.mark.parametrize("policy", ["round-robin", "least-loaded", "zone-aware", "random"])
def test_other_policies_look_for_no_prefix(policy: str) -> None:
    found = judge(ID, *ends(None), router={"policy": policy})
    assert verdict(found) == "not-applicable"
    assert policy in because(found)


def test_what_was_not_read_is_unknown() -> None:
    assert unread(judge(ID, router={})) == [("router-0", "policy")]
    found = judge(ID, router={"policy": "kv"})
    assert set(unread(found)) == {(n, f) for n in (P, D) for f in ("kv_events_config", "block_size")} | {
        ("router-0", "block_size")
    }


def test_without_a_router_it_does_not_apply() -> None:
    assert verdict(judge(ID)) == "not-applicable"


def test_golden() -> None:
    found = golden_preflight(ID, seen(*ends(None, "64"), router={"policy": "kv", "block_size": "16"}))
    assert verdict(found) == "fail"
