"""The compatibility hash of vLLM's NIXL connector, made again from its inputs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pdops.sources.facts.compat import Inputs, compat_hash, connector_version, inputs_of, uses_nixl
from pdops.sources.facts.startlog import read_start, start_facts

MODEL = {"num_hidden_layers": "2", "num_key_value_heads": "2", "head_dim": "32", "model_dtype": "float32"}
GIVEN = {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}
INPUTS = Inputs(
    version="0.32.0",
    connector_version=14,
    model="org/m",
    dtype="bfloat16",
    num_kv_heads=8,
    head_size=128,
    num_hidden_layers=36,
    attention_backend="FLASH_ATTN",
    cache_dtype="auto",
    hybrid_manager=True,
)


def test_a_real_engine_printed_the_same_hash(fixtures: Path) -> None:
    facts = {**MODEL, **GIVEN, **read_start(fixtures / "facts" / "vllm-0.32.0-start.log")}
    inputs, missing = inputs_of(facts)
    assert missing == ()
    assert inputs is not None
    assert compat_hash(inputs) == facts["compat_hash_logged"]


@pytest.mark.parametrize(
    "change",
    [
        {"version": "0.32.1"},
        {"connector_version": 13},
        {"model": "org/other"},
        {"dtype": "float16"},
        {"num_kv_heads": 4},
        {"head_size": 64},
        {"num_hidden_layers": 35},
        {"attention_backend": "FLASHINFER"},
        {"cache_dtype": "fp8"},
        {"hybrid_manager": False},
        {"transfer_mode": "push"},
        {"speculative": {"method": "eagle"}},
    ],
)
def test_every_input_counts(change: dict[str, object]) -> None:
    assert compat_hash(dataclasses.replace(INPUTS, **change)) != compat_hash(INPUTS)  # type: ignore[arg-type]


def test_nothing_is_guessed() -> None:
    inputs, missing = inputs_of(
        {**GIVEN, "version": "0.32.0", "model": "org/m", "dtype": "auto", "kv_cache_dtype": "auto"}
    )
    assert inputs is None
    assert missing == ("dtype", "attention_backend", "num_key_value_heads", "head_dim", "num_hidden_layers")
    assert inputs_of({})[0] is None
    assert "connector_version" in inputs_of({"version": "0.31.0"})[1]
    speculating = {
        **MODEL,
        **GIVEN,
        "version": "0.32.0",
        "model": "m",
        "dtype": "half",
        "cache_dtype": "auto",
        "device": "cpu",
    }
    assert inputs_of(speculating)[0] is not None
    assert inputs_of({**speculating, "speculative_config": '{"method": "eagle"}'})[0] is None
    assert inputs_of({**speculating, "head_dim": "many"})[0] is None


def test_push_and_pull_and_other_connectors() -> None:
    base = {**MODEL, "version": "0.32.0", "model": "m", "dtype": "bfloat16", "kv_cache_dtype": "auto", "device": "cpu"}
    push, _ = inputs_of({**base, "kv_connector": "NixlPushConnector"})
    assert push is not None
    assert push.transfer_mode == "push"
    multi = {**base, "kv_connector": "MultiConnector"}
    both, _ = inputs_of({**multi, "kv_connector_children": '["NixlConnector", "MooncakeStoreConnector"]'})
    assert both is not None
    assert both.hybrid_manager
    foreign, missing = inputs_of({**multi, "kv_connector_children": '["NixlConnector", "OtherConnector"]'})
    assert foreign is None
    assert missing == ("disable_hybrid_kv_cache_manager",)
    off, _ = inputs_of({**base, **GIVEN, "disable_hybrid_kv_cache_manager": "true"})
    assert off is not None
    assert not off.hybrid_manager


def test_mla_models_have_one_head_of_the_latent_size() -> None:
    facts = {**MODEL, **GIVEN, "kv_lora_rank": "512", "qk_rope_head_dim": "64", "version": "0.32.0", "model": "m"}
    inputs, _ = inputs_of({**facts, "dtype": "bfloat16", "kv_cache_dtype": "auto", "attention_backend": "FLASHMLA"})
    assert inputs is not None
    assert (inputs.num_kv_heads, inputs.head_size) == (1, 576)


def test_versions_and_connectors() -> None:
    assert connector_version("0.32.0") == connector_version("0.32.1.dev1+g12") == 14
    assert connector_version("0.9.0") is connector_version(None) is None
    assert uses_nixl({"kv_connector": "NixlConnector"})
    assert uses_nixl({"kv_connector": "MultiConnector", "kv_connector_children": '["NixlConnector"]'})
    assert not uses_nixl({"kv_connector_children": "["})


def test_a_start_log_tells_resolved_values(fixtures: Path) -> None:
    facts = read_start(fixtures / "facts" / "vllm-0.32.0-start.log")
    assert facts["version"] == "0.32.0"
    assert facts["dtype"] == "float32"
    assert facts["attention_backend"] == "CPU_ATTN"
    assert facts["kv_cache_layout"] == "LBHNC"
    assert facts["max_model_len"] == "1024"
    assert facts["kv_cache_size_tokens"] == "32000"
    assert facts["UCX_RCACHE_MAX_UNRELEASED"] == "1024"
    assert "model_revision" not in facts


def test_only_the_last_start_of_a_log_counts(fixtures: Path, tmp_path: Path) -> None:
    text = (fixtures / "facts" / "vllm-0.32.0-start.log").read_text()
    second = text.replace("LBHNC", "NHD").replace("(v0.32.0)", "(v0.32.1)")
    log = tmp_path / "engine.log"
    log.write_text(text + "noise\n" * 300_000 + second + "noise\n" * 300_000)
    assert read_start(log)["version"] == "0.32.1"
    assert read_start(log)["kv_cache_layout"] == "NHD"
    assert start_facts(text + "non-default args: {}\n") == {}
    assert start_facts("") == {}
    log.write_bytes(b"\xff\x00" * 100)
    assert read_start(log) == {}
