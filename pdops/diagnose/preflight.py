"""What a preflight check says, and how options are compared for it.

A preflight check looks at facts, probes and the cluster only. It always answers: something must be fixed or is doubtful
(FIRED), it agrees (CLEAR), it does not apply (CLEAR, told so), or a fact could not be read (UNKNOWN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isnan

from pdops.diagnose.context import Context
from pdops.diagnose.finding import STRONG, CheckMeta, Finding, Status, Weighed, clear
from pdops.diagnose.mismatch import scopes
from pdops.diagnose.options import Option, Value, differ, read, value
from pdops.model.cluster import Pair, Role, Worker
from pdops.model.report import Basis, Evidence, Layer, Missing, Observed, Scope, Verdict

NO_ALERT = "configuration is no metric; it is judged before traffic and whenever it is read again"
"""Why a preflight check has neither alert nor panel."""
WARN_CAP = 0.6
"""A fired finding that may not be surer than this is a warning: doubtful or wasteful, not certainly broken."""
FIX_FACTS = "let pdops read the process, the pod spec or the engine's pages, or give the value as a fact"
_NOT_APPLICABLE = "not applicable: "
_MOST = 16


class Outcome(StrEnum):
    """What came of a preflight check, as published."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    WARN = "warn"
    OK = "ok"
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True, slots=True)
class Seen:
    """A value read: `scope` is a worker id, `P>D`, or a Scope; `option` is the fact's name."""

    scope: str | Scope | None
    option: str
    value: Observed
    unit: str = ""


Result = tuple[CheckMeta, tuple[Finding, ...]]
"""One check with all it says."""


def outcome(finding: Finding) -> Outcome:
    """Return what one finding of a preflight check means."""
    if finding.status is Status.UNKNOWN:
        return Outcome.UNKNOWN
    if finding.status is Status.CLEAR:
        return Outcome.NOT_APPLICABLE if finding.because.startswith(_NOT_APPLICABLE) else Outcome.OK
    return Outcome.WARN if finding.cap <= WARN_CAP else Outcome.FAIL


def overall(findings: Iterable[Finding]) -> Outcome:
    """Return the gravest outcome: fail, unknown, warn, ok, and not-applicable only when nothing else was said."""
    said = {outcome(f) for f in findings}
    return next((o for o in Outcome if o in said), Outcome.UNKNOWN)


# what a check says


def must(
    cause: str,
    seen: Sequence[Seen],
    expected: str,
    *next_: str,
    layer: Layer | None = None,
    basis: Basis = "config",
    at: tuple[Scope, ...] | None = None,
) -> Finding:
    """Say that something has to be fixed: the values side by side, what is `expected`, and the exact fix."""
    for_ = tuple(Weighed(_evidence(s, expected, basis), STRONG, "config") for s in seen[:_MOST])
    where = tuple(dict.fromkeys(e.evidence.scope for e in for_ if e.evidence.scope is not None))
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=where if at is None else at,
        layer=layer,
        for_=for_,
        next=next_,
        verdict=Verdict.FAULT,
    )


def warn(
    cause: str,
    seen: Sequence[Seen],
    expected: str,
    *next_: str,
    layer: Layer | None = None,
    basis: Basis = "config",
    at: tuple[Scope, ...] | None = None,
) -> Finding:
    """Say that something is doubtful or wasteful, though not certainly broken."""
    return replace(must(cause, seen, expected, *next_, layer=layer, basis=basis, at=at), cap=WARN_CAP)


def agrees(cause: str, because: str) -> Finding:
    """Say that it is as it should be, with the value."""
    return clear(cause, because)


def not_applicable(cause: str, why: str) -> Finding:
    """Say that the question does not arise here."""
    return clear(cause, _NOT_APPLICABLE + why)


def unread(cause: str, workers: str | Iterable[str] | None, fact: str, why: str, fix: str = FIX_FACTS) -> Finding:
    """Say which fact of whom could not be read, why, and how to get it."""
    names = (None,) if workers is None else (workers,) if isinstance(workers, str) else tuple(workers)
    where = tuple(place(name) for name in names)
    return Finding(
        status=Status.UNKNOWN,
        cause=cause,
        scopes=tuple(s for s in where if s is not None),
        missing=tuple(Missing(signal=fact, why=why, fix=fix, scope=s) for s in where),
    )


def place(scope: str | Scope | None) -> Scope | None:
    """Return the published form of a worker id or `P>D`."""
    if scope is None or isinstance(scope, Scope):
        return scope
    return Scope("pair" if ">" in scope else "worker", scope)


def _evidence(seen: Seen, expected: str, basis: Basis) -> Evidence:
    return Evidence(
        signal=seen.option,
        scope=place(seen.scope),
        observed=seen.value,
        expected=expected,
        basis=basis,
        unit=seen.unit,
    )


# reading facts


def engines(ctx: Context) -> tuple[Worker, ...]:
    """Return prefill and decode workers, in inventory order; empty when one side is missing, so that no pair exists."""
    senders, receivers = ctx.cluster.of_role(Role.PREFILL), ctx.cluster.of_role(Role.DECODE)
    return (*senders, *receivers) if senders and receivers else ()


def fact(ctx: Context, worker: str, *names: str) -> str | None:
    """Return a fact of a worker by the first of its names that is there, stripped, or None."""
    facts = ctx.view.facts.get(worker, {})
    return next((facts[name].strip() for name in names if name in facts), None)


def amount(ctx: Context, worker: str, *names: str) -> float | None:
    """Return a fact as a number, or None when it is not there or no number; `unlimited` is infinite.

    NaN is no number: every bound would seem to hold for it.
    """
    text = fact(ctx, worker, *names)
    if text is None:
        return None
    if text.casefold() in ("unlimited", "infinity", "inf"):
        return float("inf")
    try:
        number = float(text)
    except ValueError:
        return None
    return None if isnan(number) else number


def flag(text: str | None) -> bool | None:
    """Return a fact as a truth value, or None when it is none."""
    known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    return None if text is None else known.get(text.strip().casefold())


def was_configured(ctx: Context, worker: str) -> bool:
    """Whether the options a worker was started with were read, so that one that is not there was not given.

    The connector is on no metrics page: it is known only from a command line, a pod spec or the server's own account.
    """
    return fact(ctx, worker, "kv_connector", "disaggregation_transfer_backend", "disaggregation_mode") is not None


# comparing


def same(
    ctx: Context,
    option: Option,
    fix: str,
    *,
    default: str | None = None,
    seen_only: bool = False,
    say: Callable[..., Finding] = must,
    values: Mapping[str, Value | None] | None = None,
) -> Iterator[Finding]:
    """Compare one option over all prefill and decode workers; yields one to three findings.

    `default` is what an engine does that was started without the option; None where that is not known. `seen_only` is for
    what is no option but something read off the engine, such as a version, so that its absence means unread.
    `values` replaces what is read from the facts. `say` is `must` or `warn`.
    """
    workers = engines(ctx)
    if not workers:
        yield not_applicable(option.cause, "the inventory has no prefill and decode pair")
        return
    if values is None:
        values = {w.id: read(option, ctx.view.facts.get(w.id, {}), w) for w in workers}
    known = {name: seen for name, seen in values.items() if seen is not None}
    bare = [name for name, seen in values.items() if seen is None]
    given = [name for name in bare if not seen_only and was_configured(ctx, name)]
    if default is not None:
        known |= {name: Value(f"{default} (default)", value(option, default).known) for name in given}
    elif given and len(given) == len(workers):
        yield agrees(option.cause, f"{option.name} is set on no worker, so all take their engine's own choice")
        return
    elif given and known:
        known |= {name: Value("not set", None) for name in given}
    known = {w.id: known[w.id] for w in workers if w.id in known}
    lost = [name for name in bare if name not in known]
    apart, unclear = _pairs(ctx, option, known)
    if apart:
        ends = {end for pair in apart for end in (pair.src, pair.dst)}
        side_by_side = [Seen(name, option.name, said.raw) for name, said in known.items() if name in ends]
        yield say(option.cause, _both_ends(side_by_side), "the same on prefill and decode", fix, at=scopes(ctx, apart))
    if unclear:
        ends = {end for pair in unclear for end in (pair.src, pair.dst)}
        said = ", ".join(f"{known[name].raw} on {name}" for name in known if name in ends)
        vague = [n for n in known if n in ends and known[n].known is None] or sorted(ends)
        yield unread(option.cause, vague, option.name, f"{said}: it is not known what that amounts to")
    if lost:
        yield unread(option.cause, lost, option.name, f"{option.name} was not read")
    if not (apart or unclear or lost):
        raw = sorted({said.raw for said in known.values()})
        yield agrees(option.cause, f"{option.name} is {' / '.join(raw)} on all {len(known)} workers")


def _pairs(ctx: Context, option: Option, known: Mapping[str, Value]) -> tuple[frozenset[Pair], frozenset[Pair]]:
    apart, unclear = set(), set()
    for pair in ctx.cluster.pairs():
        left, right = known.get(pair.src), known.get(pair.dst)
        if left is None or right is None:
            continue
        differs = differ(option, left, right)
        if differs is None:
            unclear.add(pair)
        elif differs:
            apart.add(pair)
    return frozenset(apart), frozenset(unclear)


def _both_ends(seen: Sequence[Seen]) -> list[Seen]:
    """Put one worker of each value first, so that a cut list still shows them side by side."""
    first = {s.value: s for s in reversed(seen)}
    return [*reversed(first.values()), *(s for s in seen if first[s.value] is not s)]
