"""Looks at a deployment through requests of its own: canaries, a ramp of load."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pdops.clock import WallClock
from pdops.model.cluster import Pair
from pdops.probe.canary import Canary, CanarySettings
from pdops.probe.choose import chosen_pairs
from pdops.probe.report import CanaryReport, Status
from pdops.reference import pages
from pdops.reference.running import Running
from pdops.sequence.run import Outcome
from pdops.sources.inventory import load_inventory

_SETTINGS = CanarySettings(timeout_s=90.0)
_RAMP_TIMEOUT_S = 60.0


def pairs(running: Running) -> Outcome:
    """Send one request through every pair, and judge text, KV and counters."""
    return _judged(_canary(running, routers=False))


def through_router(running: Running) -> Outcome:
    """Send one request through the router; of a router of another make only the answer can be told for sure."""
    report = _canary(running, routers=True, only=())
    return _judged(report)


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


def _judged(report: CanaryReport) -> Outcome:
    bad = [r for r in report.results if r.status is not Status.OK]
    if not bad:
        slowest = max((r.duration_s for r in report.results), default=0.0)
        return Outcome(True, f"{len(report.results)} right, slowest {slowest:.2f} s")
    worst = next((r for r in bad if r.status is Status.WRONG), bad[0])
    # Waiting cannot make a wrong text right, but an unreachable worker may still come up.
    fatal = worst.status is Status.WRONG and any(c.name == "text" and c.status is Status.WRONG for c in worst.checks)
    return Outcome(False, f"{worst.name} {worst.status}: {worst.because[:300]}", fatal=fatal)


def _complete(running: Running, number: int) -> str:
    """Return what was wrong with one request, or nothing."""
    body = {"model": running.spec.served_model, "prompt": f"ramp {number} " * 8, "max_tokens": 8, "temperature": 0}
    try:
        answer = pages.post(f"{running.router_url}/v1/completions", body, _RAMP_TIMEOUT_S)
        return "" if answer["usage"]["completion_tokens"] > 0 else "an empty completion"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return str(error)[:200]
