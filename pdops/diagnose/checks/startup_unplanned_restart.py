"""A worker restarted once and nothing says that anybody meant it to."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.finding import MODERATE, CheckMeta, Finding, Status, Tier
from pdops.model.cluster import Role
from pdops.model.frame import Event, EventKind
from pdops.model.report import DoNot, Symptom, Verdict

META = CheckMeta(
    id="startup/unplanned-restart",
    title="A worker restarted, and no rollout or change says why",
    causes=("engine-crash", "client-input"),
    needs=("process_start_seconds",),
    tier=Tier.PRESENCE,
    no_alert="one restart is no page; it says where to read when something else is wrong, and PDRestartLoop counts more",
)

CAP = 0.45
"""Why a process ended stands in its log and exit status only, so this decides nothing."""
TOGETHER_S = 10.0
"""Workers of both sides that end within one scrape interval of each other ended over one thing, such as one request."""
_PLANNED = (EventKind.ROLLOUT, EventKind.CONFIG_CHANGE, EventKind.SCALE_OUT, EventKind.SCALE_IN)


def check(ctx: Context) -> Iterator[Finding]:
    """Name workers with one restart in ten minutes and no planned change, and those of both sides that ended together."""
    if ctx.events(_PLANNED):
        return
    ended = {role: _once(ctx, role) for role in (Role.PREFILL, Role.DECODE)}
    every = [e for events in ended.values() for e in events]
    if not every:
        return
    names = [e.worker for e in every if e.worker is not None]
    yield _finding(
        ctx,
        "engine-crash",
        every,
        (
            f"read the last log lines and the exit status of {', '.join(names[:3])} before the restart: a signal, a memory "
            "limit, or a health check that was not answered",
            "where a health check ended it, find what held the engine: dump the stacks of all ranks the next time it hangs",
        ),
    )
    together = [
        e for e in every for o in every if _side(ctx, e) is not _side(ctx, o) and abs(e.t_s - o.t_s) <= TOGETHER_S
    ]
    if together:
        yield _finding(
            ctx,
            "client-input",
            list(dict.fromkeys(together)),
            (
                "look in the logs of both sides for the same request at the moment they ended; do not send it again",
                "see whether a retry or a custom router used an id twice",
            ),
        )


def _once(ctx: Context, role: Role) -> list[Event]:
    found = []
    for worker in ctx.cluster.of_role(role):
        events = [e for e in ctx.events((EventKind.RESTART,), worker=worker.id) if e.worker == worker.id]
        if len(events) == 1:
            found += events
    return found


def _side(ctx: Context, event: Event) -> Role | None:
    return ctx.role_of(event.worker) if event.worker is not None else None


def _finding(ctx: Context, cause: str, events: list[Event], steps: tuple[str, ...]) -> Finding:
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=tuple(ctx.scope(e.worker) for e in events if e.worker is not None),
        for_=tuple(
            ctx.saw(
                "process_start_seconds",
                e.worker,
                f"restart {ctx.view.at_s - e.t_s:.0f} s ago",
                None,
                basis="log",
                ratio=MODERATE,
                # A line about the crash and the restart are one event.
                group="log",
            )
            for e in events[:4]
        ),
        verdict=Verdict.UNKNOWN,
        symptoms=(Symptom.STARTUP,),
        next=steps,
        do_not=(DoNot(action="raise-retries", why="a request that ended a process ends the next one as well"),),
        cap=CAP,
    )
