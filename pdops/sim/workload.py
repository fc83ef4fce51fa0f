"""Requests as clients send them: when, how long, with whose prefix."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pdops.sim.loop import Factors
from pdops.sim.records import RequestRecord
from pdops.sim.spec import Workload, Zone

_DRAWN = 2048
_SLICE_S = 1.0
"""The rate is looked at again after this long at the latest."""
LONG = 8.0
"""How many times the usual length a long prompt has."""


class Arrivals:
    """Draws requests. Faults change its factors; the draws stay those of the seed.

    Args:
        workload: what clients send.
        zones: where clients are, equally spread.
        rng: the source of randomness.
    """

    def __init__(self, workload: Workload, zones: tuple[Zone, ...], rng: np.random.Generator) -> None:
        self._workload, self._zones = workload, [z.name for z in zones]
        self.rate, self.prompt, self.output, self.reuse = Factors(), Factors(), Factors(), Factors()
        self.output.set("think", workload.think_factor)
        self.long_share = self.hot_share = 0.0
        self.long_scale = LONG
        self._gap = _gaps(workload, rng.spawn(1)[0])
        self._prompt = _lognormal(workload.prompt_cv2, rng.spawn(1)[0])
        self._output = _lognormal(workload.output_cv2, rng.spawn(1)[0])
        self._group = _zipf(workload.prefix_groups, workload.zipf_skew, rng.spawn(1)[0])
        self._uniform = _uniform(rng.spawn(1)[0])
        self._count = 0
        self._left: float | None = None
        self._fresh = workload.prefix_groups

    def rate_per_s(self, t_s: float) -> float:
        """Return the requests per second wanted at a virtual time."""
        w = self._workload
        rate = w.rate_per_s * self.rate.value
        if w.diurnal_amplitude:
            rate *= 1.0 + w.diurnal_amplitude * math.sin(2 * math.pi * t_s / w.diurnal_period_s)
        for burst in w.bursts:
            if burst.at_s <= t_s < burst.until_s:
                rate *= burst.factor
        return rate

    def next_s(self, now_s: float) -> tuple[float, bool]:
        """Return when the next request comes, or when to ask again where that is far: the rate may be another then."""
        if self._left is None:
            self._left = next(self._gap)
        rate = self.rate_per_s(now_s)
        if rate > 0 and self._left / rate <= _SLICE_S:
            due_s, self._left = now_s + self._left / rate, None
            return due_s, True
        self._left -= rate * _SLICE_S
        return now_s + _SLICE_S, False

    def request(self, now_s: float) -> RequestRecord:
        """Return the request that comes now."""
        w = self._workload
        scale = self.prompt.value
        if next(self._uniform) < self.long_share:
            scale *= self.long_scale
        prompt = min(w.prompt_max_tokens, max(1, round(w.prompt_mean_tokens * next(self._prompt) * scale)))
        output = round(w.output_mean_tokens * next(self._output) * self.output.value)
        group, spread = next(self._group), next(self._uniform)
        if next(self._uniform) < self.hot_share:
            group = 0
        elif spread >= self.reuse.value:
            # What is asked once only shares nothing with anybody.
            group, self._fresh = self._fresh, self._fresh + 1
        zone = self._zones[int(next(self._uniform) * len(self._zones))]
        self._count += 1
        return RequestRecord(
            id=self._count,
            arrival_s=now_s,
            zone=zone,
            group=group,
            prompt_tokens=prompt,
            shared_tokens=int(prompt * w.prefix_share),
            output_tokens=min(w.output_max_tokens, max(1, output)),
        )


def _gaps(workload: Workload, rng: np.random.Generator) -> Iterator[float]:
    """Yield gaps of mean 1."""
    while True:
        if workload.law == "gamma":
            yield from rng.gamma(1.0 / workload.cv2, workload.cv2, _DRAWN).tolist()
        else:
            yield from rng.exponential(1.0, _DRAWN).tolist()


def _lognormal(cv2: float, rng: np.random.Generator) -> Iterator[float]:
    """Yield lengths of mean 1."""
    sigma2 = math.log1p(cv2)
    while True:
        yield from rng.lognormal(-sigma2 / 2, math.sqrt(sigma2), _DRAWN).tolist()


def _zipf(groups: int, skew: float, rng: np.random.Generator) -> Iterator[int]:
    weights = np.arange(1, groups + 1, dtype=np.float64) ** -skew
    edges = np.cumsum(weights / weights.sum())
    while True:
        drawn = np.minimum(np.searchsorted(edges, rng.random(_DRAWN)), groups - 1)
        yield from drawn.tolist()


def _uniform(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(_DRAWN).tolist()
