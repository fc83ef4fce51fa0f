"""One episode as the simulator takes it, and what is true in it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pdops.bench import sizes, targets
from pdops.bench.clients import felt
from pdops.bench.episodes import Episode
from pdops.bench.grid import FaultTemplate, Grid, Kind, Sound, Topology, WorkloadShape, grid
from pdops.bench.impact import normal
from pdops.bench.sizes import Sizes
from pdops.errors import SimError
from pdops.model.cluster import Slo
from pdops.sim.run import Simulation
from pdops.sim.spec import Engine, Fault, Network, Router, SimSpec, Store, Workload, Zone

INTERVAL_S = 5.0
WARMUP_S = 120.0
"""Time for caches to fill before the first frame."""
_TRIAL_S = 120.0
_TRIAL_WARMUP_S = 60.0
_STORE_SHARE = 0.5
_PERCENTILE = 0.95
_ATTAINMENT = 0.95
_BANDWIDTH = {"zone-placement": "rate_factor", "router-zone-blind": "rate_factor"}
"""What the primitives that slow the way between zones call their factor."""
_SECONDS = {"idle-drop": "stall_s", "store-hollow": "wait_s", "hop-delay": "wait_s"}
"""What the primitives that cost a time call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A spec, whom each fault of the episode was drawn to hit, and who was there to be hit."""

    spec: SimSpec
    chosen: tuple[tuple[str, ...], ...]
    names: targets.Names


def build(episode: Episode, on: Grid | None = None) -> Scenario:
    """Return what the simulator is to play.

    The promise is a multiple of what the same engines give in a short healthy run of at most 2P6D.
    """
    on = on or grid()
    family, shape, place = on.families[episode.split], on.workloads[episode.workload], on.topologies[episode.topology]
    rng = episode.rng("sizes")
    wants_store = any(k.needs.store for k in episode.faults)
    with_store = wants_store or (place.prefill > 1 and rng.random() < _STORE_SHARE)
    policy = next((k.policy for k in episode.faults if k.policy), None)
    known = sizes.draw(family, shape, place, on.utilisation, rng, with_store=with_store)
    if policy is not None:
        known = dataclasses.replace(known, router_policy=policy)
    spec = _spec(episode, on, known, place, shape, with_store)
    slo = _promise(episode, on, spec, known, place)
    spec = dataclasses.replace(spec, slo=slo)
    names = _names(place)
    faults: list[Fault] = []
    chosen: list[tuple[str, ...]] = []
    for number, kind in enumerate(episode.faults):
        made, hit = _faults(episode, kind, number, names, known, spec)
        faults += made
        chosen.append(hit)
    if episode.sound is not None:
        faults += _look_alike(episode, episode.sound, names, known, spec)
    return Scenario(spec=dataclasses.replace(spec, faults=tuple(faults)), chosen=tuple(chosen), names=names)


def _spec(episode: Episode, on: Grid, known: Sizes, place: Topology, shape: WorkloadShape, with_store: bool) -> SimSpec:
    arrivals = on.families[episode.split].arrivals
    sound = episode.sound
    usual = on.utilisation.decode
    scale = sound.utilisation / usual if sound is not None and sound.utilisation is not None else 1.0
    workload = Workload(
        law=arrivals.law,
        cv2=arrivals.cv2,
        rate_per_s=known.rate_per_s * scale,
        prompt_mean_tokens=shape.prompt_mean_tokens,
        prompt_cv2=shape.prompt_cv2,
        prompt_max_tokens=known.prompt_max_tokens,
        output_mean_tokens=shape.output_mean_tokens,
        output_cv2=shape.output_cv2,
        prefix_groups=known.prefix_groups,
        prefix_share=shape.prefix_share,
        zipf_skew=shape.zipf_skew,
    )
    if sound is not None:
        # The simulator checks names and ranges of what a look-alike changes.
        workload = dataclasses.replace(workload, **cast("dict[str, Any]", dict(sound.workload)))
    return SimSpec(
        seed=episode.seed,
        duration_s=WARMUP_S + episode.until_s + 60.0,
        warmup_s=WARMUP_S,
        prefill=place.prefill,
        decode=place.decode,
        zones=tuple(Zone(name=f"zone-{i}") for i in range(place.zones)),
        workload=workload,
        engine=Engine(
            prefill_tokens_per_s=known.prefill_tokens_per_s,
            prefill_step_s=known.prefill_step_s,
            service_cv2=on.families[episode.split].service_cv2,
            step_base_s=known.step_base_s,
            step_per_seq_s=known.step_per_seq_s,
            step_per_kv_token_s=known.step_per_kv_token_s,
            kv_blocks=known.decode_kv_blocks,
            prefill_kv_blocks=known.prefill_kv_blocks,
            block_size_tokens=known.block_size_tokens,
            max_num_seqs=place.max_num_seqs,
            kv_bytes_per_token=known.kv_bytes_per_token,
            lease_s=known.lease_s,
        ),
        network=Network(nic_bytes_per_s=known.nic_bytes_per_s, setup_s=known.setup_s),
        router=Router(policy=known.router_policy),
        store=Store(enabled=with_store, capacity_bytes=max(1e9, 1.5 * known.working_set_bytes)),
    )


def _promise(episode: Episode, on: Grid, spec: SimSpec, known: Sizes, place: Topology) -> Slo:
    """Return the SLO, from a healthy run of the same engines at the usual load.

    Raises:
        SimError: no request of that run went well, so that nothing can be promised.
    """
    family = on.families[episode.split]
    small = min(1.0, 2 / place.prefill)
    trial = dataclasses.replace(
        spec,
        duration_s=_TRIAL_WARMUP_S + _TRIAL_S,
        prefill=max(1, round(place.prefill * small)),
        decode=max(1, round(place.decode * small)),
        workload=dataclasses.replace(
            spec.workload,
            rate_per_s=known.rate_per_s * small,
            prefix_groups=max(1, round(known.prefix_groups * small)),
            diurnal_amplitude=0.0,
        ),
        store=dataclasses.replace(spec.store, capacity_bytes=max(1e9, spec.store.capacity_bytes * small)),
    )
    simulation = Simulation(trial)
    simulation.advance(trial.duration_s)
    found = normal((r for r in felt(simulation.records, 0.0) if r.arrival_s > _TRIAL_WARMUP_S), _PERCENTILE)
    if found is None:
        raise SimError(
            "benchmark episode cannot be played",
            where=episode.name,
            why="no request of its healthy trial went well",
            hint="check the grid's load and sizes",
        )
    ttft_s, itl_s = found
    return Slo(
        ttft_s=_two_digits(ttft_s * family.slo.ttft_over_normal),
        itl_s=_two_digits(itl_s * family.slo.itl_over_normal),
        percentile=_PERCENTILE,
        attainment=_ATTAINMENT,
    )


def _faults(
    episode: Episode, kind: Kind, number: int, names: targets.Names, known: Sizes, spec: SimSpec
) -> tuple[list[Fault], tuple[str, ...]]:
    severity = kind.severities[episode.severity]
    began_s = WARMUP_S + episode.at_s + (episode.second_after_s if number else 0.0)
    rng = episode.rng(f"targets/{number}")
    made: list[Fault] = []
    first: tuple[str, ...] = ()
    for place, template in enumerate(kind.faults):
        params = {**template.params, **severity} if place == 0 else dict(template.params)
        hit = targets.draw(template.targets, params, names, rng)
        first = hit if place == 0 else first
        made.append(_fault(template, params, hit, began_s, known, spec))
    return made, first


def _look_alike(episode: Episode, sound: Sound, names: targets.Names, known: Sizes, spec: SimSpec) -> list[Fault]:
    rng = episode.rng("targets")
    return [
        _fault(t, t.params, targets.draw(t.targets, t.params, names, rng), WARMUP_S + episode.at_s, known, spec)
        for t in sound.faults
    ]


def _fault(
    template: FaultTemplate,
    params: Mapping[str, float | str],
    hit: tuple[str, ...],
    at_s: float,
    known: Sizes,
    spec: SimSpec,
) -> Fault:
    given = {k: v for k, v in params.items() if k != targets.SHARE or not targets.consumes_share(template.targets)}
    return Fault(kind=template.kind, at_s=at_s, target=hit, params=_by_effect(template.kind, given, known, spec))


def _by_effect(kind: str, params: Mapping[str, float | str], known: Sizes, spec: SimSpec) -> dict[str, float | str]:
    """Turn severities that are given by their effect into the primitive's own parameters."""
    out = dict(params)
    slo = spec.slo
    promised_s = slo.ttft_s or 1.0
    if "of_needed" in out:
        factor = min(1.0, float(out.pop("of_needed")) * known.needed_bytes_per_s(slo) / known.nic_bytes_per_s)
        if kind == "nic-background":
            out["share"] = 1.0 - factor
        else:
            out[_BANDWIDTH.get(kind, "factor")] = factor
    if "of_slo" in out:
        wanted_s = float(out.pop("of_slo")) * promised_s
        if kind in _SECONDS:
            out[_SECONDS[kind]] = wanted_s
        elif kind == "descriptor-jump":
            blocks = known.prompt_tokens / known.block_size_tokens
            net = spec.network
            out["factor"] = max(1.0, wanted_s / (blocks * net.descriptors_per_block * net.descriptor_s))
        elif kind == "link-rate":
            moved = known.prompt_tokens * known.kv_bytes_per_token
            out["factor"] = min(1.0, moved / wanted_s / known.nic_bytes_per_s)
        else:
            shared = known.prompt_tokens - known.computed_tokens
            out["factor"] = min(1.0, shared * known.kv_bytes_per_token / spec.store.bytes_per_s / wanted_s)
    if "of_transfer" in out:
        slow = 1.3 * known.needed_bytes_per_s(slo)
        out["lease_s"] = max(0.001, float(out.pop("of_transfer")) * known.transfer_s(min(slow, known.nic_bytes_per_s)))
    if "of_prompt" in out:
        out["tokens"] = float(out.pop("of_prompt")) * known.prompt_tokens
    if "stretch" in out:
        step_tokens = known.prefill_step_s * known.prefill_tokens_per_s
        out["value"] = max(16.0, float(round(step_tokens / (float(out.pop("stretch")) - 1.0))))
    if kind == "max-num-seqs" and targets.SHARE in out:
        out["value"] = float(max(1, math.floor(float(out.pop(targets.SHARE)) * spec.engine.max_num_seqs)))
    return out


def _names(place: Topology) -> targets.Names:
    return targets.Names(
        prefill=tuple(f"prefill-{i}" for i in range(place.prefill)),
        decode=tuple(f"decode-{i}" for i in range(place.decode)),
        zones=tuple(f"zone-{i}" for i in range(place.zones)),
    )


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
