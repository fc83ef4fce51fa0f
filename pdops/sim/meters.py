"""What a vLLM 0.32 engine counts for a request, as its page shows it.

On decode, queue time and time to first token hold the wait for KV; a KV pull counts as an external cache hit.
"""

from __future__ import annotations

from pdops.sim.instruments import Instruments

UPTIME_S = 1e7
"""Seconds between the boot of every host and the beginning of a run, as the node pages say."""


class Tally:
    """Collects observations of which many are equal, for one page; they are there after `flush`.

    Args:
        meter: the page.
    """

    __slots__ = ("_counts", "meter")

    def __init__(self, meter: Instruments) -> None:
        self.meter = meter
        self._counts: dict[tuple[str, float], int] = {}

    def observe(self, name: str, value: float) -> None:
        """Collect an observation."""
        key = (name, value)
        self._counts[key] = self._counts.get(key, 0) + 1

    def flush(self) -> None:
        """Hand over what was collected."""
        for (name, value), count in self._counts.items():
            self.meter.observe(name, value, count)
        self._counts.clear()


_ALONE = tuple(
    f"vllm:request_{name}"
    for name in ("generation_tokens", "max_num_generation_tokens", "params_max_tokens", "params_n")
)
_NOTHING = (
    "vllm:request_num_preemptions",
    "vllm:request_decode_time_seconds",
    "vllm:request_time_per_output_token_seconds",
)


def scheduled(meter: Instruments, prompt: int, cached: int, external: int) -> None:
    """Count the look into the caches for a prompt, in tokens."""
    meter.inc("vllm:prefix_cache_queries", prompt)
    meter.inc("vllm:external_prefix_cache_queries", prompt - cached)
    if cached:
        meter.inc("vllm:prefix_cache_hits", cached)
    if external:
        meter.inc("vllm:external_prefix_cache_hits", external)


def first_token(
    meter: Instruments, ttft_s: float, prompt: int, cached: int, external: int, *, source: str = "p2p"
) -> None:
    """Count the end of a prefill; `external` tokens came from `source`."""
    meter.observe("vllm:time_to_first_token_seconds", ttft_s)
    meter.inc("vllm:prompt_tokens", prompt)
    if cached:
        meter.inc("vllm:prompt_tokens_by_source", cached, source="local_cache_hit")
        meter.inc("vllm:prompt_tokens_cached_by_source", cached, source="device")
    if external:
        meter.inc("vllm:prompt_tokens_by_source", external, source="external_kv_transfer")
        meter.inc("vllm:prompt_tokens_cached_by_source", external, source=source)
    if cached + external:
        meter.inc("vllm:prompt_tokens_cached", cached + external)
    if prompt > cached + external:
        meter.inc("vllm:prompt_tokens_by_source", prompt - cached - external, source="local_compute")


def finished(
    tally: Tally,
    reason: str,
    *,
    prompt: int,
    computed: int,
    tokens: int,
    wanted: int,
    preemptions: int,
    queue_s: float,
    prefill_s: float,
    decode_s: float,
    e2e_s: float,
) -> None:
    """Count the end of a request: its finish reason, tokens and seconds."""
    meter = tally.meter
    meter.inc("vllm:request_success", finished_reason=reason)
    meter.observe("vllm:request_prompt_tokens", prompt)
    meter.observe("vllm:request_generation_tokens", tokens)
    meter.observe("vllm:request_max_num_generation_tokens", tokens)
    tally.observe("vllm:request_params_n", 1.0)
    meter.observe("vllm:request_params_max_tokens", wanted)
    meter.observe("vllm:request_prefill_kv_computed_tokens", computed)
    tally.observe("vllm:request_num_preemptions", preemptions)
    meter.observe("vllm:request_queue_time_seconds", queue_s)
    meter.observe("vllm:request_prefill_time_seconds", prefill_s)
    meter.observe("vllm:request_decode_time_seconds", decode_s)
    meter.observe("vllm:request_inference_time_seconds", prefill_s + decode_s)
    meter.observe("vllm:e2e_request_latency_seconds", e2e_s)
    meter.observe("vllm:request_time_per_output_token_seconds", decode_s / (tokens - 1) if tokens > 1 else 0.0)


def prefilled(tally: Tally, *, prompt: int, computed: int, queue_s: float, prefill_s: float, e2e_s: float) -> None:
    """Count the end of a request of one token, as prefill has it."""
    meter = tally.meter
    meter.inc("vllm:request_success", finished_reason="length")
    meter.inc("vllm:generation_tokens")
    for name in _ALONE:
        tally.observe(name, 1.0)
    for name in _NOTHING:
        tally.observe(name, 0.0)
    meter.observe("vllm:request_prompt_tokens", prompt)
    meter.observe("vllm:request_prefill_kv_computed_tokens", computed)
    meter.observe("vllm:request_queue_time_seconds", queue_s)
    meter.observe("vllm:request_prefill_time_seconds", prefill_s)
    meter.observe("vllm:request_inference_time_seconds", prefill_s)
    meter.observe("vllm:e2e_request_latency_seconds", e2e_s)


def failed_load(tally: Tally, *, now_s: float, waited_s: float, prompt: int, cached: int, wanted: int) -> None:
    """Count a request whose KV could not be pulled.

    vLLM subtracts a start that never was, so its queue time is minus the host's uptime and its inference time plus it;
    and it counts the tokens as cached and a first token, though there is none.
    """
    meter = tally.meter
    scheduled(meter, prompt, cached, prompt - cached)
    meter.inc("vllm:prompt_tokens_cached_by_source", prompt - cached, source="p2p")
    meter.observe("vllm:time_to_first_token_seconds", waited_s)
    up_s = UPTIME_S + now_s
    finished(
        tally,
        "error",
        prompt=prompt,
        computed=prompt - cached,
        tokens=0,
        wanted=wanted,
        preemptions=0,
        queue_s=waited_s - up_s,
        prefill_s=up_s,
        decode_s=0.0,
        e2e_s=waited_s,
    )


def waiting(meter: Instruments, *, running: int, capacity: int, deferred: int, usage: float) -> None:
    """Set the scheduler's gauges."""
    meter.set("vllm:num_requests_running", running)
    meter.set("vllm:num_requests_waiting", capacity + deferred)
    meter.set("vllm:num_requests_waiting_by_reason", capacity, reason="capacity")
    meter.set("vllm:num_requests_waiting_by_reason", deferred, reason="deferred")
    meter.set("vllm:kv_cache_usage_perc", usage)
