"""Faults as words."""

from __future__ import annotations

import pytest

from pdops.errors import UsageError
from pdops.sim.arguments import merged, parse_fault


def test_a_fault_alone_is_there_from_the_start() -> None:
    assert parse_fault("store-down") == {"kind": "store-down", "at_s": 0.0}


def test_times_targets_and_parameters_are_told_apart() -> None:
    assert parse_fault("link-rate:at=60,until=90.5,target=decode-0+prefill-0>decode-1,factor=0.1,mode=tcp") == {
        "kind": "link-rate",
        "at_s": 60.0,
        "until_s": 90.5,
        "target": ["decode-0", "prefill-0>decode-1"],
        "params": {"factor": 0.1, "mode": "tcp"},
    }


@pytest.mark.parametrize("text", ["", ":at=1", "x:at", "x:at=", "x:=1", "x:at=later", "x:until=nan"])
def test_what_is_not_of_the_form_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_fault(text)
    assert "KIND[:at=S" in caught.value.hint


def test_wishes_replace_inner_keys_and_add_faults() -> None:
    base = {"seed": 1, "slo": {"ttft_s": 1, "itl_s": 2}, "faults": [{"kind": "a"}], "engine": None}
    found = merged(base, {"slo": {"ttft_s": 9}, "faults": [{"kind": "b"}], "engine": {"lease_s": 5}})
    assert found == {
        "seed": 1,
        "slo": {"ttft_s": 9, "itl_s": 2},
        "faults": [{"kind": "a"}, {"kind": "b"}],
        "engine": {"lease_s": 5},
    }
    assert base["faults"] == [{"kind": "a"}]
