"""The PromQL lint finds the mistakes that cost a night: rates of gauges, lost le, mixed roles, names nobody exports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pdops_exporters
from pdops.grafana.families import exported, families
from pdops.grafana.promlint import known, lint, names, plain
from pdops.model.series import Kind
from pdops_exporters.signals import ELSEWHERE

sound = [
    'histogram_quantile(0.95, sum by (cluster, le) (rate(pdops_ttft_seconds_bucket{role="decode"}[5m])))',
    "histogram_quantile(0.99, rate(pdops_pair_kv_transfer_seconds_bucket[$__rate_interval]))",
    'sum by (cluster) (rate(pdops_prompt_tokens_total{role="prefill",cluster=~"$cluster"}[$__rate_interval]))',
    "sum by (cluster, role) (pdops_running_requests)",
    "max without (reason) (pdops_queue_requests)",
    "sum by (cluster) (pdops_worker_up)",
    'absent(pdops_prompt_tokens_total{role="prefill"})',
    "deriv(pdops_kv_cache_usage[10m])",
    "pool:pdops_ttft_seconds:p95 > 1",
    'up{job="pdops"} == 0',
    "pdops_slo_seconds * $factor",
]

wrong = {
    "sum(": "cannot be parsed",
    "pdops_no_such_thing": "neither exported nor recorded",
    "pdops_prompt_tokens": "neither exported nor recorded",
    'rate(pdops_kv_cache_usage{role="decode"}[5m])': "which is no counter",
    'pdops_prompt_tokens_total{role="decode"} > 5': "without rate or increase",
    "deriv(pdops_kv_transfer_bytes_total[5m])": "slope of",
    'histogram_quantile(0.9, sum by (cluster) (rate(pdops_ttft_seconds_bucket{role="decode"}[5m])))': "loses le",
    'histogram_quantile(0.9, sum without (le) (rate(pdops_ttft_seconds_bucket{role="decode"}[5m])))': "loses le",
    'histogram_quantile(0.9, rate(pdops_ttft_seconds_count{role="decode"}[5m]))': "no bucket",
    "sum by (cluster) (rate(pdops_prompt_tokens_total[5m]))": "summed over roles",
    "sum(pdops_kv_cache_usage)": "summed over roles",
    "sum without (role, pool, worker) (pdops_running_requests)": "summed over roles",
    'rate(sum(pdops_prompt_tokens_total{role="decode"})[5m:1m])': "rate of a subquery",
    "pdops_pair_kv_transfer_bytes_total{worker='x'}": "no label worker",
    "pool:pdops_ttft_seconds:p95{worker='x'}": "no label worker",
    '{role="decode"}': "without a metric name",
}


@pytest.fixture
def known_names():
    return known({"pool:pdops_ttft_seconds:p95": ("cluster", "pool")})


@pytest.mark.parametrize("expr", sound)
def test_sound_expressions_pass(expr, known_names) -> None:
    assert lint(expr, known_names, variables={"factor": "2"}) == ()


@pytest.mark.parametrize(("expr", "why"), wrong.items())
def test_mistakes_are_named(expr, why, known_names) -> None:
    assert any(why in said for said in lint(expr, known_names)), lint(expr, known_names)


def test_a_dashboard_may_not_fix_its_windows(known_names) -> None:
    expr = 'rate(pdops_prompt_tokens_total{role="decode"}[%s])'
    assert "fixed length" in lint(expr % "5m", known_names, fixed_windows=False)[0]
    assert lint(expr % "$__rate_interval", known_names, fixed_windows=False) == ()


def test_variables_inside_label_values_may_stay() -> None:
    assert plain('x{cluster=~"$cluster"}[${__rate_interval}] > $slo', {"slo": "1"}) == 'x{cluster=~"$cluster"}[4m] > 1'


def test_every_name_of_an_expression_is_found() -> None:
    assert names("a + on (x) max_over_time(rate(b[5m])[1h:1m]) unless absent(c)") == {"a", "b", "c"}


def made_by_hand() -> dict[str, Kind]:
    """Return the families that exporter modules write by name, read from their source."""
    kinds = {"GaugeMetricFamily": Kind.GAUGE, "CounterMetricFamily": Kind.COUNTER}
    found = {}
    for path in Path(pdops_exporters.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds and node.args:
                name = node.args[0]
                if isinstance(name, ast.Constant):
                    found[name.value] = kinds[node.func.id]
    return found


def test_every_family_of_the_exporter_is_known_with_its_kind() -> None:
    for name, kind in made_by_hand().items():
        assert families()[name].kind is kind, name


def test_families_written_here_are_made_by_the_exporter() -> None:
    from pdops.grafana.families import _COUNTERS, _GAUGES

    assert {n for n in {*_GAUGES, *_COUNTERS} if not n.startswith("pdops_gpu_")} <= set(made_by_hand())


def test_gpu_families_are_those_of_the_exporter() -> None:
    from pdops_exporters.gpu import LABELS, _families

    for family in _families().values():
        assert families()[family.name].labels == tuple(family._labelnames)
        assert family._labelnames[: len(LABELS)] == LABELS


def test_signals_said_better_elsewhere_are_not_asked_for() -> None:
    for signal in ELSEWHERE - {"kv_generated_bytes", "process_start_seconds"}:
        assert f"pdops_{signal}" not in families()
        assert f"pdops_{signal}_total" not in exported()
