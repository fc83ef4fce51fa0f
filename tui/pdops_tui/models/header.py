"""The top of the screen: which cluster, how fresh, the verdict, the SLOs and the flow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdops.diagnose.symptoms import ERROR_SHARE
from pdops.model.cluster import CLIENT, Role, pool_key
from pdops.model.report import Report, Verdict
from pdops.model.series import Reading, unknown
from pdops.model.view import Presence
from pdops.sources.redact import redact_urls
from pdops_tui.models.ask import DATED_S, Ask
from pdops_tui.models.format import (
    VERDICT_MARK,
    VERDICT_STYLE,
    Cell,
    Form,
    age,
    cell,
    moment,
    per_second,
    percent,
    seconds,
    size,
)
from pdops_tui.models.promise import Promise, promises
from pdops_tui.models.text import clean
from pdops_tui.snapshot import Position, Snapshot, Taping

_SHAPE = {Role.PREFILL: "P", Role.DECODE: "D", Role.COLOCATED: "C", Role.ROUTER: "R", Role.KVSTORE: "S"}


@dataclass(frozen=True, slots=True)
class Flow:
    """One number of the flow, with its unit as text."""

    label: str
    value: Cell
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """All that the header says."""

    cluster: str
    engines: str
    shape: str
    up: Cell
    age: Cell
    source: str
    time: str
    verdict: Cell
    cause: str
    trouble: str
    promises: tuple[Promise, ...]
    flows: tuple[Flow, ...]
    position: Position | None
    relative: bool
    taping: Cell
    which: str
    own_slo: bool


def header(snapshot: Snapshot, ask: Ask) -> Header:
    """Return the header of a snapshot."""
    cluster = snapshot.view.cluster
    name = cluster.name if cluster.model is None else f"{cluster.name}/{cluster.model}"
    verdict, cause = _verdict(snapshot.report, snapshot.view.at_s)
    if snapshot.asking:
        number = len(cluster.workers)
        cause = f"asking {number} worker{'s' * (number != 1)}, nothing is known yet"
    return Header(
        cluster=clean(name, 60),
        engines=_engines(ask),
        shape="+".join(f"{n}{sign}" for role, sign in _SHAPE.items() if (n := len(cluster.of_role(role)))) or "empty",
        up=_up(ask),
        age=_age(ask),
        source=clean(snapshot.source, 80),
        time=moment(snapshot.view.at_s, relative=snapshot.view.relative),
        verdict=verdict,
        cause=cause,
        trouble=clean(snapshot.trouble or _silent(snapshot, ask) or _untaped(snapshot.taping), 300),
        promises=promises(ask),
        flows=_flows(ask),
        position=snapshot.position,
        relative=snapshot.view.relative,
        taping=_taping(snapshot.taping),
        which=f"{snapshot.number + 1}/{len(snapshot.sources)}" if len(snapshot.sources) > 1 else "",
        own_slo=snapshot.slo is not None,
    )


def _untaped(taping: Taping | None) -> str:
    return taping.trouble or "" if taping is not None else ""


def _silent(snapshot: Snapshot, ask: Ask) -> str:
    """Say why nobody answers, when nobody does although there was time to."""
    workers = ask.view.cluster.workers
    if snapshot.asking or not workers or len(ask.away) < len(workers):
        return ""
    first = next((w for w in workers if ask.health(w.id).why), workers[0])
    where = redact_urls(f" at {first.url}") if first.url else ""
    why = ask.health(first.id).why or "no reason is known"
    return f"no target answers: check addresses and ports; {first.id}{where} {why}"


def _taping(taping: Taping | None) -> Cell:
    if taping is None or not (taping.running or taping.trouble):
        return Cell("")
    if taping.trouble:
        return Cell("REC FAILED", "bad", clean(taping.trouble), "X")
    if taping.from_s is None or taping.to_s is None:
        return Cell("REC", "bad", clean(taping.path))
    lost = f" LOST {taping.lost}" if taping.lost else ""
    return Cell(f"REC {seconds(round(taping.to_s - taping.from_s))}{lost}", "bad", clean(taping.path))


def _engines(ask: Ask) -> str:
    found: dict[str, set[str]] = {}
    for worker in ask.view.cluster.of_role(Role.PREFILL, Role.DECODE, Role.COLOCATED):
        if worker.engine is not None:
            found.setdefault(worker.engine, set()).add(worker.version or "")
    parts = []
    for engine, versions in sorted(found.items()):
        known = sorted(v for v in versions if v)
        parts.append(" ".join([engine, ",".join(known[:3]) + (",…" if len(known) > 3 else "")]).strip())
    return clean(" ".join(parts), 60)


def _up(ask: Ask) -> Cell:
    workers = ask.view.cluster.workers
    given = sum(ask.health(w.id).presence is Presence.GIVEN for w in workers)
    there = len(workers) - len(ask.away)
    if workers and given == len(workers):
        return Cell(f"given {given}", "", "nobody scraped; a file or another system supplied the data")
    text = f"up {there}/{len(workers)}"
    if not ask.away:
        return Cell(text, "" if workers else "unknown", "every worker answers" if workers else "no worker is known")
    names = ", ".join(clean(w) for w in ask.away[:8])
    if ask.awaited(ask.away):
        return Cell(text, "unknown", f"never answered so far: {names}")
    return Cell(text, "bad", f"away: {names}", "X")


def _age(ask: Ask) -> Cell:
    ages = [h.age_s for w in ask.view.cluster.workers if (h := ask.health(w.id)).presence is Presence.UP]
    known = [a for a in ages if a is not None]
    if known:
        return Cell(f"age {age(max(known))}", why="oldest data of a worker that is up", sort=max(known))
    if ask.away:
        return Cell("age ?", "bad", "no worker is up", "X")
    return Cell("age ?", "dim", "data was given, not scraped")


def _verdict(report: Report | None, now_s: float) -> tuple[Cell, str]:
    if report is None:
        return Cell("[?] UNKNOWN", "unknown", "not judged yet"), "not judged yet"
    made = Cell(f"{VERDICT_MARK[report.verdict]} {report.verdict.upper()}", VERDICT_STYLE[report.verdict])
    late = now_s - report.at_s
    # Old verdicts are dated: a person must not take a judgement of before the fault for one of now.
    dated = f" (judged {age(late)} ago)" if late > DATED_S else ""
    top = report.top
    if top is None:
        said = [f"{m.signal}{f' ({m.scope})' if m.scope else ''}: {m.why}" for m in report.missing]
        seen = f"no fault found ({', '.join(report.symptoms)})" if report.symptoms else "no fault found"
        text = seen if report.verdict is Verdict.HEALTHY else said[0] if said else "no hypothesis fits what is seen"
        return made, clean(text + dated, 400)
    where = ", ".join(str(s) for s in top.scopes[:4]) or "whole cluster"
    more = f" and {len(top.scopes) - 4} more" if len(top.scopes) > 4 else ""
    lead = "perhaps " if report.verdict is Verdict.UNKNOWN else ""
    return made, clean(f"{top.confidence:.2f} {lead}{top.cause} in {top.layer} at {where}{more}{dated}", 400)


def _flows(ask: Ask) -> tuple[Flow, ...]:
    good = _rate(ask, "request_success", (Role.DECODE, Role.COLOCATED), client=True)
    bad = _rate(ask, "request_failure", (Role.DECODE, Role.COLOCATED), client=True)
    if good.value is not None and bad.value is not None:
        good = replace(good, value=good.value + bad.value)
    errors = ask.context.error_share()
    share = cell(errors, percent, "ratio", about="failed over finished requests")
    if errors.above(ERROR_SHARE):
        share = replace(share, style="bad", mark="X")
    kv = _rate(ask, "kv_transfer_bytes", (Role.DECODE,))
    if not kv.known:
        kv = _rate(ask, "kv_transfer_bytes", (Role.PREFILL,))
    return (
        Flow("", _shown(good, per_second, "finished requests/s"), "req/s"),
        Flow("err", share, "%" if share.sort is not None else ""),
        Flow(
            "prompt",
            _shown(_rate(ask, "prompt_tokens", (Role.PREFILL, Role.COLOCATED)), per_second, "tokens/s"),
            "tok/s",
        ),
        Flow(
            "gen",
            _shown(_rate(ask, "generated_tokens", (Role.DECODE, Role.COLOCATED)), per_second, "tokens/s"),
            "tok/s",
        ),
        Flow("KV", _shown(kv, size, "bytes/s"), "/s"),
    )


def _shown(reading: Reading, form: Form, unit: str) -> Cell:
    return cell(reading, form, unit)


def _rate(ask: Ask, signal: str, roles: tuple[Role, ...], *, client: bool = False) -> Reading:
    """Return the sum over pools, or what the client side counts when it does."""
    if client:
        seen = ask.read.rate(CLIENT, signal)
        if seen.known:
            return seen
    found = [
        ask.partial(pool_key(p), ask.read.rate(pool_key(p), signal))
        for role in roles
        for p in ask.view.cluster.pools(role)
    ]
    known = [r for r in found if r.value is not None]
    if not known:
        return found[0] if found else unknown(f"no {' or '.join(roles)} pool gives {signal}")
    missing = tuple(dict.fromkeys(m for r in found for m in r.missing))
    return Reading(sum(r.value or 0.0 for r in known), n=sum(r.n for r in known), missing=missing)
