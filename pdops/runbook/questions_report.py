"""Questions about what the diagnosis says and what clients see."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field

from pdops.diagnose.candidate import ABSTAIN
from pdops.diagnose.context import Context
from pdops.model.report import Hypothesis, Report, Symptom, Verdict
from pdops.model.series import Reading
from pdops.runbook.action_params import Nothing
from pdops.runbook.gates import Facts, Said, failed, passed, unsure
from pdops.sources.validate import Strict

_SHOWN = 3


class OfRunbook(Strict):
    """A question about this runbook."""

    runbook: str


class Agrees(OfRunbook):
    """Causes and checks, separated by spaces, any of which must be found with at least `min_confidence` (0-1)."""

    causes: str
    checks: str
    min_confidence: Annotated[float, Field(ge=0, le=1)]


class OfCause(Strict):
    """A question about a cause of the catalog."""

    cause: str


class OfSymptom(Strict):
    """A question about a symptom."""

    symptom: Symptom


class OfLatency(Strict):
    """A question about a promised latency."""

    latency: Literal["ttft", "itl"]


class ErrorsBelow(Strict):
    """A share of failed requests, 0-1."""

    ratio: Annotated[float, Field(gt=0, le=1)]


def matching(report: Report, runbook: str, causes: Collection[str], checks: Collection[str]) -> tuple[Hypothesis, ...]:
    """Return the hypotheses that ask for this runbook or name one of these causes or checks, surest first."""
    return tuple(h for h in report.hypotheses if runbook in h.runbooks or h.cause in causes or h.check in checks)


def agrees(facts: Facts, asked: Agrees) -> Said:
    """Judge whether the diagnosis names what this runbook is for, surely enough and as the cause, not an also-ran."""
    report = facts.report
    found = matching(report, asked.runbook, asked.causes.split(), asked.checks.split())
    if report.verdict is Verdict.HEALTHY:
        return failed("healthy", "nothing is wrong that this could mend")
    if report.verdict is Verdict.UNKNOWN:
        return unsure("the diagnosis does not know what is wrong")
    leaders = [_leader(report, fault) for fault in dict.fromkeys(h.fault for h in report.hypotheses)]
    for hypothesis in leaders:
        if hypothesis in found:
            seen = f"{hypothesis.cause} {hypothesis.confidence:.2f}"
            if hypothesis.confidence >= asked.min_confidence:
                return passed(seen)
            return unsure(f"{seen}; at least {asked.min_confidence:.2f} is asked for")
    told = ", ".join(f"{h.cause} {h.confidence:.2f}" for h in leaders) or report.verdict.value
    return failed(told, f"the diagnosis disagrees: this is for {_few(asked.causes.split() or asked.checks.split())}")


def not_advised_against(facts: Facts, asked: OfRunbook) -> Said:
    """Look for a warning of this runbook with the leading hypotheses."""
    for fault in dict.fromkeys(h.fault for h in facts.report.hypotheses):
        for warning in _leader(facts.report, fault).do_not:
            if warning.action == asked.runbook:
                return failed(f"the diagnosis says: do not {asked.runbook}", warning.why)
    return passed("no warning")


def healthy(facts: Facts, _asked: Nothing) -> Said:
    """Take the verdict as it is."""
    verdict = facts.report.verdict
    if verdict is Verdict.UNKNOWN:
        return unsure("the diagnosis does not know how the cluster is")
    return (
        passed("healthy") if verdict is Verdict.HEALTHY else failed(verdict.value, "something is wrong; mend it first")
    )


def cause_gone(facts: Facts, asked: OfCause) -> Said:
    """Judge whether a cause is still named at the confidence a diagnosis commits itself at."""
    for hypothesis in facts.report.hypotheses:
        if hypothesis.cause == asked.cause and hypothesis.confidence >= ABSTAIN:
            return failed(f"{asked.cause} {hypothesis.confidence:.2f}", "it is still there")
    if facts.report.verdict is Verdict.UNKNOWN:
        return unsure("the diagnosis does not know what is wrong")
    return passed(facts.report.verdict.value)


def symptom_gone(facts: Facts, asked: OfSymptom) -> Said:
    """Judge whether clients still see a symptom; a latency must be known to be called good."""
    if asked.symptom in facts.report.symptoms:
        return failed(asked.symptom.value, "it is still there")
    if facts.report.verdict is Verdict.UNKNOWN:
        return unsure("the diagnosis does not know how the cluster is")
    latency = {Symptom.TTFT: "ttft", Symptom.ITL: "itl"}.get(asked.symptom)
    if latency is not None:
        reading = _latency(Context(facts.view), latency)
        if not reading.known:
            return unsure(reading.why or f"{latency} is not known")
    if asked.symptom is Symptom.ERRORS:
        errors = Context(facts.view).error_share()
        if not errors.known:
            return unsure(errors.why or "failed requests are not known")
    return passed("not seen")


def slo_met(facts: Facts, asked: OfLatency) -> Said:
    """Set a latency beside its promise, in seconds."""
    ctx = Context(facts.view)
    promised = ctx.slo.ttft_s if asked.latency == "ttft" else ctx.slo.itl_s
    reading = _latency(ctx, asked.latency)
    if promised is None:
        return unsure(f"no {asked.latency} is promised; set slo in the inventory")
    if reading.value is None:
        return unsure(reading.why or f"{asked.latency} is not known")
    seen = f"{_bound(reading)}{reading.value:.3g} s of {promised:g} s"
    if reading.above(promised):
        return failed(seen, "above the promise")
    if reading.bound == "ge":
        return unsure(f"{seen}: only a bound")
    return passed(seen)


def errors_below(facts: Facts, asked: ErrorsBelow) -> Said:
    """Set the share of failed requests beside a limit."""
    reading = Context(facts.view).error_share()
    if reading.value is None:
        return unsure(reading.why or "failed requests are not known")
    seen = f"{reading.value:.2%} fail"
    return passed(seen) if reading.below(asked.ratio) else failed(seen, f"at most {asked.ratio:.2%} may")


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _leader(report: Report, fault: int) -> Hypothesis:
    return next(h for h in report.hypotheses if h.fault == fault)


def _latency(ctx: Context, which: str) -> Reading:
    return ctx.ttft() if which == "ttft" else ctx.itl()


def _bound(reading: Reading) -> str:
    return {"ge": "at least ", "le": "at most "}.get(reading.bound or "", "")
