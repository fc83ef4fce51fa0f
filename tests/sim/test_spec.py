"""Simulations as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdops.errors import SimError
from pdops.sim.parameters import BY_KIND
from pdops.sim.run import Simulation
from pdops.sim.spec import KINDS, Engine, Fault, SimSpec, Store, Workload, Zone, checked, load_spec

WHOLE = """
seed: 3
prefill: 2
decode: 6
zones: [{name: a}, {name: b, region: far}]
workload: {law: gamma, cv2: 1.8, rate_per_s: 4, bursts: [{at_s: 10, until_s: 20, factor: 2}]}
engine: {kv_blocks: 4000, kv_bytes_per_token: 131072}
slo: {ttft_s: 1}
faults:
  - {kind: worker-kill, at_s: 100, target: [prefill-0], params: {restart_after_s: never}}
  - {kind: link-cut, at_s: 200, params: {duration_s: 30}}
"""


def read(tmp_path: Path, text: str) -> SimSpec:
    path = tmp_path / "sim.yaml"
    path.write_text(text)
    return load_spec(str(path))


def test_a_file_says_what_is_simulated(tmp_path: Path) -> None:
    spec = read(tmp_path, WHOLE)
    assert (spec.seed, spec.prefill, spec.decode) == (3, 2, 6)
    assert spec.zones == (Zone(name="a"), Zone(name="b", region="far"))
    assert spec.engine == Engine(kv_blocks=4000, kv_bytes_per_token=131072.0)
    assert (spec.slo.ttft_s, spec.slo.itl_s) == (1.0, 0.05)
    assert spec.faults[0].params == {"restart_after_s": "never"}
    assert [f.end_s() for f in spec.faults] == [None, 230.0]


def test_a_file_that_says_nothing_new_is_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, "seed: 0") == SimSpec()


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ("engine: {kv_block: 3}", "unknown key 'kv_block' in engine", "did you mean 'kv_blocks'?"),
        ("faults: [{kind: drain, at: 1, at_s: 1}]", "unknown key 'at'", "did you mean 'at_s'?"),
        ("faults: [{kind: drian, at_s: 1}]", "unknown fault 'drian'", "did you mean 'drain'?"),
        ("router: {policy: random}", "unknown policy 'random'", "policies"),
        ("zones: []", "zones need names of their own", "name each zone once"),
        ("workload: {rate_per_s: -1}", "greater than or equal to 0", "format"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_what_to_do(tmp_path: Path, text: str, why: str, hint: str) -> None:
    with pytest.raises(SimError) as caught:
        read(tmp_path, text)
    assert "sim.yaml:1" in str(caught.value)
    assert why in str(caught.value)
    assert hint in caught.value.hint


def test_a_spec_made_in_code_is_checked_as_well() -> None:
    spec = SimSpec(faults=(Fault(kind="drain", at_s=1.0),))
    assert checked(spec) is spec
    with pytest.raises(SimError, match="prefill"):
        checked(SimSpec(prefill=0))
    with pytest.raises(SimError, match=r"workload\.prefix_share"):
        checked(SimSpec(workload=Workload(prefix_share=2.0)))


class Asked(dict[str, float | str]):
    """Parameters that remember which of them were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        self.names.add(name)
        return super().get(name, default)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_fault_says_exactly_those_parameters_that_it_reads(kind: str) -> None:
    asked = Asked()
    spec = SimSpec(
        prefill=2,
        decode=2,
        zones=(Zone(name="a"), Zone(name="b")),
        store=Store(enabled=True),
        workload=Workload(rate_per_s=0.5),
        faults=(Fault(kind=kind, at_s=1.0, params=asked),),
    )
    Simulation(spec).advance(120.0)
    assert asked.names == set(BY_KIND[kind])


def test_no_parameters_are_said_of_a_fault_that_is_none() -> None:
    assert set(BY_KIND) == set(KINDS)


def test_a_parameter_that_a_fault_does_not_take_is_refused_with_those_it_takes() -> None:
    spec = SimSpec(faults=(Fault(kind="link-rate", at_s=1.0, params={"factr": 0.1}),))
    with pytest.raises(SimError, match="factr") as refused:
        Simulation(spec)
    assert "factor" in str(refused.value.hint)
