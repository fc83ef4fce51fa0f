"""What a deployment looks like now, as published JSON and as text."""

from __future__ import annotations

from typing import Any

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.reference import logs, store_check
from pdops.reference.running import Running, roles
from pdops.reference.spec import Profile, RouterSpec
from pdops.reference.startup import StartSpans
from pdops.reference.state import ProcessState

SCHEMA = "pdops/status/v1"
STATES = ("serving", "not-ready", "frozen", "dead", "never-started")
DEGRADED = "degraded"
"""The phase of a deployment that is up and of which a part does not serve."""
_CLOCK = WallClock()


def status(running: Running, spans: StartSpans | None = None) -> dict[str, Any]:
    """Return the published form: phase, stages with why they wait, and every process; an object goes through a real store.

    `state` of a process is `serving`, `not-ready`, `frozen`, `dead` or `never-started`; `why` says more when it is not
    serving. `startup` are the spans of a process's last start, null without `spans` and for what exports none. Times are
    seconds.
    """
    now = _CLOCK.now()
    state = running.state
    found = []
    for worker, role in roles(running.spec).items():
        entry = state.processes.get(worker)
        what, why = _look(running, worker)
        found.append(
            {
                "id": worker,
                "role": role.value,
                "state": what,
                "why": why,
                "url": running.url(worker),
                "pid": entry.pid if entry is not None else None,
                "up_s": round(now - entry.started_at_s, 1) if entry is not None and what != "dead" else None,
                "starts": entry.starts if entry is not None else 0,
                "log": str(running.log(worker)),
                "startup": _startup(spans, worker, entry),
            }
        )
    watching = [_service(running, s.id) for s in running.spec.services]
    phase: str = state.phase
    if phase == "up" and any(part["state"] != "serving" for part in (*found, *watching)):
        phase = DEGRADED
    return {
        "schema": SCHEMA,
        "name": running.spec.name,
        "profile": running.spec.profile.value,
        "phase": phase,
        "network": state.network,
        "state_dir": str(running.state_dir),
        "inventory": str(running.inventory) if running.inventory.exists() else None,
        "router": running.spec.router.url if running.spec.router is not None else None,
        "model": running.spec.served_model,
        "stages": [
            {"id": s.id, "state": s.state, "for_s": round(max(0.0, now - s.since_s), 1), "detail": s.detail}
            for s in state.stages
        ],
        "workers": found,
        "services": watching,
    }


def _service(running: Running, name: str) -> dict[str, Any]:
    what, why = _look(running, name)
    entry = running.state.processes.get(name)
    return {
        "id": name,
        "state": what,
        "why": why,
        "url": running.url(name),
        "pid": entry.pid if entry is not None else None,
        "log": str(running.log(name)),
    }


def _startup(spans: StartSpans | None, worker: str, entry: ProcessState | None) -> list[dict[str, Any]] | None:
    if spans is None or entry is None:
        return None
    # Earlier spans are of an earlier start.
    found = spans.of(worker, entry.started_at_s)
    return [{"span": s.name, "begin_s": s.begin_s, "seconds": round(s.seconds, 3)} for s in found] or None


def _look(running: Running, worker: str) -> tuple[str, str | None]:
    ref = running.state.ref(worker)
    if ref is None:
        return "never-started", None
    if not processes.alive(ref):
        return "dead", logs.why(running.log(worker)) or None
    if processes.stopped(ref):
        return "frozen", "its processes are stopped (SIGSTOP)"
    store = running.spec.store
    if store is not None and worker == store.id and running.spec.profile is not Profile.SIM:
        # A master that shows its page of metrics may still hand out no memory: only an object proves it.
        seen = store_check.probe(running)
        why = None if seen.ok else seen.detail
    else:
        why = running.serves(worker)
    return ("serving", None) if why is None else ("not-ready", why)


def hints(running: Running) -> list[str]:
    """Return what a person would type next."""
    where = running.inventory
    router = running.spec.router
    lines = [f"pdops top -c {where}", f"pdops diagnose -c {where}"]
    if isinstance(router, RouterSpec) and running.spec.profile is not Profile.SIM:
        body = f'{{"model": "{running.spec.served_model}", "prompt": "hello", "max_tokens": 8}}'
        lines.append(f"curl -s {router.url}/v1/completions -H 'Content-Type: application/json' -d '{body}'")
    return lines
