"""Reading bodies: what Alertmanager sends, and anything else somebody may send."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.model.times import rfc3339
from pdops.respond.alerts import (
    MAX_ALERTS,
    MAX_TEXT,
    BodyError,
    Status,
    check_receiver,
    moment_ms,
    read_delivery,
    read_list,
)
from pdops.sources.redact import clean
from tests.respond.kit import alert, body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
FIELDS = st.sampled_from(["status", "labels", "startsAt", "fingerprint", "annotations", "updatedAt", "receivers"])


def test_every_alert_is_read_with_its_own_status() -> None:
    delivery = read_delivery(body(alert(worker="prefill-0"), alert(status="resolved", worker="prefill-1")))
    assert [(a.labels["worker"], a.status) for a in delivery.alerts] == [
        ("prefill-0", Status.FIRING),
        ("prefill-1", Status.RESOLVED),
    ]


def test_an_episode_is_the_alert_and_when_it_began() -> None:
    first, again, later = (read_delivery(body(alert(starts_s=s))).alerts[0].episode for s in (1000.0, 1000.0, 1001.0))
    assert first == again != later


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2026-11-29T12:38:51.427103415Z", "2026-11-29T12:38:51.427Z"),
        ("2026-11-29T12:34:49.14Z", "2026-11-29T12:34:49.140Z"),
        ("2026-11-29T12:34:49Z", "2026-11-29T13:34:49.000+01:00"),
    ],
)
def test_webhook_and_api_write_the_same_time_in_two_ways(one: str, other: str) -> None:
    assert moment_ms(one) == moment_ms(other)


def test_one_alert_that_cannot_be_read_does_not_stop_the_others() -> None:
    bad = {**alert(), "fingerprint": "../../etc/passwd"}
    delivery = read_delivery(body(bad, alert()))
    assert (len(delivery.alerts), len(delivery.invalid)) == (1, 1)
    assert delivery.invalid[0].key() == read_delivery(body(bad)).invalid[0].key()


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (7, "not a JSON object"),
        ({**alert(), "labels": 7}, "labels: Input should be a valid dictionary"),
        ({**alert(), "startsAt": "0001-01-01T00:00:00+01:00"}, "date value out of range"),
    ],
)
def test_why_an_alert_cannot_be_read_names_no_class_and_no_empty_place(item: Any, why: str) -> None:
    delivery = read_delivery(json.dumps({"version": "4", "alerts": [item]}).encode())
    assert [i.why for i in delivery.invalid] == [why]


def test_an_alert_that_began_with_the_calendar_is_shown_so() -> None:
    (read,) = read_delivery(body({**alert(), "startsAt": "0001-01-01T00:00:00Z"})).alerts
    assert rfc3339(read.starts_ms / 1000.0) == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize("field", ["labels", "startsAt", "fingerprint", "status"])
@pytest.mark.parametrize(
    "value", [None, 7, "", [], {}, {"a": 1}, "x" * 5000, "\ud800", "9999-99-99T99:99:99Z", {"alertname": ""}]
)
def test_a_field_of_a_wrong_kind_makes_an_alert_unreadable(field: str, value: Any) -> None:
    delivery = read_delivery(body({**alert(), field: value}))
    assert (delivery.alerts, len(delivery.invalid)) == ((), 1)


def test_labels_are_bounded_and_few_are_kept() -> None:
    (read,) = read_delivery(body(alert(worker="w" * 9000, secret="x", cluster="a\x1b[31m\nb"))).alerts
    assert set(read.labels) == {"worker", "cluster"}
    assert len(read.labels["worker"]) == MAX_TEXT
    assert read.labels["cluster"] == "ab"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 400),
        (b"\xff\x00", 400),
        (b"[" * 200_000, 400),
        (b'{"a":' * 100_000, 400),
        (b"1" * 10_000, 400),
        (b"NaN", 422),
        (b"[]", 422),
        (b'{"version":"3","alerts":[]}', 422),
        (b'{"version":4,"alerts":[]}', 422),
        (b'{"version":"4","alerts":{}}', 422),
        (b'{"version":"4"}', 422),
        (json.dumps({"version": "4", "alerts": [0] * (MAX_ALERTS + 1)}).encode(), 413),
    ],
)
def test_what_is_no_delivery_is_told_with_a_status(sent: bytes, status: int) -> None:
    with pytest.raises(BodyError) as raised:
        read_delivery(sent)
    assert raised.value.status == status


@pytest.mark.parametrize("left_out", [-1, 2.5, "7", None, True, 10**30])
def test_a_count_of_left_out_alerts_that_makes_no_sense_is_bounded(left_out: Any) -> None:
    sent = json.loads(body(alert()))
    assert 0 <= read_delivery(json.dumps({**sent, "truncatedAlerts": left_out}).encode()).truncated <= 1 << 31


def _kept(sent: dict[str, Any], renewed: str = "2026-11-30T00:00:00.000Z") -> dict[str, Any]:
    return {**sent, "status": {"state": "active"}, "updatedAt": renewed, "receivers": [{"name": "pdops"}]}


@pytest.mark.parametrize(
    ("labels", "heard"),
    [({}, True), ({"cluster": "lab"}, True), ({"cluster": "another"}, False), ({"cluster": ""}, False)],
)
def test_the_watchdog_of_another_cluster_is_not_heard(labels: dict[str, str], heard: bool) -> None:
    listed = read_list(json.dumps([_kept(alert("Watchdog", **labels))]).encode(), None, "lab")
    assert (listed.watchdog_at_s is not None) is heard


def test_an_alert_that_is_listed_and_cannot_be_read_is_said() -> None:
    bad = {**_kept(alert()), "startsAt": "yesterday"}
    listed = read_list(json.dumps([_kept(alert(worker="prefill-0")), bad]).encode(), None, "lab")
    assert (len(listed.alerts), len(listed.invalid)) == (1, 1)
    assert "yesterday" in listed.invalid[0].why


def test_a_receiver_that_is_not_there_is_said_with_the_one_that_is_meant() -> None:
    there = b'[{"name": "default"}, {"name": "pdops"}]'
    check_receiver(there, "pdops")
    for body_, why in ((there, "did you mean 'pdops'"), (b"{}", "not a list"), (b"[7]", "no receiver")):
        with pytest.raises(BodyError, match=why):
            check_receiver(body_, "pdop")


def test_a_body_beyond_the_limit_says_the_limit_and_how_to_raise_it() -> None:
    with pytest.raises(BodyError) as raised:
        read_delivery(body(alert(), alert(worker="prefill-1")), max_alerts=1)
    assert raised.value.status == 413
    assert "1 alerts and 2100 bytes" in raised.value.hint
    assert "--max-alerts" in raised.value.hint


@given(st.binary(max_size=400))
def test_any_bytes_are_a_delivery_or_a_status(sent: bytes) -> None:
    for read in (read_delivery, lambda b: read_list(b, None, "lab")):
        with contextlib.suppress(BodyError):
            read(sent)


@given(st.lists(st.dictionaries(FIELDS, JSON, max_size=7) | JSON, max_size=5), JSON)
def test_any_json_in_place_of_alerts_is_read_or_told(items: list[Any], more: Any) -> None:
    sent = json.dumps({"version": "4", "alerts": items, "truncatedAlerts": more}).encode()
    delivery = read_delivery(sent)
    assert len(delivery.alerts) + len(delivery.invalid) == len(items)
    listed = read_list(json.dumps(items).encode(), "pdops", "lab")
    assert len(listed.invalid) <= len(items)


@given(st.dictionaries(st.text(), st.text(), max_size=6), st.text(min_size=1))
def test_any_labels_are_text_and_nothing_else(labels: dict[str, str], name: str) -> None:
    sent = {**alert(), "labels": {**labels, "alertname": name}}
    for read in read_delivery(body(sent)).alerts:
        assert all(clean(v) == v and len(v) <= MAX_TEXT for v in (read.name, *read.labels.values()))
