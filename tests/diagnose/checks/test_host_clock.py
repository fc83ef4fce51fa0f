"""host/clock: within 100 ms, by pair."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import D, P, because, engine, judge, seen

ID = "host/clock"
FACT = "host.clock_offset_s"


def ends(left: str | None, right: str | None, hosts: str = "ab") -> tuple[dict[str, str | None], dict[str, str | None]]:
    return engine(hosts[0]) | {FACT: left}, engine(hosts[1]) | {FACT: right}


@pytest.mark.parametrize(
    ("left", "right", "says"),
    [
        ("0", "0.1", "ok"),
        ("0", "0.101", "warn"),
        ("-0.06", "0.05", "warn"),
        ("5.0", "5.05", "ok"),
        ("0", "soon", "unknown"),
    ],
)
def test_a_tenth_of_a_second(left: str, right: str, says: str) -> None:
    found = judge(ID, *ends(left, right))
    assert verdict(found) == says
    if says == "warn":
        assert values(found) == [(P, FACT, float(left)), (D, FACT, float(right))]


def test_one_host_has_one_clock() -> None:
    found = judge(ID, *ends(None, None, "aa"))
    assert verdict(found) == "ok"
    assert "one clock" in because(found)


def test_what_was_not_read_is_unknown() -> None:
    assert unread(judge(ID, *ends("0", None))) == [(D, FACT)]
    assert unread(judge(ID)) == [(P, FACT), (D, FACT)]


def test_golden() -> None:
    assert verdict(golden_preflight(ID, seen(*ends("0.002", "-1.75")))) == "warn"
