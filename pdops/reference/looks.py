"""Looks at a deployment through requests of its own: canaries, a ramp of load."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pdops.clock import WallClock
from pdops.model.cluster import Pair
from pdops.probe.canary import Canary, CanarySettings
from pdops.probe.choose import chosen_pairs
from pdops.probe.report import CanaryReport, Check, Status
from pdops.reference import pages
from pdops.reference.running import Running
from pdops.sequence.run import Outcome
from pdops.sources.inventory import load_inventory

_SETTINGS = CanarySettings(timeout_s=90.0)
_RAMP_TIMEOUT_S = 60.0


def pairs(running: Running) -> Outcome:
    """Send one request through every pair, and judge text, KV and counters."""
    return judged(_canary(running, routers=False))


def through_router(running: Running) -> Outcome:
    """Send one request through the router; of a router of another make only the answer can be told for sure."""
    report = _canary(running, routers=True, only=())
    return judged(report)


def ramp(running: Running, steps: Sequence[int]) -> Outcome:
    """Send more and more requests at once through the router; every one has to be answered."""
    done = 0
    for at_once in steps:
        with ThreadPoolExecutor(at_once) as pool:
            for answer in pool.map(lambda n: _complete(running, n), range(at_once)):
                if answer:
                    return Outcome(False, f"with {at_once} at once: {answer}")
                done += 1
    return Outcome(True, f"{done} requests answered, {steps[-1]} at once")


def _canary(running: Running, *, routers: bool, only: tuple[Pair, ...] | None = None) -> CanaryReport:
    cluster = load_inventory(running.inventory).cluster
    chosen = chosen_pairs(cluster, ()) if only is None else only
    return asyncio.run(Canary(cluster, WallClock(), _SETTINGS).run(chosen, routers=routers))


def judged(report: CanaryReport) -> Outcome:
    """Return what a stage makes of canaries: right text and moved KV; a wrong text ends the wait."""
    if not report.results:
        return Outcome(False, "no canary was sent")
    bad = [r for r in report.results if not r.checks or any(_open(c) for c in r.checks)]
    if not bad:
        slowest = max(r.duration_s for r in report.results)
        unjudged = any(_amount_only(c) for r in report.results for c in r.checks)
        note = "; how many bytes had to move is not known" if unjudged else ""
        return Outcome(True, f"{len(report.results)} right, slowest {slowest:.2f} s{note}")
    worst = next((r for r in bad if r.status is Status.WRONG), bad[0])
    # Waiting cannot make a wrong text right, but an unreachable worker may still come up.
    fatal = worst.status is Status.WRONG and any(c.name == "text" and c.status is Status.WRONG for c in worst.checks)
    return Outcome(False, f"{worst.name} {worst.status}: {worst.because[:300]}", fatal=fatal)


def _open(check: Check) -> bool:
    return check.status is not Status.OK and not _amount_only(check)


def _amount_only(check: Check) -> bool:
    """Whether all that is open is how many bytes had to move, which a model of the user's own does not tell.

    Tokens and text are judged all the same, and a deployment must not wait for what nobody will tell it.
    """
    moved = isinstance(check.observed, float) and check.observed > 0
    return check.name == "bytes" and check.status is Status.UNKNOWN and check.expected is None and moved


def _complete(running: Running, number: int) -> str:
    """Return what was wrong with one request, or nothing."""
    body = {"model": running.spec.served_model, "prompt": f"ramp {number} " * 8, "max_tokens": 8, "temperature": 0}
    try:
        answer = pages.post(f"{running.router_url}/v1/completions", body, _RAMP_TIMEOUT_S)
        return "" if answer["usage"]["completion_tokens"] > 0 else "an empty completion"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return str(error)[:200]
