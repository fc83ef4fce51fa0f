"""The few questions that lead from symptom to layer, with their answers."""

from __future__ import annotations

from pdops.diagnose.conditioned import onset
from pdops.diagnose.context import Context
from pdops.diagnose.symptoms import Picture
from pdops.diagnose.weigh import Ranking
from pdops.model.cluster import Role
from pdops.model.report import Bound, Hop, TtftStage, Verdict
from pdops.model.series import Reading
from pdops.model.times import rfc3339
from pdops.model.view import Presence


def trail(
    ctx: Context, seen: Picture, stages: tuple[TtftStage, ...], ranking: Ranking, verdict: Verdict
) -> tuple[Hop, ...]:
    """Return the hops in order of thought: data, answers, symptoms, stage, place."""
    hops = [_data(ctx), _answers(ctx), _symptoms(ctx, seen), _stage(stages)]
    if verdict is Verdict.UNKNOWN and ranking.candidates:
        hops.append(
            Hop(
                question="is it one of the causes that are known?",
                answer=f"{ranking.leak:.0%} that it is none of those listed",
            )
        )
    if verdict is not Verdict.HEALTHY and ranking.candidates:
        top = ranking.candidates[0]
        place = ", ".join(str(s) for s in top.scopes) or "whole cluster"
        hops.append(
            Hop(
                question="which place and layer?",
                answer=f"{place}: {top.layer} ({top.cause})",
                signals=tuple(dict.fromkeys(w.evidence.signal for w in top.for_)),
            )
        )
    return tuple(hops)


def _data(ctx: Context) -> Hop:
    workers = ctx.cluster.workers
    away = [w.id for w in workers if ctx.health(w.id).presence not in (Presence.UP, Presence.GIVEN)]
    if not workers:
        answer = "no worker is known"
    elif away:
        answer = f"{len(workers) - len(away)} of {len(workers)} workers answer; not: {', '.join(away[:8])}"
        if len(away) > 8:
            answer += f" and {len(away) - 8} more"
    else:
        answer = f"{len(workers)} of {len(workers)} workers answer"
    return Hop(question="is the data complete?", answer=answer, signals=("scrape_age_seconds",))


def _answers(ctx: Context) -> Hop:
    late = [ctx.ask.increase(u, "kv_notifications_after_expiry") for u in ctx.units(Role.PREFILL)]
    known = [r.value for r in late if r.value is not None]
    answers = {p.ok for p in ctx.canaries()}
    parts = []
    if known:
        parts.append(f"{sum(known):.0f} reads after lease expiry")
    if answers:
        parts.append(f"canary {'failed' if False in answers else 'right' if answers == {True} else 'not judged'}")
    return Hop(
        question="are answers right?",
        answer="; ".join(parts) or "not known: no read-after-expiry counter and no canary",
        signals=("kv_notifications_after_expiry",),
    )


def _symptoms(ctx: Context, seen: Picture) -> Hop:
    answer = (
        f"TTFT p{ctx.percentile('ttft_seconds')} {_number(seen.ttft, 's')} ({_against(ctx.slo.ttft_s, seen.ttft_before)}), "
        f"ITL p{ctx.percentile('itl_seconds')} {_number(seen.itl, 's')} ({_against(ctx.slo.itl_s, seen.itl_before)}), "
        f"errors {_number(seen.errors, '', percent=True)}"
    )
    answer += "".join(
        _since(ctx, name, signal)
        for name, signal, high in (
            ("TTFT", "ttft_seconds", seen.ttft_high),
            ("ITL", "itl_seconds", seen.itl_high),
        )
        if high
    )
    return Hop(
        question="what do clients see?", answer=answer, signals=("ttft_seconds", "itl_seconds", "request_failure")
    )


def _since(ctx: Context, name: str, signal: str) -> str:
    """Return since when a latency that is high has been so, where history tells."""
    changed = onset(ctx, signal)
    if changed is None:
        return ""
    when = f"{changed.onset_s:.0f} s" if ctx.view.relative else rfc3339(changed.onset_s)
    return f"; {name} up since {when}"


def _against(promised: float | None, before: float | None) -> str:
    if promised is not None:
        return f"SLO {promised:g} s"
    return f"before {before:.3g} s" if before is not None else "no SLO, no history"


def _number(reading: Reading, unit: str, *, percent: bool = False) -> str:
    if reading.value is None:
        return "?"
    sign = {"ge": "≥", "le": "≤", None: ""}[reading.bound]
    return f"{sign}{reading.value:.1%}" if percent else f"{sign}{reading.value:.3g} {unit}"


def _stage(stages: tuple[TtftStage, ...]) -> Hop:
    known = [
        (s.seconds.value if isinstance(s.seconds, Bound) else s.seconds, s) for s in stages if s.seconds is not None
    ]
    unknown = [s.stage for s in stages if s.seconds is None]
    if not known:
        return Hop(question="where is TTFT spent?", answer="not known: " + (stages[0].why or "no data"))
    seconds, worst = max(known, key=lambda item: item[0] or 0.0)
    share = f" {worst.share:.0%}" if worst.share is not None else ""
    sign = "≥" if isinstance(worst.seconds, Bound) else ""
    answer = f"{worst.stage}{share} ({sign}{seconds:.3g} s)"
    if unknown:
        answer += f"; not known: {', '.join(unknown)}"
    return Hop(
        question="where is TTFT spent?",
        answer=answer,
        signals=("queue_seconds", "prefill_seconds", "kv_transfer_seconds"),
    )
