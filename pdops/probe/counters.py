"""Counters of decode workers before and after a request, read from their pages as every other source reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdops.catalog.binding import bind
from pdops.clock import Clock
from pdops.model.cluster import Cluster, Worker
from pdops.model.frame import Scrape
from pdops.sources.fetch import Fetcher
from pdops.sources.pages import targets_of

PROMPT = "prompt_tokens"
EXTERNAL = "external_kv_tokens"
LOCAL = "local_prefill_tokens"
BYTES = "kv_transfer_bytes"
_SIGNALS = (PROMPT, EXTERNAL, LOCAL, BYTES)
_START = "process_start_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a worker's pages say at one moment: cumulative counters by signal; those that are not there are left out.

    `error` says why a page could not be read; `engines` are the engines the pages are of.
    """

    worker: str
    values: Mapping[str, float]
    facts: Mapping[str, str]
    start_s: float | None = None
    engines: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How far counters moved between two readings; None where that is not known, `why` by signal says why not."""

    worker: str
    prompt: float | None = None
    external: float | None = None
    local: float | None = None
    bytes: float | None = None
    why: Mapping[str, str]
    block_size: int | None = None


class CounterReader:
    """Reads the pages of the workers of a cluster, always whole.

    Raises:
        InventoryError: no worker has an address.
    """

    def __init__(self, cluster: Cluster, fetcher: Fetcher, clock: Clock) -> None:
        self._fetcher = fetcher
        targets = targets_of(cluster, clock=clock, interval_s=1.0, now=clock.now, full_every_s=0.0)
        self._targets = {w.id: [t for t in targets if t.worker.id == w.id] for w in cluster.workers}

    async def read(self, worker: Worker) -> Reading:
        """Return what the pages of a worker say now."""
        scrapes = [await target.scrape(self._fetcher) for target in self._targets.get(worker.id, ())]
        if not scrapes:
            return Reading(worker=worker.id, values={}, facts={}, error=f"{worker.id} has no page of metrics")
        return _reading(worker.id, scrapes)


def _reading(worker: str, scrapes: Iterable[Scrape]) -> Reading:
    values: dict[str, float] = {}
    facts: dict[str, str] = {}
    engines: list[str] = []
    error, start = "", None
    for scrape in scrapes:
        if scrape.layout is None or scrape.values is None:
            error = error or f"the page of {worker} cannot be read: {scrape.error}"
            continue
        binding = bind(scrape.engine, scrape.layout)
        engines.append(scrape.engine)
        facts.update(binding.facts)
        for column, value in zip(binding.columns, binding.apply(scrape.values, scrape.at_s), strict=True):
            if column.scope or column.part or column.rate or value != value:
                continue
            if column.signal in _SIGNALS:
                values.setdefault(column.signal, float(value))
            elif column.signal == _START:
                start = float(value) if start is None else start
    return Reading(worker=worker, values=values, facts=facts, start_s=start, engines=tuple(engines), error=error)


def moved(before: Reading, after: Reading) -> Moved:
    """Return how far the counters of one worker moved.

    A counter that was not there before and is there now, of the same process, began at zero: engines make some series
    at their first observation.
    """
    worker, why = after.worker, dict[str, str]()
    grown: dict[str, float | None] = {}
    restarted = _restarted(before, after)
    for signal in _SIGNALS:
        grown[signal] = None
        if restarted:
            why[signal] = f"{worker} restarted in between"
        elif signal not in after.values:
            engines = " and ".join(after.engines) or "no engine"
            why[signal] = after.error or f"the page of {worker} ({engines}) has no {signal}"
        elif before.error and signal not in before.values:
            why[signal] = before.error
        else:
            grown[signal] = after.values[signal] - before.values.get(signal, 0.0)
    return Moved(
        worker=worker,
        prompt=grown[PROMPT],
        external=grown[EXTERNAL],
        local=grown[LOCAL],
        bytes=grown[BYTES],
        why=why,
        block_size=_block_size(after.facts),
    )


def _restarted(before: Reading, after: Reading) -> bool:
    if before.start_s is not None and after.start_s is not None and before.start_s != after.start_s:
        return True
    return any(after.values.get(signal, value) < value for signal, value in before.values.items())


def _block_size(facts: Mapping[str, str]) -> int | None:
    text = facts.get("block_size", "")
    return int(text) if text.isdigit() and int(text) > 0 else None


def together(parts: Iterable[Moved]) -> Moved:
    """Return the movement of several workers as one; a counter unknown for one of them is unknown for all."""
    all_parts = tuple(parts)

    def total(values: Iterable[float | None]) -> float | None:
        known = list(values)
        return None if None in known or not known else sum(v for v in known if v is not None)

    sizes = {part.block_size for part in all_parts}
    return Moved(
        worker=", ".join(part.worker for part in all_parts),
        prompt=total(p.prompt for p in all_parts),
        external=total(p.external for p in all_parts),
        local=total(p.local for p in all_parts),
        bytes=total(p.bytes for p in all_parts),
        why={signal: text for part in reversed(all_parts) for signal, text in part.why.items()},
        block_size=sizes.pop() if len(sizes) == 1 else None,
    )
