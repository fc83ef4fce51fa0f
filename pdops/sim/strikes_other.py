"""Faults of the workload, the store and what can be seen."""

from __future__ import annotations

import zlib

from pdops.model.frame import EventKind
from pdops.sim.faults import Blow, Strike, Undo
from pdops.sim.loop import Factors
from pdops.sim.workload import LONG

_TRANSFERS = (
    "vllm:nixl_xfer_time_seconds,vllm:nixl_post_time_seconds,vllm:nixl_bytes_transferred,vllm:nixl_num_descriptors"
)


def _scaled(blow: Blow, factors: Factors, factor: float) -> Undo:
    factors.set(blow, factor)
    return lambda: factors.clear(blow)


def _output_scale(blow: Blow) -> Undo:
    return _scaled(blow, blow.sim.arrivals.output, blow.number("factor", 5.0))


def _prompt_scale(blow: Blow) -> Undo:
    return _scaled(blow, blow.sim.arrivals.prompt, blow.number("factor", 2.0))


def _rate(blow: Blow) -> Undo:
    return _scaled(blow, blow.sim.arrivals.rate, blow.number("factor", 2.0))


def _prefix_mix(blow: Blow) -> Undo:
    return _scaled(blow, blow.sim.arrivals.reuse, blow.number("factor", 0.2))


def _prompt_mix(blow: Blow) -> Undo:
    arrivals = blow.sim.arrivals
    arrivals.long_share, arrivals.long_scale = blow.number("share", 0.1), blow.number("scale", LONG)

    def undo() -> None:
        arrivals.long_share = 0.0

    return undo


def _prefix_hotspot(blow: Blow) -> Undo:
    arrivals = blow.sim.arrivals
    arrivals.hot_share = blow.number("share", 0.6)

    def undo() -> None:
        arrivals.hot_share = 0.0

    return undo


def _abort_storm(blow: Blow) -> Undo:
    sim = blow.sim
    before = sim.patience_s, sim.impatient
    sim.patience_s, sim.impatient = max(0.001, blow.number("patience_s", 1.0)), blow.number("share", 0.5)

    def undo() -> None:
        sim.patience_s, sim.impatient = before

    return undo


def _store_down(blow: Blow) -> Undo | None:
    store, sim = blow.sim.world.store, blow.sim
    if store is None:
        return None
    store.up, store.meter.error = False, "connection refused"
    sim.happened(EventKind.DOWN, store.meter.worker)

    def undo() -> None:
        store.up, store.meter.error = True, None
        store.lose()
        sim.happened(EventKind.RESTART, store.meter.worker)

    return undo


def _store_slow(blow: Blow) -> Undo | None:
    store = blow.sim.world.store
    return None if store is None else _scaled(blow, store.speed, max(1e-6, blow.number("factor", 0.05)))


def _store_small(blow: Blow) -> Undo | None:
    store = blow.sim.world.store
    if store is None:
        return None
    undo = _scaled(blow, store.size, blow.number("factor", 0.1))
    store.shrink()
    return undo


def _store_hollow(blow: Blow) -> Undo | None:
    """The store goes on naming a `share` of its objects whose data is gone: a read of one ends after `wait_s`."""
    store = blow.sim.world.store
    if store is None:
        return None
    store.hollow(blow.number("share", 0.5), max(0.0, blow.number("wait_s", 2.0)))
    return lambda: store.hollow(0.0, 0.0)


def _telemetry_drop(blow: Blow) -> Undo:
    """Families (`families`, by comma) or a `share` of all, drawn by name, are not on the pages."""
    pages, share = blow.pages(), blow.number("share", 0.0)
    wanted = set(blow.text("families", "" if share else _TRANSFERS).split(","))
    for page in pages:
        drawn = {name for name in page.family_names() if zlib.crc32(name.encode()) % 1000 < share * 1000}
        page.hide((wanted & set(page.family_names())) | drawn)

    def undo() -> None:
        for page in pages:
            page.hide(())

    return undo


def _telemetry_freeze(blow: Blow) -> Undo:
    pages = blow.pages()
    blow.sim.refresh()
    for page in pages:
        page.freeze(True)

    def undo() -> None:
        for page in pages:
            page.freeze(False)

    return undo


def _counter_reset(blow: Blow) -> None:
    blow.sim.refresh()
    for page in blow.pages():
        page.reset(page.start_s)
    for worker in blow.workers():
        worker.seed()


def _clock_skew(blow: Blow) -> Undo:
    workers = blow.workers()

    def put(seconds: float) -> None:
        for worker in workers:
            worker.skew_s = seconds

    put(blow.number("skew_s", 300.0))
    return lambda: put(0.0)


def _scrape_gap(blow: Blow) -> Undo:
    gone, names = blow.sim.faults.gone, {page.worker for page in blow.pages()}
    for name in names:
        gone.setdefault(name, set()).add(blow)

    def undo() -> None:
        for name in names:
            gone[name].discard(blow)

    return undo


STRIKES: dict[str, Strike] = {
    "output-scale": _output_scale,
    "prompt-scale": _prompt_scale,
    "rate-scale": _rate,
    "rate-burst": _rate,
    "prefix-mix": _prefix_mix,
    "prompt-mix": _prompt_mix,
    "prefix-hotspot": _prefix_hotspot,
    "abort-storm": _abort_storm,
    "store-down": _store_down,
    "store-slow": _store_slow,
    "store-small": _store_small,
    "store-hollow": _store_hollow,
    "telemetry-drop": _telemetry_drop,
    "telemetry-freeze": _telemetry_freeze,
    "counter-reset": _counter_reset,
    "clock-skew": _clock_skew,
    "scrape-gap": _scrape_gap,
}
