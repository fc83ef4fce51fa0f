"""The page as a whole, made from recordings of the real pair."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from syrupy.assertion import SnapshotAssertion

from pdops.model.cluster import Role
from pdops_exporters import collector, slo
from pdops_exporters.collector import ClusterCollector
from pdops_exporters.watched import Watched

from .conftest import registry_of, samples

Play = Callable[..., Watched]


def page(watched: Watched) -> str:
    return generate_latest(registry_of(watched)).decode()


def value(text: str, name: str, **labels: str) -> float | None:
    found = [v for (n, have), v in samples(text).items() if n == name and labels.items() <= dict(have).items()]
    assert len(found) <= 1, f"{name}{labels} is not one series"
    return found[0] if found else None


def test_page_of_a_healthy_pair(played: Play, snapshot: SnapshotAssertion) -> None:
    text = page(played("healthy-load", 100))
    assert re.sub(r"(?m)^pdops_exporter_(?:collect|frame)_seconds.*$", r"(cost)", text) == snapshot


def test_before_the_first_frame_there_is_no_cluster_series() -> None:
    registry = CollectorRegistry()
    ClusterCollector(lambda: None, registry)
    names = {name for name, _ in samples(generate_latest(registry).decode())}
    assert all(name.startswith("pdops_exporter_") for name in names)


def test_counters_of_two_moments_differ_by_what_the_engine_counted(played: Play) -> None:
    early, late = page(played("healthy-load", 60)), page(played("healthy-load", 100))
    for role, signal in (("prefill", "prompt_tokens"), ("decode", "generated_tokens"), ("decode", "kv_transfer_bytes")):
        before, after = (value(t, f"pdops_{signal}_total", worker=f"{role}-0") for t in (early, late))
        assert before is not None
        assert after is not None
        assert after > before > 0


def test_a_restarted_exporter_begins_again_at_zero_and_stays_in_step(played: Play) -> None:
    whole, restarted = page(played("healthy-load", 100)), page(played("healthy-load", 100, from_s=60))
    name = {"name": "pdops_prompt_tokens_total", "worker": "prefill-0"}
    since_begin, since_restart = value(whole, **name), value(restarted, **name)
    assert since_begin is not None
    assert since_restart is not None
    assert 0 < since_restart < since_begin


def test_a_killed_worker_has_no_series_but_its_presence(played: Play) -> None:
    text = page(played("prefill-killed", 110))
    mine = {n for (n, labels) in samples(text) if dict(labels).get("worker") == "prefill-0"}
    assert value(text, "pdops_worker_up", worker="prefill-0") == 0
    assert value(text, "pdops_worker_up", worker="decode-0") == 1
    assert "pdops_queue_depth" not in mine
    assert "pdops_prompt_tokens_total" not in mine


def test_findings_carry_cause_layer_and_scope(played: Play) -> None:
    text = page(played("prefill-killed", 110))
    assert value(text, "pdops_verdict", verdict="fault") == 1
    confidence = value(text, "pdops_finding", cause="prefill-down", scope="prefill-0")
    assert confidence is not None
    assert confidence > 0.5


def test_roles_are_never_mixed_in_one_series(played: Play) -> None:
    for name, labels in samples(page(played("healthy-load", 100))):
        have = dict(labels)
        if "worker" in have and "role" in have:
            assert have["role"] in have["worker"], name


def test_client_latency_has_its_own_name(played: Play) -> None:
    text = page(played("healthy-load", 100))
    at_client = value(text, "pdops_client_ttft_seconds_count")
    engine = value(text, "pdops_ttft_seconds_count", worker="decode-0")
    assert at_client is not None
    assert engine is not None
    assert at_client > 0


def test_kv_generated_is_computed_tokens_times_bytes_per_token(played: Play) -> None:
    text = page(played("healthy-load", 100))
    size = value(text, "pdops_kv_bytes_per_token")
    computed = value(text, "pdops_local_prefill_tokens_total", worker="prefill-0")
    made = value(text, "pdops_kv_generated_bytes_total", worker="prefill-0")
    assert size is not None
    assert computed is not None
    assert made == size * computed


def test_slo_attainment_is_an_interval(played: Play) -> None:
    text = page(played("healthy-load", 100))
    low, high = (value(text, "pdops_slo_attainment_ratio", slo="ttft", bound=b) for b in ("low", "high"))
    assert low is not None
    assert high is not None
    assert 0 <= low <= high <= 1


def test_one_broken_subject_does_not_take_the_others_with_it(played: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> Iterator[Any]:
        raise RuntimeError("no")
        yield

    bad = SimpleNamespace(__name__="pdops_exporters.slo", collect=broken)
    monkeypatch.setattr(
        collector, "SUBJECTS", (bad, *(m for m in collector.SUBJECTS if not m.__name__.endswith("slo")))
    )
    text = page(played("healthy-load", 100))
    assert value(text, "pdops_exporter_subject_errors_total", subject="slo") == 1
    assert value(text, "pdops_worker_up", worker="decode-0") == 1
    assert "pdops_slo_attainment_ratio" not in text


def test_the_page_has_units_and_help_for_every_family(played: Play) -> None:
    text = page(played("healthy-load", 100))
    families = set(re.findall(r"(?m)^# TYPE (\S+)", text))
    helped = set(re.findall(r"(?m)^# HELP (\S+) \S", text))
    assert families == helped


def test_an_engines_own_ttft_is_never_surely_within_the_promise(played: Play) -> None:
    watched = played("healthy-load", 100)
    whole = watched.snapshot()
    assert whole is not None
    engines = replace(whole, pages=tuple(p for p in whole.pages if p.worker.role is not Role.ROUTER))
    counted = slo.count(engines, "ttft_seconds", 1.5)
    assert counted is not None
    assert counted.source == "decode"
    assert counted.possibly > counted.surely == 0


def test_attainment_has_no_lower_end_where_failures_are_not_counted(played: Play) -> None:
    watched = played("healthy-load", 100)
    whole = watched.snapshot()
    assert whole is not None
    series = {key: found for key, found in whole.view.series.items() if key[1] != "request_failure"}
    blind = replace(whole, view=replace(whole.view, series=series))
    told, untold = (slo.attainment(s, "ttft_seconds", 1.5) for s in (whole, blind))
    assert told is not None
    assert untold is not None
    assert told[0] > untold[0] == 0
    assert untold[1] == told[1]
