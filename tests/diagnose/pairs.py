"""Facts of a sound pair, and what a preflight check says when some of them are changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdops.diagnose.finding import Finding
from pdops.model.frame import Probe
from pdops.model.view import View
from tests.diagnose.build import ask, view, worker

Facts = Mapping[str, str | None]

ENGINE: dict[str, str] = {
    "model": "org/model",
    "model_revision": "0123abc",
    "architectures": '["Qwen3ForCausalLM"]',
    "num_hidden_layers": "4",
    "num_key_value_heads": "4",
    "head_dim": "64",
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "block_size": "32",
    "kv_cache_layout": "HND",
    "attention_backend": "FLASH_ATTN",
    "tensor_parallel_size": "1",
    "max_model_len": "1024",
    "kv_cache_size_tokens": "8192",
    "version": "0.32.0",
    "connector_version": "14",
    "nixl_version": "1.3.2",
    "compat_hash": "aa11",
    "kv_connector": "NixlConnector",
    "kv_buffer_device": "cpu",
    "kv_load_failure_policy": "fail",
    "PYTHONHASHSEED": "0",
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "120",
}
ROUTER: dict[str, str] = {
    "deadline_s": "60",
    "prefill_timeout_s": "20",
    "first_token_timeout_s": "30",
    "keepalive_s": "60",
    "max_model_len": "1024",
}
ROLE = {"prefill": "kv_producer", "decode": "kv_consumer"}


def changed(facts: Mapping[str, str], *changes: Facts) -> dict[str, str]:
    """Return facts with others put over them; None takes one away."""
    merged: dict[str, str | None] = dict(facts)
    for change in changes:
        merged.update(change)
    return {key: text for key, text in merged.items() if text is not None}


def pair_view(
    left: Facts | None = None,
    right: Facts | None = None,
    *,
    router: Facts | None = None,
    workers: Iterable[str] = ("prefill-0", "decode-0", "router-0"),
    engine: str = "vllm",
    probes: Iterable[Probe] = (),
) -> View:
    """Return a View whose prefill workers have `left` over sound facts, decode workers `right`, routers `router`."""
    facts, made = {}, []
    for name in workers:
        kind = name.partition("-")[0]
        made.append(worker(name, engine="pdops_router" if kind == "router" else engine))
        if kind == "router":
            facts[name] = changed(ROUTER, router or {})
        elif kind in ROLE:
            facts[name] = changed(ENGINE, {"kv_role": ROLE[kind]}, (left if kind == "prefill" else right) or {})
    return view(workers=made, facts=facts, probes=probes)


def judge(check_id: str, left: Facts | None = None, right: Facts | None = None, **more: object) -> tuple[Finding, ...]:
    """Return what one preflight check says of such a pair."""
    return ask(check_id, pair_view(left, right, **more))  # type: ignore[arg-type]
