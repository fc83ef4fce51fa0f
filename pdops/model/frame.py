"""What one look at the world returns: raw series by worker, and what happened since the look before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

NOT_ASKED = "not asked yet"
"""A scrape error that begins so says nothing about the target: the reader did not get round to it."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The ordered series names of one page, as scraped: `family{label="value",…}`.

    Two scrapes with the same series share one Layout object, so identity is enough to reuse what was derived from it.
    """

    series: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """One page of one worker at one moment.

    `values` has one float per series of `layout`; None with an `error` when the page could not be read.
    `full` is False for a page that was asked for a part of its families only. `at_s` is Unix seconds. `malformed` counts
    lines that could not be read, the half line a page broke off in among them. `stamp_s` is the oldest time the page
    itself gives a sample, in Unix seconds; None when it gives none. `unread` counts samples that no signal of the catalog
    reads; None when the source does not tell.
    """

    worker: str
    engine: str
    at_s: float
    layout: Layout | None = None
    values: Values | None = None
    full: bool = True
    duration_s: float = 0.0
    size_bytes: int = 0
    error: str | None = None
    endpoint: str = ""
    malformed: int = 0
    stamp_s: float | None = None
    unread: int | None = None


class EventKind(StrEnum):
    """What can happen to a worker or pool."""

    RESTART = "restart"
    DOWN = "down"
    ROLLOUT = "rollout"
    SCALE_OUT = "scale-out"
    SCALE_IN = "scale-in"
    CONFIG_CHANGE = "config-change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened at `t_s` (Unix seconds) to a worker or a pool."""

    t_s: float
    kind: EventKind
    worker: str | None = None
    pool: str | None = None
    detail: str | None = None
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line a worker logged at `t_s` (Unix seconds)."""

    t_s: float
    worker: str
    line: str


class ProbeKind(StrEnum):
    """What can be probed."""

    CANARY = "canary"
    BANDWIDTH = "bandwidth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The outcome of one bounded request pdops made; `ok` None means it could not be judged."""

    t_s: float
    kind: ProbeKind
    ok: bool | None
    pair: str | None = None
    worker: str | None = None
    detail: str | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Everything seen at one tick. `facts` are configuration as read, by worker, named as the engine's own options."""

    at_s: float
    scrapes: tuple[Scrape, ...] = ()
    events: tuple[Event, ...] = ()
    logs: tuple[LogLine, ...] = ()
    probes: tuple[Probe, ...] = ()
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
