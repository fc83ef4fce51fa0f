"""Command lines as engines read them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.sources.facts.arguments import is_engine, of_shell, parse

NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"backends": ["UCX"]}}
MULTI = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_producer",
    "kv_connector_extra_config": {
        "connectors": [
            {
                "kv_connector": "NixlConnector",
                "kv_role": "kv_both",
                "kv_connector_extra_config": {"kv_lease_duration": 5},
            },
            {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"x": "y"}},
        ]
    },
}


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["vllm", "serve", "org/m", "--port=8000"], {"model": "org/m", "port": "8000"}),
        (["vllm", "serve", "--model", "m", "-tp", "2"], {"model": "m", "tensor_parallel_size": "2"}),
        (["python", "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager", "--dtype", "half"],
         {"enforce_eager": "true", "dtype": "half"}),
        (["vllm", "serve", "m", "--no-enable-prefix-caching"], {"model": "m", "enable_prefix_caching": "false"}),
        (["python", "-m", "sglang.launch_server", "--tp-size", "4"], {"tp_size": "4", "tensor_parallel_size": "4"}),
        (["vllm", "serve", "m", "--served-model-name", "a", "b"], {"model": "m", "served_model_name": '["a", "b"]'}),
        (["vllm", "serve", "m", "--seed", "-1"], {"model": "m", "seed": "-1"}),
        (["mooncake_master", "-enable_ha=true", "--client_ttl=10"], {"enable_ha": "true", "client_ttl": "10"}),
        (["python3", "-I", "gate.py", "run", "--router=x", "--", "python3", "-m", "vllm.entrypoints.openai.api_server",
          "--port", "1"], {"port": "1"}),
        ([], {}),
    ],
)  # fmt: skip
def test_options_go_by_their_own_name(argv: list[str], options: dict[str, str]) -> None:
    assert parse(argv).options == options


def test_a_connector_configuration_is_flattened() -> None:
    options = parse(["vllm", "serve", "m", "--kv-transfer-config", json.dumps(NIXL)]).options
    assert (options["kv_connector"], options["kv_role"], options["backends"]) == ("NixlConnector", "kv_both", '["UCX"]')


def test_under_a_multi_connector_the_nixl_child_stands_for_the_whole() -> None:
    options = parse(["vllm", "serve", "m", f"--kv-transfer-config={json.dumps(MULTI)}"]).options
    assert options["kv_connector_children"] == '["NixlConnector", "MooncakeStoreConnector"]'
    assert options["kv_role"] == "kv_producer"
    assert options["kv_lease_duration"] == "5"
    assert options["MooncakeStoreConnector.x"] == "y"
    assert "x" not in options


def test_dotted_options_build_the_same_document() -> None:
    argv = ["vllm", "serve", "m", "--kv-transfer-config.kv_connector", "NixlConnector"]
    argv += ["--kv-transfer-config.kv_connector_extra_config.kv_lease_duration=7"]
    options = parse(argv).options
    assert (options["kv_connector"], options["kv_lease_duration"]) == ("NixlConnector", "7")


def test_what_a_variable_hides_is_not_read() -> None:
    read = parse(["vllm", "serve", "m", "--max-model-len", "$LEN", "--kv-transfer-config", '{"engine_id": "${ID}"}'])
    assert "max_model_len" not in read.options
    assert "$LEN" in read.unread["max_model_len"]
    assert "engine_id" in read.unread
    assert "engine_id" not in read.options


def test_broken_json_is_said() -> None:
    read = parse(["vllm", "serve", "m", "--kv-transfer-config", '{"kv_connector": '])
    assert read.unread["kv_transfer_config"].startswith("not JSON")
    assert "kv_connector" not in read.options


def test_the_engine_is_found_in_a_shell_script() -> None:
    script = '# start\nset -e; export A=1\nexec vllm serve m \\\n  --port 8000 --kv-transfer-config \'{"kv_role":\n'
    script += '"kv_both"}\' && echo done\n'
    words = of_shell(["/bin/bash", "-lc", script])
    assert words[:4] == ["exec", "vllm", "serve", "m"]
    assert parse(words).options["kv_role"] == "kv_both"
    assert parse(words).options["port"] == "8000"


def test_a_script_that_cannot_be_split_stays_as_it_is() -> None:
    words = ["sh", "-c", "vllm serve 'm"]
    assert of_shell(words) == words


def test_engines_are_told_from_other_programs() -> None:
    assert is_engine(["/opt/venv/bin/vllm", "serve", "m"])
    assert is_engine(["python3", "-m", "vllm.entrypoints.openai.api_server"])
    assert not is_engine(["vllm", "bench"])
    assert not is_engine(["serve", "vllm"])


@given(st.lists(st.text(max_size=20), max_size=12))
def test_any_words_can_be_read(words: list[str]) -> None:
    read = parse(of_shell(words))
    assert all(isinstance(value, str) for value in read.options.values())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_any_json_can_be_given_as_a_connector_configuration(data: object) -> None:
    text = json.dumps({"kv_connector_extra_config": data, "kv_connector": data})
    read = parse(["vllm", "serve", "m", "--kv-transfer-config", text])
    assert all(isinstance(value, str) for value in read.options.values())
