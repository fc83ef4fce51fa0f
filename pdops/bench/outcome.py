"""What came of one episode: what was true, what pdops said, and what every baseline said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pdops.model.report import Scope

State = Literal["fault", "healthy", "sub-threshold", "not-healthy"]
"""Whether clients noticed a fault. An episode whose fault they did not notice, and a look-alike in which the promise was
really broken, are set aside: they prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One fault that was there: any cause and any scope of the lists is right."""

    kind: str
    causes: tuple[str, ...]
    layers_ok: tuple[str, ...]
    scopes: tuple[Scope, ...]
    verdicts: tuple[str, ...] = ("fault",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer at one instant: causes ranked, and where the first one is.

    `alarm` is False for healthy and for no verdict; `abstained` is an alarm that names no cause it would stand for.
    `faults` numbers the faults the causes compete for.
    """

    alarm: bool
    abstained: bool = False
    verdict: str = ""
    causes: tuple[str, ...] = ()
    confidences: tuple[float, ...] = ()
    faults: tuple[int, ...] = ()
    layer: str = ""
    scopes: tuple[tuple[Scope, ...], ...] = ()


SILENT = Said(alarm=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An episode that ended in an error: what it is called, what its simulation is seeded with, and the error."""

    name: str
    seed: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One episode, judged.

    `impact_s` is when clients noticed, `asked_s` the instant of the answers, both in seconds from the first frame.
    `right` maps a method to whether its first scopes are right for any expected fault. `delay_s` is from impact to the
    first answer with a right cause first, 0 where that came before, None when there was none; `healthy_s` the time
    without fault that was watched, `alarms` how often a fault was then announced, `false_causes` as what. `broken_s` is the
    time without fault in which the load alone broke the promise for clients, `excused` the alarms then; both are in
    neither `healthy_s` nor `alarms`. `places` is
    where the metrics that speak for each cause moved most, for methods that name causes only; `place_right` whether that
    is the right place.
    """

    name: str
    number: int
    split: str
    kinds: tuple[str, ...]
    severity: str
    workload: str
    topology: str
    unseen: bool
    missing_ratio: float
    state: State
    expected: tuple[Expected, ...]
    impact_s: float | None
    asked_s: float
    said: Mapping[str, Said]
    right: Mapping[str, bool] = field(default_factory=dict)
    delay_s: float | None = None
    healthy_s: float = 0.0
    alarms: int = 0
    broken_s: float = 0.0
    excused: int = 0
    false_causes: tuple[str, ...] = ()
    diagnose_s: float | None = None
    workers: int = 0
    play_s: float = 0.0
    features: tuple[float, ...] = ()
    places: Mapping[str, tuple[Scope, ...]] = field(default_factory=dict)
    place_right: Mapping[str, bool] = field(default_factory=dict)
