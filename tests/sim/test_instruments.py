"""What counting does to a page."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pdops.errors import UsageError
from pdops.sim.instruments import EPOCH_S, Instruments

TTFT = "vllm:time_to_first_token_seconds"
WAITING = "vllm:num_requests_waiting"

CALLS = """
from pdops.sim.instruments import Instruments
engine = Instruments("decode-0", "vllm", labels={"model_name": "m", "num_gpu_blocks": "80"})
engine.observe("vllm:time_to_first_token_seconds", 0.1234567, n=3)
engine.inc("vllm:request_success", finished_reason="stop")
engine.observe("pdops_plugin_kv_transfer_seconds", 0.02, src="prefill-0", dst="decode-0")
router = Instruments("router-0", "pdops_router")
for worker in ("decode-1", "decode-0"):
    router.inc("pdops_router_pair_requests", src="prefill-0", dst=worker, outcome="ok")
print(engine.page() + router.page() + Instruments("n", "node").page(), end="")
"""


def numbers(instruments: Instruments) -> dict[str, float]:
    lines = [line for line in instruments.page().splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


def value(instruments: Instruments, name: str, **labels: str) -> float:
    """The one sample of that name and these labels."""
    found = [
        number
        for series, number in numbers(instruments).items()
        if series.partition("{")[0] == name and all(f'{k}="{v}"' in series for k, v in labels.items())
    ]
    (number,) = found
    return number


def test_the_same_calls_make_the_same_bytes_in_another_process() -> None:
    pages = [
        subprocess.run(
            [sys.executable, "-c", CALLS],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": p},
        ).stdout
        for seed, p in (("1", ":".join(sys.path)), ("2", ":".join(sys.path)))
    ]
    assert pages[0] == pages[1]
    assert b"0.3703701" in pages[0]


def test_buckets_are_cumulative_and_an_edge_belongs_to_its_bucket() -> None:
    engine = Instruments("decode-0", "vllm")
    engine.observe(TTFT, 0.02)
    engine.observe(TTFT, 0.5, n=3)
    engine.observe(TTFT, 1e9)
    assert value(engine, f"{TTFT}_bucket", le="0.01") == 0
    assert value(engine, f"{TTFT}_bucket", le="0.02") == 1
    assert value(engine, f"{TTFT}_bucket", le="0.5") == 4
    assert value(engine, f"{TTFT}_bucket", le="+Inf") == value(engine, f"{TTFT}_count") == 5
    assert value(engine, f"{TTFT}_sum") == 0.02 + 1.5 + 1e9


def test_a_sum_of_times_may_fall_as_a_real_one_was_seen_to() -> None:
    engine = Instruments("decode-0", "vllm")
    engine.observe("vllm:request_queue_time_seconds", -0.5)
    assert value(engine, "vllm:request_queue_time_seconds_sum") == -0.5
    assert value(engine, "vllm:request_queue_time_seconds_count") == 1


def test_a_gauge_that_is_not_known_does_not_disturb_histograms() -> None:
    router = Instruments("router-0", "pdops_router")
    router.set("pdops_router_worker_up", float("nan"), worker="decode-0")
    router.observe("pdops_router_ttft_seconds", 0.2)
    assert value(router, "pdops_router_ttft_seconds_count") == 1
    assert 'worker_up{worker="decode-0"} NaN' in router.page()


def test_several_ranks_of_an_engine_have_series_of_their_own() -> None:
    engine = Instruments("decode-0", "vllm")
    engine.set("vllm:kv_cache_usage_perc", 0.2)
    engine.set("vllm:kv_cache_usage_perc", 0.9, engine="1")
    assert value(engine, "vllm:kv_cache_usage_perc", engine="0") == 0.2
    assert value(engine, "vllm:kv_cache_usage_perc", engine="1") == 0.9


def test_labels_of_a_worker_hold_for_every_family_that_has_them() -> None:
    engine = Instruments("decode-0", "vllm", labels={"model_name": "qwen", "num_gpu_blocks": "77"})
    assert 'num_gpu_blocks="77"' in engine.page()
    assert 'model_name="tiny"' not in engine.page()


def test_label_values_are_escaped() -> None:
    store = Instruments("store-0", "mooncake")
    store.set("segment_allocated_bytes", 1, segment='a"b\\c\nd')
    assert 'segment_allocated_bytes{segment="a\\"b\\\\c\\nd"} 1\n' in store.page()


def test_a_restart_begins_at_zero_with_another_start_time() -> None:
    engine = Instruments("decode-0", "vllm")
    assert value(engine, "process_start_time_seconds") == EPOCH_S
    engine.inc("vllm:prompt_tokens", 10)
    engine.observe("pdops_plugin_kv_transfer_seconds", 0.1, src="prefill-0", dst="decode-0")
    engine.reset(EPOCH_S + 60, labels={"num_gpu_blocks": "40"})
    assert value(engine, "vllm:prompt_tokens_total") == 0
    assert value(engine, "process_start_time_seconds") == EPOCH_S + 60
    assert value(engine, "vllm:prompt_tokens_created") == EPOCH_S + 60
    assert "pdops_plugin_kv_transfer_seconds" not in engine.page()
    assert 'num_gpu_blocks="40"' in engine.page()


def test_the_layout_is_the_same_object_until_a_series_comes() -> None:
    one, two = Instruments("decode-0", "vllm"), Instruments("decode-1", "vllm")
    first = one.scrape(1.0)
    one.inc("vllm:prompt_tokens", 10)
    assert one.scrape(2.0).layout is first.layout is two.scrape(1.0).layout
    one.observe("pdops_plugin_kv_transfer_seconds", 0.1, src="prefill-0", dst="decode-0")
    assert one.scrape(3.0).layout is not first.layout
    assert first.values is not None
    assert one.scrape(4.0).values is not first.values


def test_hidden_families_are_counted_but_not_shown() -> None:
    engine = Instruments("decode-0", "vllm")
    engine.hide([TTFT])
    assert TTFT in engine.family_names()
    assert "pdops_plugin_kv_transfer_seconds" not in engine.family_names()
    engine.observe(TTFT, 0.2)
    assert TTFT not in engine.page()
    engine.hide(())
    assert value(engine, f"{TTFT}_count") == 1


def test_a_frozen_page_stays_while_counting_goes_on() -> None:
    engine = Instruments("decode-0", "vllm")
    engine.set(WAITING, 3)
    engine.freeze(True)
    engine.set(WAITING, 9)
    assert value(engine, WAITING) == 3
    engine.freeze(True)
    assert value(engine, WAITING) == 3
    engine.freeze(False)
    assert value(engine, WAITING) == 9


def test_a_worker_that_does_not_answer_gives_the_reason_and_no_values() -> None:
    engine = Instruments("decode-0", "vllm")
    engine.error = "connection refused"
    scrape = engine.scrape(3.0)
    assert (scrape.error, scrape.layout, scrape.values) == ("connection refused", None, None)


def test_a_router_forgets_a_worker_that_left() -> None:
    router = Instruments("router-0", "pdops_router")
    for worker in ("decode-0", "decode-1"):
        router.set("pdops_router_worker_up", 1, worker=worker)
        router.observe("pdops_router_handoff_seconds", 0.1, src="prefill-0", dst=worker)
    router.forget(worker="decode-1")
    router.forget(dst="decode-1")
    assert "decode-1" not in router.page()
    router.set("pdops_router_worker_up", 0, worker="decode-1")
    assert value(router, "pdops_router_worker_up", worker="decode-1") == 0
    assert value(router, "pdops_router_worker_up", worker="decode-0") == 1


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda e: e.inc("vllm:prompt_tokens", -1), "cannot fall"),
        (lambda e: e.inc("vllm:prompt_tokens_total"), "no family"),
        (lambda e: e.set("vllm:prompt_tokens", 1), "not a gauge"),
        (lambda e: e.observe(WAITING, 1), "not a histogram"),
        (lambda e: e.inc(TTFT), "not a counter"),
        (lambda e: e.inc("vllm:prompt_tokens", worker="x"), "has labels"),
        (lambda e: e.observe("pdops_plugin_kv_transfer_seconds", 1, src="prefill-0"), "needs a value for dst"),
    ],
)
def test_what_the_program_does_not_have_is_a_defect_of_the_simulation(call, why) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=why):
        call(Instruments("decode-0", "vllm"))


def test_a_program_without_a_known_page_is_refused() -> None:
    with pytest.raises(UsageError, match="sglang"):
        Instruments("decode-0", "sglang")
