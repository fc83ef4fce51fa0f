"""pair/config-mismatch: both values side by side, and what speaks for and against their doing harm."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, WEAK, Finding, Status
from pdops.model.frame import Event, EventKind
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, canary, causes, golden, groups, one, sound, view, worker

ID = "pair/config-mismatch"
SAME = {"block_size": "32", "kv_cache_dtype": "auto", "attention_backend": "FLASH_ATTN", "version": "0.32.0"}


def compare(left: dict[str, str], right: dict[str, str], changes: Given | None = None) -> tuple[Finding, ...]:
    facts = {"prefill-0": SAME | left, "decode-0": SAME | right}
    return ask(ID, view(series=but(sound(), changes or {}), facts=facts))


def fired(name: str, left: str, right: str) -> list[str]:
    return causes(compare({name: left}, {name: right}))


@pytest.mark.parametrize(
    ("name", "left", "right", "cause"),
    [
        ("kv_cache_dtype", "bfloat16", "fp8_e5m2", "config-asymmetry"),
        ("dtype", "bfloat16", "float16", "config-asymmetry"),
        ("model", "org/model-a", "org/model-b", "config-asymmetry"),
        ("block_size", "128", "32", "config-asymmetry"),
        ("kv_cache_layout", "HND", "NHD", "config-asymmetry"),
        ("attention_backend", "FLASH_ATTN", "FLASHINFER", "config-asymmetry"),
        ("kv_transfer_config.kv_connector", "NixlConnector", "MultiConnector", "config-asymmetry"),
        ("disaggregation_transfer_backend", "mooncake", "nixl", "config-asymmetry"),
        ("pp_size", "1", "2", "config-asymmetry"),
        ("version", "0.32.0", "0.33.1", "version-skew"),
        ("nixl_connector_version", "13", "14", "version-skew"),
        ("revision", "a1b2", "c3d4", "version-skew"),
        ("prefix_caching_hash_algo", "sha256", "builtin", "hash-mismatch"),
        ("env.PYTHONHASHSEED", "0", "7", "hash-mismatch"),
    ],
)
def test_what_must_match(name: str, left: str, right: str, cause: str) -> None:
    found = one(compare({name: left}, {name: right}), cause=cause)
    seen = found.for_[0].evidence
    assert (seen.basis, seen.expected) == ("config", "the same")
    assert seen.observed == f"{left} on prefill-0, {right} on decode-0"
    assert [str(s) for s in found.scopes] == ["prefill-0>decode-0"]


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [
        ("dtype", "torch.bfloat16", "bf16"),
        ("block_size", "32", "32.0"),
        ("attention_backend", "flash_attn", "FLASH_ATTN"),
        ("model", "/models/qwen3", "qwen/qwen3"),
        ("kv_cache_dtype", "fp8", "fp8_e4m3"),
        ("speculative_config", "None", "null"),
        ("revision", "None", ""),
        ("num_gpu_blocks", "400", "80"),
        ("gpu_memory_utilization", "0.9", "0.8"),
        ("lora.dtype", "bfloat16", "float16"),
    ],
)
def test_what_is_the_same_or_may_differ(name: str, left: str, right: str) -> None:
    found = compare({name: left}, {name: right})
    assert causes(found) == []
    assert causes(found, Status.CLEAR) == ["config-asymmetry", "version-skew"]


def test_auto_is_not_a_quantised_type() -> None:
    assert fired("kv_cache_dtype", "auto", "fp8_e5m2") == ["config-asymmetry"]


def test_speculation_on_one_side_only_is_a_difference() -> None:
    assert fired("speculative_config", "None", "{'method': 'ngram'}") == ["config-asymmetry"]


@pytest.mark.parametrize(
    ("name", "left", "right"),
    [("kv_cache_dtype", "auto", "bfloat16"), ("kv_cache_layout", "None", "HND"), ("model", "/models/m1", "org/m")],
)
def test_what_a_default_amounts_to_is_not_known(name: str, left: str, right: str) -> None:
    found = compare({name: left}, {name: right})
    assert causes(found) == []
    assert one(found, Status.UNKNOWN).missing[0].signal == name


def test_a_seed_of_its_own_for_each_process_never_matches() -> None:
    assert fired("PYTHONHASHSEED", "random", "random") == ["hash-mismatch"]


@pytest.mark.parametrize(
    ("src", "dst", "heads", "ratio"),
    [
        ("4", "4", None, None),
        ("4", "8", None, WEAK),
        ("4", "8", "8", WEAK),
        ("4", "8", "4", MODERATE),
        ("4", "6", None, MODERATE),
    ],
)
def test_tensor_parallelism_may_differ_where_heads_allow(
    src: str, dst: str, heads: str | None, ratio: float | None
) -> None:
    known = {} if heads is None else {"num_key_value_heads": heads}
    found = compare({"tensor_parallel_size": src} | known, {"tp_size": dst} | known)
    assert [f.for_[0].ratio for f in found if f.status is Status.FIRED] == ([] if ratio is None else [ratio])


@pytest.mark.parametrize(("decode", "fires"), [("32768", False), ("65536", False), ("32767", True)])
def test_decode_must_take_what_prefill_takes(decode: str, fires: bool) -> None:
    assert bool(causes(compare({"max_model_len": "32768"}, {"max_model_len": decode}))) is fires


def test_two_decode_workers_of_which_one_is_odd() -> None:
    facts = {"prefill-0": SAME, "decode-0": SAME, "decode-1": SAME | {"block_size": "64"}}
    found = one(ask(ID, view(workers=tuple(facts), series=sound(1, 2), facts=facts)))
    assert [str(s) for s in found.scopes] == ["prefill-0>decode-1"]
    facts |= {"prefill-1": SAME}
    found = one(ask(ID, view(workers=tuple(facts), series=sound(2, 2), facts=facts)))
    assert [str(s) for s in found.scopes] == ["decode-1"]


def test_all_pairs_are_the_pools() -> None:
    facts = {"prefill-0": SAME, "decode-0": SAME | {"block_size": "64"}, "decode-1": SAME | {"block_size": "64"}}
    found = one(ask(ID, view(workers=tuple(facts), series=sound(1, 2), facts=facts)))
    assert [str(s) for s in found.scopes] == ["pool prefill", "pool decode"]
    assert "(2 pairs)" in str(found.for_[0].evidence.observed)


def test_kv_that_flows_speaks_against_what_would_be_refused_only() -> None:
    refused = one(compare({}, {"attention_backend": "FLASHINFER"}))
    assert {w.group for w in refused.against} == {"flows"}
    misread = one(compare({}, {"kv_cache_dtype": "fp8"}))
    assert misread.against == ()
    failing = one(compare({}, {"attention_backend": "FLASHINFER"}, {"decode-0": {"kv_transfer_failures": (0, 3)}}))
    assert failing.against == ()
    assert "broken" in groups(failing)


def test_a_rollout_on_the_way_speaks_for_version_skew() -> None:
    facts = {"prefill-0": SAME, "decode-0": SAME | {"version": "0.33.1"}}
    event = Event(t_s=-400, kind=EventKind.ROLLOUT, pool="decode", revision="0.33.1")
    assert "rollout" in groups(one(ask(ID, view(series=sound(), facts=facts, events=[event]))))


def test_the_inventory_s_version_is_as_good_as_a_fact() -> None:
    workers = (worker("prefill-0", version="0.32.0"), worker("decode-0", version="0.31.0"))
    assert causes(ask(ID, view(workers=workers, series=sound()))) == ["version-skew"]


@pytest.mark.parametrize(("hits", "never"), [(0.0, True), (1.0, False)])
def test_a_cache_that_never_hits_speaks_for_different_hashes(hits: float, never: bool) -> None:
    changes: Given = {"prefill-0": {"external_cache_queries": (0, 9_000), "external_cache_hits": (0, hits)}}
    found = one(compare({"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1"}, changes))
    assert ("hits" in groups(found)) is never
    assert max(w.ratio for w in found.for_) == (STRONG if never else MODERATE)


def test_unread_configuration_is_unknown_and_clears_nothing() -> None:
    found = ask(ID, view(series=sound(), facts={"prefill-0": SAME}))
    assert "decode-0" in one(found, Status.UNKNOWN).missing[0].why
    assert causes(found, Status.CLEAR) == []
    assert ask(ID, view(workers=(), series=sound())) == ()


def test_report() -> None:
    facts = {"prefill-0": SAME | {"kv_cache_dtype": "bfloat16"}, "decode-0": SAME | {"kv_cache_dtype": "fp8_e5m2"}}
    probes = [canary("prefill-0>decode-0", ok=False)]
    report = golden(ID, view(series=sound(), facts=facts, probes=probes))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.check) == ("config-asymmetry", ID)
    assert report.top.confidence > 0.9
    because = [r.because for r in report.ruled_out if r.cause == "silent-corruption"]
    assert because[0].startswith("follows from")


def test_the_heaviest_differences_are_decisive() -> None:
    found = one(compare({"kv_connector": "NixlConnector"}, {"kv_connector": "MooncakeConnector"}))
    assert max(w.ratio for w in found.for_) == DECISIVE
