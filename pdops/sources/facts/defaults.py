"""What vLLM does where nobody said otherwise, so that an option left out on one side can be compared with one given.

Documented defaults of vLLM 0.32 (`vllm serve --help=all`, the NIXL connector's usage page, the list of environment
variables). Options whose default depends on model or platform are not here, nor is `kv_load_failure_policy`, of which it
matters whether somebody chose it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from pdops.sources.facts.collected import DEFAULTED
from pdops.sources.facts.compat import uses_nixl

RELEASES = ("0.32.",)
"""Releases these defaults were read for."""
_ENGINE = {
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "tensor_parallel_size": "1",
    "pipeline_parallel_size": "1",
    "data_parallel_size": "1",
    "decode_context_parallel_size": "1",
    "enable_prefix_caching": "true",
    "prefix_caching_hash_algo": "sha256",
    "enable_permute_local_kv": "false",
}
_NIXL = {
    "backends": '["UCX"]',
    "kv_lease_duration": "30",
    "enforce_handshake_compat": "true",
    "num_threads": "4",
}
_ENVIRONMENT = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "localhost", "VLLM_NIXL_SIDE_CHANNEL_PORT": "5600"}


def default_facts(facts: Mapping[str, str], unread: Collection[str]) -> dict[str, str]:
    """Return the defaults of options that a worker was not given, and the list of them.

    Args:
        facts: what is known of the worker; nothing is added unless its command line was read and its release is one of
            `RELEASES`.
        unread: keys that were given in a way that could not be read, which therefore have no default.
    """
    if not facts.get("version", "").startswith(RELEASES) or "kv_connector" not in facts:
        return {}
    known = dict(_ENGINE)
    if uses_nixl(facts):
        known |= _NIXL
        if "environment.*" not in unread:
            known |= _ENVIRONMENT
    added = {
        k: v for k, v in known.items() if k not in facts and k not in unread and "kv_transfer_config" not in unread
    }
    return {**added, DEFAULTED: json.dumps(sorted(added))} if added else {}
