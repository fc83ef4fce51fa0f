"""Read what an engine said of itself while it started: resolved values that no page and no command line shows.

Line forms are those of vLLM 0.32; each was seen in the log of a real engine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pdops.sources.redact import clean

_SPAN_BYTES = 1 << 20
"""An engine says all of this in the first kilobytes after its start, before it serves."""
_SEARCHED_BYTES = 256 << 20
_CONFIG = re.compile(r"Initializing a V1 LLM engine \(v([^)\s]+)\) with config: (.*)")
_PAIR = re.compile(r"(?:^|, )([a-z_]+)=('[^']*'|[^,()\[\]{}]+)(?=,|$)")
_WANTED = {
    "model": "model",
    "tokenizer": "tokenizer",
    "revision": "model_revision",
    "tokenizer_revision": "tokenizer_revision",
    "dtype": "dtype",
    "max_seq_len": "max_model_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "decode_context_parallel_size": "decode_context_parallel_size",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "device_config": "device",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_chunked_prefill": "enable_chunked_prefill",
}
_LINES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Detected attention backend\(s\) \['([A-Z0-9_]+)'"), "attention_backend"),
    (re.compile(r"Detected kv cache layout (\w+)"), "kv_cache_layout"),
    (re.compile(r"NIXL compatibility hash: ([0-9a-f]{64})"), "compat_hash_logged"),
    (re.compile(r"NIXL compatibility check passed \(hash: ([0-9a-f]{64})\)"), "compat_hash_logged"),
    (re.compile(r"Setting UCX_RCACHE_MAX_UNRELEASED to '?(\d+)'?"), "UCX_RCACHE_MAX_UNRELEASED"),
    (re.compile(r"KV cache size: ([0-9,]+) tokens"), "kv_cache_size_tokens"),
    (re.compile(r"Turning off hybrid kv cache manager"), "disable_hybrid_kv_cache_manager"),
)
_BEGIN, _STARTED = "non-default args:", "Initializing a V1 LLM engine"


def start_facts(text: str) -> dict[str, str]:
    """Return the resolved values of the last start in a log's text; nothing when no start is in it."""
    facts: dict[str, str] = {}
    for raw in text.splitlines():
        line = clean(raw)
        if _BEGIN in line or ("version" in facts and _STARTED in line):
            # Lines of an earlier start say nothing about the engine that runs now.
            facts = {}
        config = _CONFIG.search(line)
        if config is not None:
            facts |= {"version": config[1], **_config(config[2])}
        for pattern, key in _LINES:
            found = pattern.search(line)
            if found is not None:
                facts[key] = found[1].replace(",", "") if found.groups() else "true"
    return facts if "version" in facts else {}


def read_start(path: Path) -> dict[str, str]:
    """Return the resolved values of the last start in a log file that grows over restarts.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        at = _last(file.fileno(), size, _BEGIN.encode())
        if at is None:
            at = _last(file.fileno(), size, _STARTED.encode())
        return start_facts(os.pread(file.fileno(), _SPAN_BYTES, at or 0).decode("utf-8", "replace"))


def _last(fd: int, size: int, marker: bytes) -> int | None:
    """Return where the last marker is within the newest part of a log, or None."""
    end, floor = size, max(0, size - _SEARCHED_BYTES)
    while end > floor:
        begin = max(floor, end - _SPAN_BYTES)
        found = os.pread(fd, end - begin + len(marker), begin).rfind(marker)
        if found >= 0:
            return begin + found
        end = begin
    return None


def _config(text: str) -> dict[str, str]:
    facts = {}
    for name, value in _PAIR.findall(text):
        if name in _WANTED and _WANTED[name] not in facts:
            bare = value.strip("'")
            if bare != "None":
                facts[_WANTED[name]] = bare.removeprefix("torch.")
    return facts
