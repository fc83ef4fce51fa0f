"""Every case file gets the answer it expects, and no other fault when it is slower, faster or missing its best evidence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pdops.catalog.load import catalog
from pdops.diagnose.checks import ALL
from pdops.model.report import Verdict
from pdops.sources.case import case_view, load_case, series_keys
from tests.diagnose.casework import INCIDENTS, PATHS, WRITTEN, blinded, judge, times
from tests.diagnose.scoreboard import excluded
from tests.diagnose.test_registry import RUNBOOKS

FAMILIES = {
    "A address or configuration": "009 010 012 013 014 015 016 017 030 040 041 044 048 070 080 081 082 103 104 105 106 113 124 132",
    "B hang": "034 065 068 069 077 078 079 091 092 093 099 100 101 118 120 127",
    "C held KV": "003 004 005 006 008 064 071 084 085 086 114 116 131",
    "D data path": "025 026 028 029 032 033 072 089 090 123 126",
    "E wrong output": "001 002 022 023 036 088 125 134",
    "F stale after restart": "018 020 031 035 073 075 076 133",
    "G router": "051 052 053 062 063 102 121 122",
    "H store": "037 096 097 098 107 108 109 110 115",
    "I autoscaler": "055 056 057 059 060 130",
    "J silent decode-only": "043 045 046 047",
    "K crash or memory": "024 038 087 128",
    "L cold start, client, false alarm": "039 094 129",
}
"""Kinds of incident, by number."""

USUAL = {
    1: {"scale-out-prefill", "enable-chunked-prefill"},
    2: {"scale-out-decode", "evict-kv", "lower-batch"},
    3: {"disable-prefix-cache"},
    4: {"ratio-rebalance", "scale-in-prefill"},
    5: {"routing-rebalance"},
}
"""What is usually advised for each of the five symptoms."""

each = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)


@each
def test_the_answer(path: Path, tally: Callable[..., None]) -> None:
    judged = judge(load_case(path))
    tally(
        path.stem,
        answer=judged.answer,
        layer=judged.layer,
        cause=judged.cause,
        forbidden=judged.forbidden,
        next=judged.following,
    )
    assert judged.right, judged


@each
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_slower_or_faster_cluster(path: Path, factor: float, tally: Callable[..., None]) -> None:
    right = times(path, factor)
    tally(path.stem, **{f"x{factor:g}": right})
    assert right


@each
def test_without_its_best_evidence(path: Path, tally: Callable[..., None]) -> None:
    key, right = blinded(path)
    tally(path.stem, blinded=None if key is None else right)
    assert right, key


@each
def test_the_file_is_sound(path: Path) -> None:
    """Nothing is kept aside, what is expected exists, and made-up numbers are marked."""
    case = load_case(path)
    assert case_view(case)[1] == ()
    assert case.expect is not None
    assert case.expect.verdict is not None
    assert set(case.expect.causes) <= set(catalog().causes)
    assert set(case.expect.not_) <= set(catalog().causes) | {c.meta.id for c in ALL} | RUNBOOKS
    assert bool(case.expect.layers_ok) == bool(case.expect.causes) == (case.expect.verdict is not Verdict.UNKNOWN)
    assert case.expect.next_any
    if path in INCIDENTS:
        assert case.source is not None
        assert case.source.startswith("https://")
        assert path.stem.startswith(case.id.removeprefix("inc-"))
        assert case.basis == "mixed"
        assert len(case.inferred) == len(set(case.inferred))
        assert case.inferred or not series_keys(case) or "# Reported" in path.read_text(encoding="utf-8")
    else:
        assert (case.basis, case.source) == ("inferred", "written")


def test_every_kind_of_incident_is_there() -> None:
    ours = {path.name[:3] for path in INCIDENTS}
    assert {kind for kind, ids in FAMILIES.items() if not ours & set(ids.split())} == set()
    assert len(ours) >= 22


def test_an_incident_without_a_case_says_why() -> None:
    ours = {load_case(path).id for path in INCIDENTS}
    for incident, reason in excluded().items():
        assert incident not in ours
        assert len(reason) > 20


def test_most_incidents_reach_layer_and_cause() -> None:
    reached = [p.stem for p in INCIDENTS if (judged := judge(load_case(p))).right and judged.layer and judged.cause]
    assert len(reached) >= 14


@pytest.mark.parametrize("number", sorted(USUAL))
def test_each_symptom_has_a_twin_that_the_usual_advice_makes_worse(number: int) -> None:
    (plain,) = [p for p in WRITTEN if p.stem.startswith(f"symptom-{number}-") and not p.stem.endswith("-trap")]
    (trap,) = [p for p in WRITTEN if p.stem == f"symptom-{number}-trap"]
    first, second = judge(load_case(plain)).report, judge(load_case(trap)).report
    assert first.top is not None
    assert second.top is not None
    assert first.top.cause != second.top.cause
    assert {d.action for d in second.top.do_not} & USUAL[number]
    assert not set(second.top.runbooks) & USUAL[number]
