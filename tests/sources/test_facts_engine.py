"""Configuration as engines tell it."""

from __future__ import annotations

import json
from collections.abc import Callable

from pdops.sources.exposition import Parser
from pdops.sources.facts.engine import flatten, info_facts


def test_the_cache_configuration_on_a_real_page_becomes_facts(page: Callable[[str], bytes]) -> None:
    facts = info_facts(Parser().parse(page("vllm-0.32.0-nixl/decode-idle.prom")).layout)
    assert facts["block_size"] == "32"
    assert facts["num_gpu_blocks"] == "80"
    assert facts["cache_dtype"] == "auto"
    assert "engine" not in facts


def test_options_go_by_their_own_name_unless_two_share_it() -> None:
    document = {
        "vllm_config": {
            "model_config": {"dtype": "bf16", "model": "m"},
            "cache_config": {"dtype": "fp8", "block_size": 32},
            "kv_transfer_config": {"kv_connector": "NixlConnector", "extra": [1, "two"]},
            "enable": True,
            "nothing": None,
        }
    }
    assert flatten(document) == {
        "vllm_config.model_config.dtype": "bf16",
        "vllm_config.cache_config.dtype": "fp8",
        "model": "m",
        "block_size": "32",
        "kv_connector": "NixlConnector",
        "extra": '[1, "two"]',
        "enable": "true",
        "nothing": "null",
    }


def test_documents_of_any_shape_and_size_are_bounded() -> None:
    assert flatten(None) == {}
    assert flatten([1, 2]) == {}
    assert len(flatten({str(n): n for n in range(5_000)})) == 1_000
    assert len(flatten({"x": list(range(100_000))})["x"]) <= 1_024
    deep = json.loads('{"a":' * 50 + "1" + "}" * 50)
    assert flatten(deep) == {}
