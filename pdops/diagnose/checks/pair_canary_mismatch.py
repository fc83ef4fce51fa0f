"""A probe through a pair gave another answer than it should, or took too long."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import RECENT_S, Context
from pdops.diagnose.finding import (
    DECISIVE,
    MODERATE,
    STRONG,
    CheckMeta,
    Finding,
    Status,
    Tier,
    Weighed,
    clear,
    not_known,
)
from pdops.model.cluster import Pair
from pdops.model.frame import Probe, ProbeKind
from pdops.model.report import DoNot, Evidence, Scope, Symptom

META = CheckMeta(
    id="pair/canary-mismatch",
    title="A canary through a pair gives a wrong answer, or its KV moves slowly",
    causes=("silent-corruption", "transport-fallback-slow"),
    needs=("kv_transfer_bandwidth", "kv_transfer_failures"),
    tier=Tier.CORRECTNESS,
    explains=("transport-error",),
    no_alert="a probe's answer is known to whoever sent it; no metric of the cluster holds it",
)

SLOW = 0.5
"""Share of the stated link below which a measured transfer is slow (at least half of the link: the usual acceptance test of a transfer path)."""


def check(ctx: Context) -> Iterator[Finding]:
    """Judge the newest probe of each kind at each place, if it is at most ten minutes old."""
    yield from _canaries(ctx, _newest(ctx, ProbeKind.CANARY))
    yield from _speeds(ctx, _newest(ctx, ProbeKind.BANDWIDTH))


def _newest(ctx: Context, kind: ProbeKind) -> dict[Scope | None, Probe]:
    found: dict[Scope | None, Probe] = {}
    for probe in sorted(ctx.view.probes, key=lambda p: (p.t_s, p.pair or "", p.worker or "", p.detail or "")):
        if probe.kind is kind and probe.t_s >= ctx.view.at_s - RECENT_S:
            found[_place(ctx, probe)] = probe
    return dict(sorted(found.items(), key=lambda item: str(item[0])))


def _place(ctx: Context, probe: Probe) -> Scope | None:
    key = probe.pair or probe.worker
    return ctx.scope(key) if key else None


def _canaries(ctx: Context, probes: dict[Scope | None, Probe]) -> Iterator[Finding]:
    wrong = {place: p for place, p in probes.items() if p.ok is False}
    right = [p for p in probes.values() if p.ok is True]
    for place, probe in probes.items():
        if probe.ok is None:
            why = probe.detail or "the canary could not be judged"
            yield not_known("silent-corruption", "canary", why, "send it again with `pdops canary`", place)
    if not wrong:
        if right and len(right) == len(probes):
            yield clear("silent-corruption", f"{len(right)} of {len(right)} canaries gave the right answer")
        return
    failing = _failing(ctx, wrong)
    yield Finding(
        status=Status.FIRED,
        cause="silent-corruption",
        scopes=tuple(place for place in wrong if place is not None),
        for_=(
            *(
                _seen("canary", place, p.detail or "another answer", "prefill's own answer", DECISIVE, "canary")
                for place, p in wrong.items()
            ),
            *failing,
        ),
        symptoms=(Symptom.WRONG_ANSWERS,),
        next=(
            f"take {', '.join(str(p) for p in wrong if p) or 'the pair'} out of routing and treat its answers as wrong",
            "see whether all pairs of one worker, of one model or since one restart are wrong; the others are right"
            if right
            else "send one canary through every other pair: is it one worker, one model, or all?",
            "compare model revision, KV dtype and block size of both sides",
        ),
        runbooks=("wrong-answer-quarantine",),
        do_not=(DoNot(action="raise-retries", why="status is 200, so retries change nothing and add load"),),
    )


def _failing(ctx: Context, wrong: dict[Scope | None, Probe]) -> tuple[Weighed, ...]:
    """Return transfers that fail where the answer is wrong: what fails loudly may as well spoil quietly."""
    found = []
    for probe in wrong.values():
        ends = (probe.worker,) if probe.pair is None else (Pair.parse(probe.pair).key, Pair.parse(probe.pair).dst)
        for key in dict.fromkeys(e for e in ends if e is not None):
            failed = ctx.ask.increase(key, "kv_transfer_failures")
            if failed.above(0):
                found.append(
                    ctx.saw("kv_transfer_failures", key, failed, 0.0, basis="physics", ratio=MODERATE, group="failures")
                )
    return tuple(found)


def _speeds(ctx: Context, probes: dict[Scope | None, Probe]) -> Iterator[Finding]:
    link = ctx.cluster.link_bytes_per_s
    slow = {place: p for place, p in probes.items() if _is_slow(p, link)}
    if not slow:
        return
    yield Finding(
        status=Status.FIRED,
        cause="transport-fallback-slow",
        scopes=tuple(place for place in slow if place is not None),
        for_=tuple(
            _seen(
                "kv_transfer_bandwidth",
                place,
                p.value if p.value is not None else (p.detail or "too slow"),
                link,
                STRONG,
                "bandwidth",
            )
            for place, p in slow.items()
        ),
        symptoms=(),
        next=("run one transfer with UCX_PROTO_INFO=y and read which transport it takes",),
        runbooks=("kv-transfer-relief",),
    )


def _is_slow(probe: Probe, link: float | None) -> bool:
    if probe.ok is not None:
        return not probe.ok
    return probe.value is not None and link is not None and probe.value < SLOW * link


def _seen(
    signal: str, place: Scope | None, observed: float | str, expected: float | str | None, ratio: float, group: str
) -> Weighed:
    evidence = Evidence(
        signal=signal,
        scope=place,
        observed=observed,
        expected=expected,
        basis="probe",
        unit="bytes/s" if isinstance(observed, float) else "",
    )
    return Weighed(evidence, ratio, group)
