"""Tell which engine a page of metrics belongs to, by the prefixes of its families."""

from __future__ import annotations

from collections.abc import Iterable

UNKNOWN = "unknown"
"""Engine of a page that names none pdops knows."""

SIDE_ENGINES = frozenset({"node", "dcgm", "nixl"})
"""Pages that stand beside an engine: their answer does not say that the engine serves."""

_PREFIXES: tuple[tuple[str, tuple[str, ...]], ...] = (
    # A router's page may repeat engine names, and vllm_router_ looks like an escaped vllm: name, so routers come first.
    ("pdops_router", ("pdops_router_",)),
    ("vllm_router", ("vllm_router_",)),
    ("sglang_router", ("smg_", "sgl_router_")),
    ("llmd_epp", ("inference_objective_", "inference_pool_", "inference_extension_", "llm_d_inference_scheduler_")),
    # A Dynamo worker passes the families of its engine through; those say more than its own.
    ("vllm", ("vllm:", "vllm_")),
    ("sglang", ("sglang:", "sglang_")),
    ("trtllm", ("trtllm_",)),
    ("dynamo", ("dynamo_", "kvbm_")),
    ("lmcache", ("lmcache:", "lmcache_")),
    ("mooncake", ("master_", "mooncake_", "tent_")),
    ("nixl", ("agent_xfer_", "agent_tx_", "agent_rx_", "agent_memory_", "agent_errors_")),
    ("dcgm", ("DCGM_",)),
    ("node", ("node_",)),
    ("triton", ("nv_inference_", "nv_gpu_")),
)
_BY_ENGINE = dict(_PREFIXES)


def detect(names: Iterable[str]) -> str | None:
    """Return the catalog key of the engine whose families are among these sample names, or None.

    Prefixes are those of the pages named in the catalog.
    """
    known = tuple(names)
    for engine, prefixes in _PREFIXES:
        if any(name.startswith(prefixes) for name in known):
            return engine
    return None


def has_families(engine: str, names: Iterable[str]) -> bool | None:
    """Return whether any name carries a prefix of that engine; None when its prefixes are not known."""
    prefixes = _BY_ENGINE.get(engine)
    return None if prefixes is None else any(name.startswith(prefixes) for name in names)
