"""Error budgets: how fast they burn, over pairs of windows that a loose objective can reach, and for availability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pdops.errors import UsageError
from pdops.grafana.rules.promql import client, cluster, on, per_cluster
from pdops.grafana.rules.types import CLUSTER, Alert, Group, Recording, Severity, Value
from pdops.model.report import Symptom

SLO = (*CLUSTER, "slo")


@dataclass(frozen=True, slots=True)
class Pair:
    """Page or ticket when the budget burns `factor` times as fast as it may, over both windows."""

    factor: float
    long: str
    short: str
    severity: Severity
    horizon_m: int
    """Minutes of a test after which both windows hold enough."""

    @property
    def fast(self) -> bool:
        """Whether it pages."""
        return self.severity == "critical"


LATENCY = (
    Pair(10, "10m", "2m", "critical", 20),
    Pair(5, "30m", "5m", "critical", 40),
    Pair(2, "6h", "30m", "warning", 70),
    Pair(1, "3d", "6h", "warning", 70),
)
"""The textbook factor of 14.4 asks for 72 % of broken promises at an objective of 95 %, and cannot be reached at all below
93.06 %; these ask for 50 %, 25 %, 10 % and 5 %. A total outage is seen after 5 min."""
AVAILABILITY = (
    Pair(14.4, "1h", "5m", "critical", 70),
    Pair(6, "6h", "30m", "critical", 70),
    Pair(3, "1d", "2h", "warning", 130),
    Pair(1, "3d", "6h", "warning", 130),
)
"""Pairs of the SRE workbook for an objective of 99.9 %."""
AVAILABILITY_OBJECTIVE = 0.999
LEAST_BAD = 10.0
"""Bad events a pair must be able to see in its long window: with fewer requests one bad one is a burn."""
_TEXTS = {"ttft": ("First tokens", Symptom.TTFT, "Ttft"), "itl": ("Token gaps", Symptom.ITL, "Itl")}


def reachable(objective: float, pairs: tuple[Pair, ...] = LATENCY) -> None:
    """Refuse an objective under which a pair can never fire: `factor * (1 - objective)` must stay below 1.

    Raises:
        UsageError: it is no ratio between 0 and 1, or a pair cannot be reached.
    """
    if not 0 < objective < 1:
        raise UsageError(
            "the objective is no ratio", why=f"{objective:g} is not between 0 and 1", hint="0.95 means 95 %"
        )
    for pair in pairs:
        needed = pair.factor * (1 - objective)
        if needed >= 1 - 1e-9:
            raise UsageError(
                f"the burn-rate alert at {pair.factor:g}x over {pair.long} can never fire",
                why=f"an objective of {objective:g} would need {needed:.0%} of bad events",
                hint=f"promise more than {1 - 1 / pair.factor:.2%}, or take that pair out",
            )


def groups() -> tuple[Group, ...]:
    """Return recording rules and alerts of latency promises and of availability."""
    return (
        Group(name="pdops-slo-recording", recordings=(*_latency_recordings(), *_availability_recordings())),
        Group(name="pdops-slo-alerts", alerts=(*_latency_alerts(), *_availability_alerts(), _unreachable())),
    )


def _windows(pairs: tuple[Pair, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(w for pair in pairs for w in (pair.short, pair.long)))


def _latency_recordings() -> Iterator[Recording]:
    yield Recording(
        name="cluster:pdops_slo_budget:ratio", expr=per_cluster("1 - pdops_slo_objective_ratio", "max"), keeps=CLUSTER
    )
    for window in _windows(LATENCY):
        events = f"sum by (cluster, model, slo) (increase(pdops_slo_events_total[{window}]))"
        good = f'sum by (cluster, model, slo) (increase(pdops_slo_good_events_total{{bound="high"}}[{window}]))'
        yield Recording(name=f"slo:pdops_slo_events:increase{window}", expr=events, keeps=SLO)
        # What may have been good counts as good, so the budget is surely burning when this says so.
        yield Recording(
            name=f"slo:pdops_slo_bad:ratio_increase{window}",
            expr=f"clamp_min(1 - {good} / (slo:pdops_slo_events:increase{window} > 0), 0)",
            keeps=SLO,
        )


def _availability_recordings() -> Iterator[Recording]:
    for window in _windows(AVAILABILITY):
        ok, bad = (
            f"({per_cluster(f'increase(pdops_client_request_{what}_total[{window}])')} or "
            + per_cluster(f'increase(pdops_request_{what}_total{{role="router"}}[{window}])')
            + ")"
            for what in ("success", "failure")
        )
        # A failure that never happened has no series, and a cluster in which all fail has none of success.
        bad, ok = f"({bad} or 0 * {ok})", f"({ok} or 0 * {bad})"
        yield Recording(name=f"cluster:pdops_requests:increase{window}", expr=f"{ok} + {bad}", keeps=CLUSTER)
        yield Recording(
            name=f"cluster:pdops_requests_failed:ratio_increase{window}",
            expr=f"{bad} / (cluster:pdops_requests:increase{window} > 0)",
            keeps=CLUSTER,
        )


def _latency_alerts() -> Iterator[Alert]:
    for slo, (what, symptom, word) in _TEXTS.items():
        for pair in LATENCY:
            yield _latency(slo, what, symptom, word, pair)
        yield _missed(slo, what, symptom, word)


def _latency(slo: str, what: str, symptom: Symptom, word: str, pair: Pair) -> Alert:
    def bad(window: str) -> str:
        allowed = f"{on(CLUSTER)} group_left () ({pair.factor:g} * cluster:pdops_slo_budget:ratio)"
        return f'slo:pdops_slo_bad:ratio_increase{window}{{slo="{slo}"}} >= {allowed}'

    events = f'slo:pdops_slo_events:increase{pair.long}{{slo="{slo}"}}'
    enough = f"{events} >= {on(CLUSTER)} group_left () ({LEAST_BAD / pair.factor:g} / cluster:pdops_slo_budget:ratio)"
    return Alert(
        name=f"PD{word}Burn{'Fast' if pair.fast else 'Slow'}",
        expr=f"{bad(pair.long)} and {bad(pair.short)} and {enough}",
        keeps=SLO,
        for_="0m",
        severity=pair.severity,
        summary=f"{what} of {{{{ $labels.cluster }}}} use up their error budget {pair.factor:g} times too fast",
        do=f"Seen over {pair.long} and {pair.short}; only events that surely broke the promise count. `pdops diagnose` "
        "names the layer. Do not add workers before it says which pool is short.",
        symptom=symptom,
        pool="decode" if slo == "itl" else "all",
        labels={"long": pair.long, "short": pair.short},
        inputs=_promised(slo, pair.factor * 0.05),
        names={"cluster": "c1", "slo": slo},
        optional=_unneeded(slo),
        horizon_m=pair.horizon_m,
        more={
            "nothing is good": (_outage(slo, 10.0), True),
            "too few events to tell": (_outage(slo, 0.05 / pair.horizon_m), False),
            **(_phases(slo, pair) if pair.fast else {}),
        },
    )


def _promised(slo: str, bad: float) -> dict[str, float | tuple[float, float]]:
    """Return test series of one promise: ten events a second, of which just below and just above `bad` are bad."""
    events = cluster("pdops_slo_events_total", slo=slo, source="client")
    good = {
        bound: cluster("pdops_slo_good_events_total", slo=slo, source="client", bound=bound)
        for bound in ("low", "high")
    }
    return {
        cluster("pdops_slo_objective_ratio"): 0.95,
        events: 10.0,
        good["high"]: (10 * (1 - bad * 0.99), 10 * (1 - bad * 1.01)),
        good["low"]: 0.0,
    }


def _outage(slo: str, events_per_s: float) -> dict[str, Value]:
    """Return test series of a promise that every event breaks."""
    good = cluster("pdops_slo_good_events_total", slo=slo, source="client", bound="high")
    events = cluster("pdops_slo_events_total", slo=slo, source="client")
    return {cluster("pdops_slo_objective_ratio"): 0.95, events: events_per_s, good: 0.0}


def _phases(slo: str, pair: Pair) -> dict[str, tuple[dict[str, Value], bool]]:
    """Return situations in which only one of the two windows burns: it is over, or it has just begun."""
    good = cluster("pdops_slo_good_events_total", slo=slo, source="client", bound="high")
    short_m = int(pair.short.removesuffix("m"))
    before_m = pair.horizon_m - short_m - 2
    over = f"0x{before_m} 600+600x{short_m + 2}"
    begun = f"0+600x{before_m + 2} {600 * (before_m + 2)}x{short_m}"
    given = _outage(slo, 10.0)
    return {"it is over": ({**given, good: over}, False), "it has just begun": ({**given, good: begun}, False)}


def _unneeded(slo: str) -> frozenset[str]:
    return frozenset(series for series in _promised(slo, 0) if 'bound="low"' in series)


def _missed(slo: str, what: str, symptom: Symptom, word: str) -> Alert:
    return Alert(
        name=f"PD{word}High",
        expr=f'slo:pdops_slo_bad:ratio_increase5m{{slo="{slo}"}} > {on(CLUSTER)} group_left () '
        f'cluster:pdops_slo_budget:ratio and slo:pdops_slo_events:increase5m{{slo="{slo}"}} >= {LEAST_BAD * 2:g}',
        keeps=SLO,
        for_="10m",
        severity="info",
        summary=f"{what} of {{{{ $labels.cluster }}}} break their promise more often than allowed",
        do="`pdops diagnose` names the layer; `pdops explain` its check. The burn-rate alerts say whether it is urgent.",
        check="decode/itl-high" if slo == "itl" else None,
        symptom=symptom,
        pool="decode" if slo == "itl" else "all",
        inputs=_promised(slo, 0.05),
        names={"cluster": "c1", "slo": slo},
        optional=_unneeded(slo),
    )


def _availability_alerts() -> Iterator[Alert]:
    for pair in AVAILABILITY:
        budget = 1 - AVAILABILITY_OBJECTIVE
        limit = pair.factor * budget
        bad = " and ".join(
            f"cluster:pdops_requests_failed:ratio_increase{window} >= {limit:.6g}" for window in (pair.long, pair.short)
        )
        enough = f"cluster:pdops_requests:increase{pair.long} >= {LEAST_BAD / limit:.6g}"
        failed = client("pdops_client_request_failure_total")
        yield Alert(
            name=f"PDAvailabilityBurn{'Fast' if pair.fast else 'Slow'}",
            expr=f"{bad} and {enough}",
            keeps=CLUSTER,
            for_="0m",
            severity=pair.severity,
            summary=f"Requests to {{{{ $labels.cluster }}}} fail {pair.factor:g} times as often as "
            f"{AVAILABILITY_OBJECTIVE:.1%} allows",
            do=f"Seen over {pair.long} and {pair.short}. Failed, empty, timed-out and rejected requests count. "
            "`pdops diagnose` names the layer; do not raise retries before it does.",
            symptom=Symptom.ERRORS,
            pool="router",
            labels={"long": pair.long, "short": pair.short},
            inputs={
                client("pdops_client_request_success_total"): (10 * (1 - limit * 0.99), 10 * (1 - limit * 1.01)),
                failed: (10 * limit * 0.99, 10 * limit * 1.01),
            },
            names={"cluster": "c1"},
            horizon_m=pair.horizon_m,
            more={
                "every request fails, so nobody counts success": ({failed: 10 / pair.factor / limit}, True),
                "too few requests to tell": (
                    {client("pdops_client_request_success_total"): 0, failed: 0.01 / pair.horizon_m},
                    False,
                ),
            },
        )


def _unreachable() -> Alert:
    worst = max(pair.factor for pair in LATENCY)
    return Alert(
        name="PDSloUnreachable",
        expr=f"{worst:g} * cluster:pdops_slo_budget:ratio >= 0.9999",
        keeps=CLUSTER,
        for_="0m",
        severity="warning",
        summary="The promise of {{ $labels.cluster }} is so loose that its fastest burn-rate alert cannot fire",
        do=f"At {worst:g} times the budget more than all requests would have to be bad. Set slo.attainment above "
        f"{1 - 1 / worst:.0%} in the inventory.",
        symptom=Symptom.NO_DATA,
        pool="all",
        inputs={cluster("pdops_slo_objective_ratio"): (0.91, 0.9)},
        names={"cluster": "c1"},
    )
