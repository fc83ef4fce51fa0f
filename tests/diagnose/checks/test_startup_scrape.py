"""startup/scrape: three scrapes within the limit."""

from __future__ import annotations

import pytest

from tests.diagnose.build import golden_preflight, unread, values, verdict
from tests.diagnose.hostfacts import judge, seen

ID = "startup/scrape"


def facts(interval: str | None, limit: str | None) -> dict[str, str | None]:
    return {"scrape_interval_s": interval, "staleness_limit_s": limit}


@pytest.mark.parametrize(
    ("interval", "limit", "says"),
    [
        ("5", "15", "ok"),
        ("5", "14.9", "warn"),
        ("5", "5.1", "warn"),
        ("5", "5", "fail"),
        ("15", "5", "fail"),
        ("0", "5", "not-applicable"),
        (None, "5", "unknown"),
        ("5", None, "unknown"),
    ],
)
def test_interval_and_limit(interval: str | None, limit: str | None, says: str) -> None:
    found = judge(ID, router=facts(interval, limit))
    assert verdict(found) == says
    if says == "fail":
        assert [option for _, option, _ in values(found)] == ["scrape_interval_s", "staleness_limit_s"]


def test_pdops_own_router_scrapes_nothing() -> None:
    assert verdict(judge(ID, router={}, router_engine="pdops_router")) == "not-applicable"
    assert unread(judge(ID, router={})) == [("router-0", "scrape_interval_s")]


def test_without_a_router_it_does_not_apply() -> None:
    assert verdict(judge(ID)) == "not-applicable"


def test_golden() -> None:
    assert verdict(golden_preflight(ID, seen(router=facts("15", "10")))) == "fail"
