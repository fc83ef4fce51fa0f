"""What scrapes show to have happened, and what they do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pdops.model.cluster import Cluster, Role, Worker
from pdops.model.frame import Event, EventKind, Layout, Scrape
from pdops.sources.events import EventDetector
from pdops.sources.exposition import Parser

Reader = Callable[[str], bytes]
CLUSTER = Cluster(name="test", workers=(Worker(id="w", role=Role.DECODE, pool="decode"),))
BASE = {
    "process_start_time_seconds": 100.0,
    "vllm:prompt_tokens_total": 500.0,
    "vllm:generation_tokens_total": 900.0,
    'vllm:request_success_total{finished_reason="stop"}': 10.0,
    'vllm:request_success_total{finished_reason="length"}': 10.0,
    "vllm:request_queue_time_seconds_sum": 3.0,
    "vllm:request_queue_time_seconds_count": 20.0,
    "vllm:time_to_first_token_seconds_sum": 7.0,
    "vllm:time_to_first_token_seconds_count": 20.0,
    "vllm:num_requests_running": 4.0,
    "vllm:num_requests_waiting": 9.0,
    "vllm:kv_cache_usage_perc": 0.9,
}
ANONYMOUS = {name: value for name, value in BASE.items() if name != "process_start_time_seconds"}
_layouts: dict[tuple[str, ...], Layout] = {}


def scrape(values: dict[str, float] | str, at_s: float, **more: object) -> Scrape:
    fields = {"worker": "w", "engine": "vllm", "endpoint": "e", "at_s": at_s, **more}
    if isinstance(values, str):
        return Scrape(error=values, **fields)  # type: ignore[arg-type]
    layout = _layouts.setdefault(tuple(values), Layout(tuple(values)))
    return Scrape(layout=layout, values=np.array(list(values.values())), **fields)  # type: ignore[arg-type]


def feed(*scrapes: Scrape, interval_s: float = 1.0) -> list[Event]:
    detector = EventDetector(CLUSTER, interval_s=interval_s)
    return [event for one in scrapes for event in detector.feed(one)]


def kinds(events: list[Event]) -> list[EventKind]:
    return [event.kind for event in events]


def test_a_moved_start_time_is_a_restart_at_that_time() -> None:
    (event,) = feed(scrape(BASE, 200.0), scrape({**BASE, "process_start_time_seconds": 205.0}, 210.0))
    assert (event.kind, event.worker, event.t_s) == (EventKind.RESTART, "w", 205.0)
    assert event.detail == "process start time changed"


def test_a_start_time_of_another_clock_is_not_taken_as_the_time_of_the_event() -> None:
    (event,) = feed(scrape(BASE, 200.0), scrape({**BASE, "process_start_time_seconds": 999.0}, 210.0))
    assert event.t_s == 210.0


def test_another_rounding_of_the_start_time_is_no_restart() -> None:
    assert feed(scrape(BASE, 200.0), scrape({**BASE, "process_start_time_seconds": 100.9}, 201.0)) == []


def test_the_first_page_is_no_restart() -> None:
    assert feed(scrape(BASE, 200.0)) == []


@pytest.mark.parametrize("base", [BASE, ANONYMOUS])
def test_three_counters_that_fall_at_once_are_a_restart(base: dict[str, float]) -> None:
    fallen = {**base, "vllm:prompt_tokens_total": 0.0, "vllm:generation_tokens_total": 0.0}
    assert feed(scrape(base, 200.0), scrape(fallen, 201.0)) == []
    fallen["vllm:request_queue_time_seconds_count"] = 0.0
    (event,) = feed(scrape(base, 200.0), scrape(fallen, 201.0))
    assert (event.kind, event.t_s) == (EventKind.RESTART, 201.0)
    assert event.detail == "3 counters fell at once, such as vllm:generation_tokens_total"


def test_a_restart_is_told_once() -> None:
    zero = dict.fromkeys(ANONYMOUS, 0.0)
    assert len(feed(scrape(ANONYMOUS, 200.0), scrape(zero, 201.0), scrape(zero, 202.0))) == 1


def test_several_series_of_one_family_are_one_counter() -> None:
    one = {**ANONYMOUS, **dict.fromkeys((s for s in ANONYMOUS if "success" in s), 0.0)}
    assert feed(scrape(ANONYMOUS, 200.0), scrape(one, 201.0)) == []


def test_gauges_and_sums_may_fall() -> None:
    fallen = {n: (-16_559.6 if n.endswith("_sum") else v) for n, v in ANONYMOUS.items()}
    fallen |= {"vllm:num_requests_running": 0.0, "vllm:num_requests_waiting": 0.0, "vllm:kv_cache_usage_perc": 0.0}
    assert feed(scrape(ANONYMOUS, 200.0), scrape(fallen, 201.0)) == []


def test_a_queue_time_that_went_below_zero_on_a_real_engine_is_no_restart(page: Reader) -> None:
    parser = Parser()
    before = parser.parse(page("link-drills/s5-kill-before.d.prom"))
    after = parser.parse(page("link-drills/s5-kill-after.d.prom"))
    sums = [i for i, s in enumerate(after.layout.series) if s.startswith("vllm:request_queue_time_seconds_sum")]
    assert after.values[sums[0]] < 0 < before.values[sums[0]]
    pages = [(before, 200.0), (after, 240.0)]
    scrapes = [
        Scrape(worker="w", engine="vllm", at_s=t, layout=p.layout, values=p.values, endpoint="e") for p, t in pages
    ]
    assert feed(*scrapes) == []


def test_a_real_engine_that_was_killed_and_started_again_is_a_restart(page: Reader) -> None:
    parser = Parser()
    names = ("s3-cut-before.p", "s3-cut-end.p", "s5-newP-before.p", "s5-newP-after.p")
    pages = [parser.parse(page(f"link-drills/{name}.prom")) for name in names]
    scrapes = [
        Scrape(worker="w", engine="vllm", at_s=2e9 + n, layout=p.layout, values=p.values, endpoint="e")
        for n, p in enumerate(pages)
    ]
    events = feed(*scrapes)
    assert [(e.kind, e.t_s) for e in events] == [(EventKind.RESTART, 2e9 + 2)]


def test_a_rank_that_goes_away_takes_its_counts_along_without_a_restart() -> None:
    ranks = {f'{n}{{engine="{r}"}}': v for n, v in ANONYMOUS.items() if "{" not in n for r in "01"}
    alone = {s: v + 1 for s, v in ranks.items() if 'engine="0"' in s}
    assert feed(scrape(ranks, 200.0), scrape(alone, 201.0)) == []


def test_a_reset_shows_through_a_changed_layout() -> None:
    restarted = {n: 0.0 for n in ANONYMOUS if "success" not in n}
    assert kinds(feed(scrape(ANONYMOUS, 200.0), scrape(restarted, 201.0))) == [EventKind.RESTART]


def test_three_of_many_counters_are_not_the_process() -> None:
    page = {f'smg_http_responses_total{{n="{n}"}}': 1.0 for n in range(1)}
    page |= {"smg_worker_cb_outcomes_total": 5.0, "smg_worker_errors_total": 5.0}
    page |= {f"smg_router_{n}_seconds_count": 5.0 for n in ("request_duration", "ttft", "tpot")}
    page["smg_http_rate_limit_total"] = 5.0
    some = {**page, "smg_worker_cb_outcomes_total": 0.0, "smg_worker_errors_total": 0.0}
    some["smg_http_rate_limit_total"] = 0.0
    before, after = scrape(page, 200.0, engine="sglang_router"), scrape(some, 201.0, engine="sglang_router")
    assert feed(before, after) == []


def test_partial_and_full_pages_are_compared_each_with_its_own_kind() -> None:
    part = {n: v for n, v in ANONYMOUS.items() if "num_requests" not in n}
    reset = dict.fromkeys(part, 0.0)
    events = feed(
        scrape(ANONYMOUS, 200.0),
        scrape(part, 201.0, full=False),
        scrape(reset, 202.0, full=False),
        scrape(dict.fromkeys(ANONYMOUS, 0.0), 203.0),
    )
    assert [(e.kind, e.t_s) for e in events] == [(EventKind.RESTART, 202.0)]


def test_another_engine_is_no_restart() -> None:
    other = {"sglang:prompt_tokens_total": 0.0, "process_start_time_seconds": 150.0}
    assert feed(scrape(BASE, 200.0), scrape(other, 201.0, engine="sglang")) == []


@pytest.mark.parametrize("engine", ["node", "dcgm"])
def test_what_stands_beside_an_engine_does_not_restart_it(engine: str) -> None:
    before, after = {"process_start_time_seconds": 100.0}, {"process_start_time_seconds": 150.0}
    pages = [scrape(p, t, engine=engine, endpoint="n") for p, t in ((before, 200.0), (after, 201.0))]
    assert feed(scrape(BASE, 200.0), *pages) == []


def test_silence_of_three_intervals_is_down_once_with_the_reason() -> None:
    detector = EventDetector(CLUSTER, interval_s=2.0)
    assert detector.feed(scrape(BASE, 200.0)) == []
    found = [detector.feed(scrape("connection refused", 202.0 + 2 * n)) for n in range(6)]
    assert [len(events) for events in found] == [0, 0, 0, 1, 0, 0]
    (event,) = found[3]
    assert (event.kind, event.worker, event.t_s, event.detail) == (EventKind.DOWN, "w", 202.0, "connection refused")
    assert detector.feed(scrape(BASE, 214.0)) == []
    again = [detector.feed(scrape("HTTP 500; next try in 2.0 s", 216.0 + 2 * n)) for n in range(4)]
    assert [e.detail for events in again for e in events] == ["HTTP 500"]


@pytest.mark.parametrize("interval_s", [0.2, 1.0])
def test_who_never_answered_is_not_down_before_ten_seconds(interval_s: float) -> None:
    detector = EventDetector(CLUSTER, interval_s=interval_s)
    found = {n: detector.feed(scrape("connection refused", 200.0 + n)) for n in range(12)}
    assert [n for n, events in found.items() if events] == [10]
    assert (found[10][0].kind, found[10][0].t_s) == (EventKind.DOWN, 200.0)


def test_an_answer_in_between_keeps_a_worker_up() -> None:
    scrapes = [scrape("no answer yet", 200.0 + n) if n % 3 else scrape(BASE, 200.0 + n) for n in range(12)]
    assert feed(*scrapes) == []


def test_an_answer_of_no_use_is_not_down() -> None:
    detector = EventDetector(CLUSTER)
    found = [detector.feed(scrape("another engine", 200.0 + n), answered=True) for n in range(8)]
    assert not any(found)


def test_a_node_that_answers_does_not_keep_its_engine_up() -> None:
    detector = EventDetector(CLUSTER)
    found: list[Event] = []
    assert detector.feed(scrape(BASE, 199.0)) == []
    for n in range(5):
        found += detector.feed(scrape({"node_load1": 1.0}, 200.0 + n, engine="node", endpoint="n"))
        found += detector.feed(scrape("connection refused", 200.0 + n))
    assert kinds(found) == [EventKind.DOWN]


def test_an_engine_that_answers_is_up_whatever_its_node_does() -> None:
    detector = EventDetector(CLUSTER)
    found: list[Event] = []
    for n in range(6):
        found += detector.feed(scrape(BASE, 200.0 + n))
        found += detector.feed(scrape("connection refused", 200.0 + n, engine="node", endpoint="n"))
    assert found == []


def test_a_worker_that_is_only_a_node_goes_down_with_it() -> None:
    scrapes = [scrape("connection refused", 200.0 + n, engine="node", endpoint="n") for n in range(12)]
    assert kinds(feed(*scrapes)) == [EventKind.DOWN]
