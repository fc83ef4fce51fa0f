"""Series names, and the names that are asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.catalog.load import catalog
from pdops.catalog.names import (
    canonical_name,
    exposition_names,
    fast_names,
    split_series,
    wanted_names,
)
from pdops.catalog.types import SourceSpec


@pytest.mark.parametrize(
    ("series", "name", "labels"),
    [
        ("a", "a", {}),
        (" a ", "a", {}),
        ("vllm:a_total{}", "vllm:a_total", {}),
        ('a{b="c"}', "a", {"b": "c"}),
        ('a { b = "c" , d="e",}', "a", {"b": "c", "d": "e"}),
        ('a{b="}",c="x,y=\\"z\\""}', "a", {"b": "}", "c": 'x,y="z"'}),
        ('a{b="\\\\n",c="\\n"}', "a", {"b": "\\n", "c": "\n"}),
        ('a{b="\\q"}', "a", {"b": "\\q"}),
        ('a{le="+Inf"}', "a", {"le": "+Inf"}),
    ],
)
def test_series_are_split(series: str, name: str, labels: dict[str, str]) -> None:
    assert split_series(series) == (name, labels)


@pytest.mark.parametrize("series", ['a{b="c"', 'a{b="c}', "a{b=c}", "a{b}", 'a{1b="c"}', 'a{b="c" d="e"}', 'a{b="c"}x'])
def test_what_is_no_series_is_refused(series: str) -> None:
    with pytest.raises(ValueError, match="labels"):
        split_series(series)


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True), st.text(max_size=12), max_size=4))
def test_every_label_value_survives_the_way_there_and_back(labels: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    series = "a{" + ",".join(f'{k}="{escaped(v)}"' for k, v in labels.items()) + "}"
    assert split_series(series) == ("a", labels)


def test_fast_names_are_all_but_buckets_and_fit_into_an_address() -> None:
    names = fast_names("vllm")
    assert names == tuple(sorted(set(names)))
    assert not any(name.endswith("_bucket") for name in names)
    assert {"vllm:num_requests_waiting", "vllm:nixl_bytes_transferred_sum", "process_start_time_seconds"} <= set(names)
    assert "pdops_plugin_kv_held_requests" in names
    assert sum(len(name) + len("&name[]=") for name in names) < 8_000
    assert fast_names("no such engine") == ()


def test_wanted_names_hold_every_source_in_both_spellings() -> None:
    wanted = wanted_names()
    for signal in catalog().signals.values():
        for specs in signal.sources.values():
            for spec in specs:
                for name in exposition_names(spec):
                    assert name in wanted
                    assert name.replace(":", "_") in wanted
    assert "vllm:cache_config_info" in wanted
    assert "process_start_time_seconds" in wanted
    assert not any(name.endswith("_created") for name in wanted)


def test_only_known_names_get_their_colon_back() -> None:
    assert canonical_name("vllm_num_requests_waiting") == ("vllm:num_requests_waiting", True)
    assert canonical_name("vllm:num_requests_waiting") == ("vllm:num_requests_waiting", False)
    assert canonical_name("vllm_router_worker_health") == ("vllm_router_worker_health", False)


def test_sample_names_follow_the_kind() -> None:
    assert exposition_names(SourceSpec(metric="a", kind="histogram")) == ("a_bucket", "a_sum", "a_count")
    assert exposition_names(SourceSpec(metric="a", kind="summary")) == ("a_sum", "a_count")
    assert exposition_names(SourceSpec(metric="a_total", kind="counter")) == ("a_total",)
    assert exposition_names(SourceSpec(derived="a / b")) == ()
