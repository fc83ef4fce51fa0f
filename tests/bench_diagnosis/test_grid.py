"""The written part of the benchmark: complete, and refused where it is not sound."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from pdops.bench.episodes import HEALTHY_SHARE, cell_count, plan
from pdops.bench.grid import SEVERITIES, SPLITS, grid, kinds, load_kinds, unseen
from pdops.errors import CatalogError
from pdops.sim.spec import KINDS

KIND = """schema: pdops/bench-kinds/v1
kinds:
  - id: mine
    faults: [{kind: prefill-speed, targets: prefill}]
    severities: {edge: {factor: 0.5}, clear: {factor: 0.3}, extreme: {factor: 0.1}}
    truth: {causes: [CAUSE], layers_ok: [prefill], scopes: [{worker: chosen}], symptom: ttft-high-itl-normal}
"""


def test_enough_kinds_of_fault_and_every_promised_look_alike_are_there() -> None:
    assert len(kinds().kinds) >= 33
    assert {s.id for s in kinds().healthy} >= {
        "diurnal-ramp", "burst-within-capacity", "prompt-mix-change", "rolling-deploy", "scale-out-warm-up",
        "counter-reset", "scrape-gap", "idle-pool", "planned-drain", "one-request", "cache-warm-up",
    }  # fmt: skip


def test_every_primitive_that_is_named_is_one_of_the_simulator() -> None:
    named = {f.kind for k in (*kinds().kinds, *kinds().healthy, *unseen()) for f in k.faults}
    assert named <= set(KINDS)


@pytest.mark.parametrize("own", ["develop", "develop-bursty", "develop-stormy"])
def test_what_is_developed_on_calibrated_on_and_held_out_share_no_range_of_engine_speed(own: str) -> None:
    families = grid().families
    assert set(families) == set(SPLITS)
    spans = sorted((families[s].step_base_s[0], families[s].step_base_s[-1]) for s in (own, "calibrate", "held-out"))
    assert all(low[1] < high[0] for low, high in itertools.pairwise(spans))


def test_an_own_file_of_kinds_is_read(tmp_path: Path) -> None:
    file = tmp_path / "kinds.yaml"
    file.write_text(KIND.replace("CAUSE", "prefill-slow-worker"))
    assert [k.id for k in load_kinds(str(file)).kinds] == ["mine"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (KIND.replace("CAUSE", "prefill-slow"), "unknown cause"),
        (KIND.replace("CAUSE", "prefill-down").replace(", extreme: {factor: 0.1}", ""), "three severities"),
        (KIND.replace("CAUSE", "prefill-down").replace("worker: chosen", "worker: chosen, pool: prefill"), "one key"),
        (KIND.replace("CAUSE", "prefill-down") + KIND.replace("CAUSE", "prefill-down").split("kinds:\n")[1], "twice"),
        ("schema: pdops/bench-kinds/v2\nkinds: []\n", "schema"),
    ],
)
def test_a_file_that_is_not_sound_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "kinds.yaml"
    file.write_text(text)
    with pytest.raises(CatalogError, match=message) as caught:
        load_kinds(str(file))
    assert "kinds.yaml:" in str(caught.value)


def test_the_same_choice_gives_the_same_episodes_and_another_seed_others() -> None:
    first, again, other = (plan("develop", 90, given=kinds(), seed=s) for s in (1, 1, 2))
    assert first == again
    assert [e.name for e in first] != [e.name for e in other]


def test_a_plan_holds_the_promised_shares() -> None:
    found = plan("held-out", 400, given=kinds(), seed=3)
    healthy = [e for e in found if not e.faults]
    assert len(healthy) / len(found) == pytest.approx(HEALTHY_SHARE, abs=0.01)
    assert len(healthy) / len(found) >= 0.3
    assert sum(len(e.faults) > 1 for e in found) / (len(found) - len(healthy)) == pytest.approx(0.15, abs=0.03)
    assert sum(e.missing_ratio > 0 for e in found) / len(found) == pytest.approx(0.2, abs=0.01)
    assert all(0.1 <= e.missing_ratio <= 0.4 for e in found if e.missing_ratio)


def test_a_plan_of_look_alikes_alone_has_no_fault() -> None:
    found = plan("develop", 40, given=kinds(), seed=3, healthy_share=1.0)
    assert all(e.sound is not None and not e.faults for e in found)
    assert {e.sound.id for e in found if e.sound} == {s.id for s in kinds().healthy}


def test_every_kind_is_drawn_as_often_as_any_other_and_in_all_severities() -> None:
    found = plan("develop", 400, given=kinds(), seed=4)
    counts = Counter(e.faults[0].id for e in found if e.faults)
    assert set(counts) == {k.id for k in kinds().kinds}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert {e.severity for e in found} == set(SEVERITIES)
    drawn = {(e.faults[0].id, e.severity, e.workload, e.topology) for e in found if e.faults}
    assert len(drawn) <= cell_count(kinds().kinds)


def test_a_kind_is_played_only_where_it_makes_sense() -> None:
    found = plan("develop", 600, given=kinds(), seed=5)
    for episode in found:
        place = grid().topologies[episode.topology]
        for kind in episode.faults:
            assert place.has(kind.needs), episode.name
            assert not kind.workloads or episode.workload in kind.workloads, episode.name
            assert not kind.topologies or episode.topology in kind.topologies, episode.name


@pytest.mark.parametrize("seed", range(8))
def test_no_topology_of_a_large_run_is_left_out_however_little_it_weighs(seed: int) -> None:
    found = Counter(e.topology for e in plan("develop", 100, given=kinds(), seed=seed))
    assert set(found) == set(grid().topologies)
    assert min(found.values()) >= 3
    assert found["64P256D"] <= 10


def test_a_small_run_owes_nothing_to_the_largest_topology() -> None:
    seeds = range(30)
    found = [e.topology for seed in seeds for e in plan("develop", 12, given=kinds(), seed=seed)]
    assert found.count("64P256D") < len(seeds)


def test_the_second_fault_is_of_another_layer() -> None:
    pairs = [e.faults for e in plan("develop", 600, given=kinds(), seed=6) if len(e.faults) > 1]
    assert pairs
    assert all(a.truth.layers_ok[0] is not b.truth.layers_ok[0] for a, b in pairs)


def test_kinds_that_only_one_split_has_are_marked() -> None:
    extra = kinds().kinds[0].model_copy(update={"id": "never-seen"})
    found = plan("held-out", 200, given=kinds(), unseen=(extra,), seed=7)
    marked = {k.id for e in found if e.unseen for k in e.faults}
    assert "never-seen" in marked
    assert all(any(k.id == "never-seen" for k in e.faults) == e.unseen for e in found)
