"""Alert rules for a deployment without the exporter, on engines' own metrics; names come from the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdops.catalog.load import catalog
from pdops.reference.spec import DeploymentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert; `check` is the page that `pdops explain` shows for it, `for_` how long it must hold."""

    name: str
    expr: str
    for_: str = "0m"
    severity: str
    summary: str
    description: str
    check: str | None = None

    def rule(self) -> dict[str, Any]:
        """Return it as Prometheus reads it."""
        notes = {"summary": self.summary, "description": self.description}
        if self.check is not None:
            notes["explain"] = f"pdops explain {self.check}"
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.for_,
            "labels": {"severity": self.severity},
            "annotations": notes,
        }


def series(signal: str, engine: str, suffix: str = "", **labels: str) -> str:
    """Return a selector for a signal as an engine exports it, names and label filters from the catalog."""
    source = next(s for s in catalog().signals[signal].sources[engine] if s.metric is not None and s.until is None)
    exact = [f'{name}="{value}"' for name, value in labels.items()]
    filters = [f'{name}=~"{value}"' for name, value in source.match.items()]
    return f"{source.metric}{suffix}{{{','.join((*exact, *filters))}}}"


def rules(spec: DeploymentSpec) -> dict[str, Any]:
    """Return the rule groups of a deployment."""
    engines, router, meta = engine_alerts(spec), router_alerts(spec), meta_alerts(spec)
    groups = {"pdops-engines": engines, "pdops-router": router, "pdops-data": meta}
    return {"groups": [{"name": name, "rules": [a.rule() for a in found]} for name, found in groups.items() if found]}


def engine_alerts(spec: DeploymentSpec) -> list[Alert]:
    """Return the alerts that engines' own metrics carry."""
    c, name = {"cluster": spec.name}, spec.name
    decode = {**c, "role": "decode"}
    prefill = {**c, "role": "prefill"}
    local = series("local_prefill_tokens", "vllm", **decode)
    prompts = series("prompt_tokens", "vllm", **decode)
    return [
        Alert(
            name="PDKvReadAfterExpiry",
            expr=f"sum by (cluster, worker) (increase({series('kv_notifications_after_expiry', 'vllm', **prefill)}[10m])) > 0",
            severity="critical",
            summary="KV of {{ $labels.worker }} was read after its lease had expired: answers may be wrong",
            description="Requests may have ended with HTTP 200 and wrong text. The counter lags on an idle worker. "
            "Check answers with `pdops canary`, and lengthen the lease or shorten the wait in decode.",
            check="transfer/read-after-expiry",
        ),
        Alert(
            name="PDKvLeaseExpired",
            expr=f"sum by (cluster, worker) (increase({series('kv_transfer_expired', 'vllm', **prefill)}[10m])) > 0",
            severity="warning",
            summary="{{ $labels.worker }} freed KV that no decode worker had pulled",
            description="Each one was a prefill for nothing; its request failed or was computed again.",
            check="transfer/lease-expiry",
        ),
        Alert(
            name="PDKvTransferFailing",
            expr=f"sum by (cluster, worker) (increase({series('kv_transfer_failures', 'vllm', **decode)}[5m])) > 0",
            for_="1m",
            severity="warning",
            summary="KV transfers to {{ $labels.worker }} fail",
            description="The counter also counts handshakes and notifications, so one request may add two.",
            check="transfer/failures",
        ),
        Alert(
            name="PDSilentLocalPrefill",
            expr=f"sum by (cluster, worker) (rate({local}[5m])) / sum by (cluster, worker) (rate({prompts}[5m]) > 0) > 0.05",
            for_="5m",
            severity="warning",
            summary="{{ $labels.worker }} computes prompts itself instead of pulling their KV",
            description="Decode does prefill's work, and its token gaps pay for it.",
            check="router/silent-local-prefill",
        ),
        Alert(
            name="PDDecodeKvExhausted",
            expr=f"max by (cluster, worker) ({series('kv_cache_usage', 'vllm', **decode)}) > 0.9 and "
            f"sum by (cluster, worker) (rate({series('preemptions', 'vllm', **decode)}[5m])) > 0",
            for_="2m",
            severity="warning",
            summary="{{ $labels.worker }} runs out of KV blocks and preempts",
            description="Preempted requests are computed again. Fewer at once, or more decode workers.",
            check="decode/kv-exhaustion",
        ),
        Alert(
            name="PDPrefillQueueing",
            expr=f"sum by (cluster) ({series('queue_depth_capacity', 'vllm', **prefill)}) > 0",
            for_="10m",
            severity="warning",
            summary="Requests of {{ $labels.cluster }} have queued for prefill for ten minutes",
            description="Prefill takes less than is asked for; first tokens wait here.",
            check="prefill/queue-backlog",
        ),
        *(_down(role, len(found), name) for role, found in (("prefill", spec.prefills()), ("decode", spec.decodes()))),
    ]


def router_alerts(spec: DeploymentSpec) -> list[Alert]:
    """Return the alerts that the router's metrics carry; none without a router."""
    if spec.router is None:
        return []
    c = {"cluster": spec.name}
    failed = series("request_failure", "pdops_router", **c)
    every = f'{failed.split("{")[0]}{{cluster="{spec.name}"}}'
    found = [
        Alert(
            name="PDRequestsFailing",
            expr=f"sum by (cluster) (rate({failed}[5m])) / sum by (cluster) (rate({every}[5m]) > 0) > 0.01",
            for_="2m",
            severity="critical",
            summary="More than 1 % of the requests to {{ $labels.cluster }} fail, end empty or are turned away",
            description="Counted at the router as clients saw it. `pdops diagnose` names the layer.",
        ),
        Alert(
            name="PDRouterExcludesHealthy",
            expr=f'{series("worker_health", "pdops_router", **c)} == 0 and on (cluster, worker) up{{cluster="{spec.name}"}} == 1',
            for_="2m",
            severity="warning",
            summary="The router leaves out {{ $labels.worker }}, which answers Prometheus",
            description="Its health page, its name or the way from the router to it is at fault.",
            check="router/excludes-healthy",
        ),
    ]
    promised = (
        ("PDTtftHigh", "ttft_seconds", spec.slo.ttft_s, "First tokens", None),
        ("PDItlHigh", "itl_seconds", spec.slo.itl_s, "Token gaps", "decode/itl-high"),
    )
    for name, signal, limit, what, check in promised:
        if limit is None:
            continue
        buckets = series(signal, "pdops_router", "_bucket", **c)
        found.append(
            Alert(
                name=name,
                expr=f"histogram_quantile({spec.slo.percentile:g}, sum by (cluster, le) (rate({buckets}[5m]))) > {limit:g}",
                for_="10m",
                severity="warning",
                summary=f"{what} of {{{{ $labels.cluster }}}} take longer than promised ({limit:g} s)",
                description="As clients saw it; a quantile between two bucket edges is only that exact.",
                check=check,
            )
        )
    return found


def meta_alerts(spec: DeploymentSpec) -> list[Alert]:
    """Return the alerts about the data itself, and the one that always fires, so that silence is noticed."""
    running = {r: series("running_requests", "vllm", cluster=spec.name, role=r) for r in ("prefill", "decode")}
    metric = running["prefill"].split("{")[0]
    escaped = metric.replace(":", "_")
    found = [
        Alert(
            name="PDNoData",
            expr=" or ".join(f"absent({s})" for s in running.values()),
            for_="5m",
            severity="critical",
            summary="No metrics of any {{ $labels.role }} worker",
            description="Nothing is known of this pool; other alerts about it cannot fire.",
            check="telemetry/no-data",
        ),
        Alert(
            name="PDMetricNamesEscaped",
            expr=f'count by (cluster) ({escaped}{{cluster="{spec.name}"}}) > 0',
            for_="5m",
            severity="warning",
            summary="Metric names of {{ $labels.cluster }} arrive with the colon replaced",
            description=f"Rules ask for {metric} and find nothing, because the scrape stores {escaped}.",
            check="telemetry/names-escaped",
        ),
        Alert(
            name="PDWatchdog",
            expr="vector(1)",
            severity="none",
            summary="Alerting works",
            description="Always fires. When it no longer arrives, Prometheus or Alertmanager does not work.",
        ),
    ]
    if spec.store is not None:
        up = f'up{{cluster="{spec.name}",role="kvstore"}}'
        found.append(
            Alert(
                name="PDKvStoreDown",
                expr=f"{up} == 0 or absent({up})",
                for_="1m",
                severity="warning",
                summary="The KV store does not answer",
                description="Prompts are computed again instead of being loaded; requests should still end well.",
                check="kvstore/down",
            )
        )
    return found


def _down(role: str, wanted: int, cluster: str) -> Alert:
    return Alert(
        name=f"PD{role.capitalize()}WorkerDown",
        expr=f'sum by (cluster, role) (up{{cluster="{cluster}",role="{role}"}}) < {wanted}',
        for_="2m",
        severity="critical",
        summary=f"{{{{ $value }}}} of {wanted} {role} workers answer",
        description="A worker that was removed on purpose counts too: render again after changing their number.",
        check=f"{role}/worker-down",
    )
