"""Workers go down because a peer did."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import RECENT_S, Context
from pdops.diagnose.finding import MODERATE, STRONG, CheckMeta, Finding, Status, Tier, clear
from pdops.model.cluster import Role
from pdops.model.frame import Event, EventKind
from pdops.model.report import DoNot, Symptom
from pdops.model.view import Presence
from pdops.stats.robust import median

META = CheckMeta(
    id="startup/restart-cascade",
    title="A restart on one side takes workers of the other side down",
    causes=("peer-restart-stale-state",),
    needs=("process_start_seconds",),
    tier=Tier.PRESENCE,
    explains=("engine-crash", "cold-start", "handshake-address", "transport-error"),
    no_alert="it is the order of restarts on two sides; PDRestartLoop and the worker-down alerts count each side",
)

MANY = 2
"""Workers of the other side that go down after one peer did; one may be chance, several within minutes hardly are."""

LOOP = 2
LOOP_CAP = 0.6
"""Most when every worker that fell restarts again and again, twice in ten minutes or more: one fault may end them all."""


def check(ctx: Context) -> Iterator[Finding]:
    """Look for restarts of one role that follow the first restart of the other within ten minutes (from public incidents)."""
    if ctx.nothing_answers or any(ctx.events((EventKind.ROLLOUT, EventKind.CONFIG_CHANGE))):
        return
    fell = {role: _fell(ctx, role) for role in (Role.PREFILL, Role.DECODE)}
    for first, second in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
        if not fell[first] or not fell[second]:
            continue
        origin = min(fell[first], key=lambda e: (e.t_s, e.worker or ""))
        after = [e for e in fell[second] if origin.t_s < e.t_s <= origin.t_s + RECENT_S]
        before = [e for e in fell[second] if e.t_s <= origin.t_s]
        if after and not before:
            yield _cascade(ctx, origin, after, _loops(ctx))
            return
    engines = ctx.cluster.of_role(Role.PREFILL, Role.DECODE)
    if engines and not any(fell.values()) and all(ctx.health(w.id).presence is Presence.UP for w in engines):
        yield clear("peer-restart-stale-state", "no worker restarted or went down")


def _fell(ctx: Context, role: Role) -> list[Event]:
    """Return the first restart or fall of each worker of a role in the last ten minutes."""
    found: dict[str, Event] = {}
    for worker in ctx.cluster.of_role(role):
        for event in ctx.events((EventKind.RESTART, EventKind.DOWN), worker=worker.id):
            if event.worker == worker.id:
                found[worker.id] = event
    return list(found.values())


def _loops(ctx: Context) -> bool:
    """Whether every worker that restarted did so again and again: then they may all die of one thing."""
    engines = ctx.cluster.of_role(Role.PREFILL, Role.DECODE)
    counts = [len([e for e in ctx.events((EventKind.RESTART,), worker=w.id) if e.worker == w.id]) for w in engines]
    return any(counts) and min(n for n in counts if n) >= LOOP


def _cascade(ctx: Context, origin: Event, after: list[Event], loops: bool) -> Finding:
    later = median([e.t_s - origin.t_s for e in after]) or 0.0
    names = [e.worker for e in after if e.worker is not None]
    for_ = [
        ctx.saw(
            "process_start_seconds",
            e.worker,
            f"{e.kind} {e.t_s - origin.t_s:.0f} s after {origin.worker}",
            None,
            basis="log",
            ratio=STRONG if len(after) >= MANY else MODERATE,
            group="follows",
        )
        for e in after[:4]
    ]
    return Finding(
        status=Status.FIRED,
        cause="peer-restart-stale-state",
        scopes=tuple(ctx.scope(n) for n in (origin.worker or "", *names) if n),
        for_=tuple(for_),
        symptoms=(Symptom.STARTUP,),
        next=(
            f"read the last frames of {', '.join(names[:3])}: did they die over their peer {origin.worker} ({later:.0f} s before)?",
            f"until the engines survive it, drain the peers of a worker before it restarts; now send one canary through each pair of {origin.worker}",
        ),
        runbooks=("restart-pair",),
        do_not=(
            DoNot(action="scale-out-decode", why="capacity did not fall short; workers died over a peer"),
            DoNot(action="raise-retries", why="each retry meets the same stale peer"),
        ),
        cap=LOOP_CAP if loops else 0.97,
    )
