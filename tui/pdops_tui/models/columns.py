"""The columns of the pool tables: what each means, how wide it is, what gives way first, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pdops.diagnose.limits import DEEP, FULL, SHARE
from pdops.model.cluster import Role
from pdops_tui.models.ask import Ask
from pdops_tui.models.format import Cell, Form, cell, count, marked, per_second, percent, seconds, size

Make = Callable[[Ask, str], Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `width` in cells without its mark; a column of greater `drop` leaves a narrow screen first."""

    key: str
    title: str
    width: int
    drop: int
    meaning: str
    signals: tuple[str, ...]
    make: Make


def _gauge(signal: str, form: Form, unit: str, *, warn: float | None = None, bad: float | None = None) -> Make:
    def make(ask: Ask, scope: str) -> Cell:
        reading = ask.newest(scope, signal)
        return marked(cell(reading, form, unit, partial=">=", about=f"{signal}, newest"), reading, warn=warn, bad=bad)

    return make


def _rate(signal: str, form: Form, unit: str, *, warn: float | None = None) -> Make:
    def make(ask: Ask, scope: str) -> Cell:
        reading = ask.partial(scope, ask.read.rate(scope, signal))
        return marked(cell(reading, form, unit, about=f"{signal}, {_span(ask)}"), reading, warn=warn)

    return make


def _increase(signal: str, *, bad: float | None = None) -> Make:
    def make(ask: Ask, scope: str) -> Cell:
        reading = ask.partial(scope, ask.read.increase(scope, signal))
        return marked(cell(reading, count, partial=">=", about=f"{signal}, growth in {_span(ask)}"), reading, bad=bad)

    return make


def _quantile(signal: str, q: float, limit: Callable[[Ask], float | None] = lambda _: None) -> Make:
    def make(ask: Ask, scope: str) -> Cell:
        reading = ask.partial(scope, ask.read.quantile(scope, signal, q))
        made = cell(reading, seconds, "s", about=f"{signal} p{q * 100:g}, {_span(ask)}")
        promised = limit(ask)
        if promised is None or not reading.above(promised) or not (excuse := ask.excused(signal, promised)):
            return marked(made, reading, bad=promised)
        made = marked(made, reading, warn=promised)
        return replace(made, why=f"{made.why}, {excuse}: of a few, or of up to ten seconds before the window")

    return make


def _span(ask: Ask) -> str:
    return f"last {ask.view.now.span_s:g} s"


def _waiting(ask: Ask, scope: str) -> Cell:
    reading = ask.newest(scope, "queue_depth")
    made = cell(reading, count, "requests", partial=">=", about="queue_depth, newest")
    capacity = ask.newest(scope, "queue_depth_capacity")
    return marked(made, capacity, warn=DEEP) if capacity.known and reading.known else made


def _several(*signals: str) -> Make:
    """Return a maker of `a/b/c`; it sorts by the sum of what is known."""

    def make(ask: Ask, scope: str) -> Cell:
        readings = [ask.newest(scope, signal) for signal in signals]
        cells = [
            cell(r, count, partial="", about=f"{signal}, newest") for r, signal in zip(readings, signals, strict=True)
        ]
        known = [c.sort for c in cells if c.sort is not None]
        if not known:
            return cells[0]
        partial = "~" if any(r.missing for r in readings) else ""
        return Cell(partial + "/".join(c.text for c in cells), why=" | ".join(c.why for c in cells), sort=sum(known))

    return make


def _hits(ask: Ask, scope: str) -> Cell:
    reading = ask.partial(scope, ask.read.ratio(scope, "prefix_cache_hits", "prefix_cache_queries"))
    return cell(reading, percent, "ratio", about=f"prefix_cache_hits over prefix_cache_queries, {_span(ask)}")


def _local(ask: Ask, scope: str) -> Cell:
    reading = ask.partial(scope, ask.share(scope, "local_prefill_tokens", "external_kv_tokens"))
    about = f"local_prefill_tokens over local and external, {_span(ask)}"
    return marked(cell(reading, percent, "ratio", about=about), reading, bad=SHARE)


def _held(ask: Ask, scope: str) -> Cell:
    held = ask.newest(scope, "kv_exports_outstanding")
    oldest = ask.newest(scope, "kv_export_oldest_seconds")
    made = cell(held, count, "requests", partial=">=", about="kv_exports_outstanding, newest")
    if oldest.value is None or not held.known:
        return made
    return Cell(made.text, made.style, f"{made.why}; the oldest waits {seconds(oldest.value)}", made.mark, made.sort)


RUN = Column(
    key="run", title="RUN", width=4, drop=1, signals=("running_requests",),
    meaning="requests in the running batch, newest value", make=_gauge("running_requests", count, "requests"),
)  # fmt: skip
WAIT = Column(
    key="wait", title="WAIT", width=4, drop=1, signals=("queue_depth", "queue_depth_capacity"),
    meaning=f"requests waiting in the engine; ! when more than {DEEP:g} wait for capacity", make=_waiting,
)  # fmt: skip
KV = Column(
    key="kv", title="KV%", width=4, drop=2, signals=("kv_cache_usage",),
    meaning=f"KV pool in use; ! above {FULL:.0%}; a pool row shows its fullest worker",
    make=_gauge("kv_cache_usage", percent, "ratio", warn=FULL),
)  # fmt: skip

PREFILL = (
    RUN,
    WAIT,
    Column(
        key="reason", title="CAP/DEF", width=7, drop=6, signals=("queue_depth_capacity", "queue_depth_deferred"),
        meaning="waiting for capacity / deferred for another reason",
        make=_several("queue_depth_capacity", "queue_depth_deferred"),
    ),
    Column(
        key="queue", title="Q p95", width=6, drop=2, signals=("queue_seconds",),
        meaning="time in the engine's queue, 95th percentile", make=_quantile("queue_seconds", 0.95),
    ),
    Column(
        key="prompt", title="TOK/s", width=6, drop=3, signals=("prompt_tokens",),
        meaning="prompt tokens per second", make=_rate("prompt_tokens", per_second, "tokens/s"),
    ),
    Column(
        key="hit", title="HIT%", width=4, drop=4, signals=("prefix_cache_hits", "prefix_cache_queries"),
        meaning="looked-up prompt tokens found in the local prefix cache", make=_hits,
    ),
    KV,
    Column(
        key="expired", title="EXP", width=4, drop=5, signals=("kv_transfer_expired",),
        meaning="KV released because decode did not fetch it in time, in the window; X when any",
        make=_increase("kv_transfer_expired", bad=0.0),
    ),
    Column(
        key="held", title="HELD", width=4, drop=7, signals=("kv_exports_outstanding", "kv_export_oldest_seconds"),
        meaning="finished prefills whose KV is not fetched yet", make=_held,
    ),
)  # fmt: skip

DECODE = (
    RUN,
    WAIT,
    Column(
        key="fetch", title="FETCH", width=8, drop=4,
        signals=("decode_prealloc_queue_depth", "transfer_queue_depth", "kv_fetch_done_waiting"),
        meaning="KV fetches: to start / in progress / done and waiting for a slot",
        make=_several("decode_prealloc_queue_depth", "transfer_queue_depth", "kv_fetch_done_waiting"),
    ),
    Column(
        key="ttft", title="TTFT95", width=6, drop=2, signals=("ttft_seconds",),
        meaning="TTFT p95 of decode's own leg (its queue and the KV pull, not prefill); X above the TTFT SLO, ! where that of clients is kept",
        make=_quantile("ttft_seconds", 0.95, lambda ask: ask.slo.ttft_s),
    ),
    Column(
        key="itl", title="ITL95", width=6, drop=2, signals=("itl_seconds",),
        meaning="gap between tokens, 95th percentile; X above the ITL SLO, ! where that of clients is kept",
        make=_quantile("itl_seconds", 0.95, lambda ask: ask.slo.itl_s),
    ),
    KV,
    Column(
        key="kvin", title="KVIN/s", width=6, drop=4, signals=("kv_transfer_bytes",),
        meaning="KV bytes received per second", make=_rate("kv_transfer_bytes", size, "bytes/s"),
    ),
    Column(
        key="xfer", title="XFER99", width=6, drop=3, signals=("kv_transfer_seconds",),
        meaning="time of one KV transfer, 99th percentile", make=_quantile("kv_transfer_seconds", 0.99),
    ),
    Column(
        key="failed", title="XFAIL", width=5, drop=6, signals=("kv_transfer_failures",),
        meaning="failed KV transfers in the window; X when any", make=_increase("kv_transfer_failures", bad=0.0),
    ),
    Column(
        key="preempt", title="PRE/s", width=5, drop=5, signals=("preemptions",),
        meaning="preemptions per second; ! when any", make=_rate("preemptions", per_second, "requests/s", warn=0.0),
    ),
    Column(
        key="local", title="LOCAL%", width=6, drop=7, signals=("local_prefill_tokens", "external_kv_tokens"),
        meaning=f"prompt tokens decode computed itself; X above {SHARE:.0%}: prefill is bypassed", make=_local,
    ),
)  # fmt: skip

COLOCATED = (
    *PREFILL[:7],
    *(c for c in DECODE if c.key in ("ttft", "itl", "preempt")),
)

COLUMNS = {Role.PREFILL: PREFILL, Role.DECODE: DECODE, Role.COLOCATED: COLOCATED}
VITAL = {
    Role.PREFILL: ("running_requests", "queue_depth"),
    Role.DECODE: ("running_requests", "kv_cache_usage"),
    Role.COLOCATED: ("running_requests", "queue_depth"),
}
"""Without these a worker is not called ok."""

WORKER_MEANING = "id from the inventory; the last row is the pool: sums, merged percentiles, the fullest KV"
STATE_MEANING = "ok, or [X] [!] [?] when the diagnosis names it, or DOWN (does not answer), STALE (nothing heard), NEVER (never seen)"
