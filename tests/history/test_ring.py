"""The ring: presence, gaps, layouts that change, pages that come late, and a View that does not move."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pdops.diagnose.engine import diagnose
from pdops.history.readings import Readings
from pdops.history.ring import BASE_END_S, BASE_MIN_S, SPAN_S, WINDOW_S, Ring, base_window
from pdops.model.frame import NOT_ASKED, Event, EventKind, Frame, LogLine, Probe, ProbeKind
from pdops.model.series import HistogramSeries, Series, Window
from pdops.model.view import PAGE, TIMESTAMPS, Note, Presence, View
from tests.history.build import CANONICAL, CLUSTER, buckets, frame, page, scrape, silent

EDGES = {0.1: 5.0, 1.0: 9.0, math.inf: 10.0}


def series(view: View, scope: str, signal: str) -> list[tuple[float, float]]:
    (one,) = view.series[scope, signal]
    assert isinstance(one, Series)
    return list(zip(one.t.tolist(), one.v.tolist(), strict=True))


# presence


def test_a_worker_nobody_heard_of_was_never_there() -> None:
    health = Ring(CLUSTER).view(10.0).health
    assert {h.presence for h in health.values()} == {Presence.NEVER}
    assert all(h.why for h in health.values())


@pytest.mark.parametrize(("age_s", "presence"), [(3.0, Presence.UP), (3.1, Presence.STALE)])
def test_three_intervals_without_a_word_are_stale(age_s: float, presence: Presence) -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100.0, queue_depth=1))
    health = ring.view(100.0 + age_s).health["decode-0"]
    assert health.presence is presence
    assert health.age_s == pytest.approx(age_s)
    assert health.since_s == (100.0 if presence is Presence.STALE else None)


def test_an_error_makes_it_down_and_an_answer_brings_it_back() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100.0, queue_depth=1))
    for t in range(101, 106):
        ring.add(frame(t, silent("decode-0", t)))
    health = ring.view().health["decode-0"]
    assert (health.presence, health.since_s) == (Presence.DOWN, 101)
    assert health.why is not None
    assert "connection refused" in health.why
    ring.add(page("decode-0", 106.0, queue_depth=1))
    assert ring.view().health["decode-0"].presence is Presence.UP


def test_a_worker_that_never_answered_says_why() -> None:
    ring = Ring(CLUSTER)
    ring.add(frame(100.0, silent("decode-0", 100.0, "no route")))
    health = ring.view().health["decode-0"]
    assert (health.presence, health.since_s) == (Presence.NEVER, 100.0)
    assert health.why is not None
    assert "no route" in health.why


def test_a_longer_interval_is_patient() -> None:
    ring = Ring(CLUSTER, interval_s=15.0)
    ring.add(page("decode-0", 100.0, queue_depth=1))
    assert ring.view(145.0).health["decode-0"].presence is Presence.UP
    assert ring.view(145.1).health["decode-0"].presence is Presence.STALE


# samples


def test_a_gap_is_a_gap() -> None:
    ring = Ring(CLUSTER)
    for t in (100, 101, 130, 131):
        ring.add(page("decode-0", t, queue_depth=t))
    assert series(ring.view(), "decode-0", "queue_depth") == [(t, t) for t in (100, 101, 130, 131)]


def test_a_page_that_could_not_be_read_gives_no_sample() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100, queue_depth=4))
    ring.add(frame(101, silent("decode-0", 101)))
    assert series(ring.view(), "decode-0", "queue_depth") == [(100, 4)]


def test_not_a_number_is_no_sample() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100, queue_depth=math.nan, running_requests=1))
    ring.add(page("decode-0", 101, queue_depth=2, running_requests=1))
    assert series(ring.view(), "decode-0", "queue_depth") == [(101, 2)]


def test_a_page_that_changes_keeps_what_it_had() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100, queue_depth=1, running_requests=5))
    ring.add(page("decode-0", 101, running_requests=6, kv_cache_usage=0.5))
    ring.add(page("decode-0", 102, queue_depth=3, running_requests=7))
    view = ring.view()
    assert series(view, "decode-0", "queue_depth") == [(100, 1), (102, 3)]
    assert series(view, "decode-0", "running_requests") == [(100, 5), (101, 6), (102, 7)]
    assert series(view, "decode-0", "kv_cache_usage") == [(101, 0.5)]


def test_many_layouts_do_not_pile_up_and_lose_nothing() -> None:
    ring = Ring(CLUSTER)
    for t in range(40):
        ring.add(frame(t, scrape("decode-0", t, {"queue_depth": t, f'queue_depth{{scope="x{t}"}}': 1})))
    assert [v for _, v in series(ring.view(), "decode-0", "queue_depth")] == list(range(40))


def test_an_older_page_is_refused_and_noted() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100, queue_depth=1))
    ring.add(page("decode-0", 99, queue_depth=9))
    ring.add(page("decode-0", 100, queue_depth=9))
    ring.add(page("decode-0", 101, queue_depth=2))
    view = ring.view()
    assert series(view, "decode-0", "queue_depth") == [(100, 1), (101, 2)]
    assert [(n.worker, n.code) for n in view.notes] == [("decode-0", "clock")]
    assert view.at_s == 101


def test_a_clock_that_is_set_back_takes_what_was_seen_along_and_time_goes_on_from_there() -> None:
    ring = Ring(CLUSTER)
    for t in range(1000, 1060):
        ring.add(page("decode-0", t, queue_depth=t, generated_tokens=10 * (t - 1000)))
    restart = Event(t_s=1050.0, kind=EventKind.RESTART, worker="decode-0")
    ring.add(replace(frame(1060.0, silent("decode-1", 1055.0)), events=(restart,)))
    before = ring.view()
    for t in range(400, 405):
        ring.add(page("decode-0", t, queue_depth=t, generated_tokens=600 + 10 * (t - 400)))
    view = ring.view()
    assert view.at_s == 404
    times = [t for t, _ in series(view, "decode-0", "queue_depth")]
    assert times == sorted(times)
    assert len(times) == 65
    assert times[-7:] == [397, 398, 400, 401, 402, 403, 404]
    assert view.health["decode-0"].presence is Presence.UP
    assert view.health["decode-1"].since_s == 1055 - 661
    assert [e.t_s for e in view.events] == [1050 - 661]
    assert view.start_s == 1000 - 661
    assert Readings(view).rate("decode-0", "generated_tokens").value == pytest.approx(10.0, rel=0.05)
    (note,) = view.notes
    assert (note.worker, note.code) == ("pdops", "clock")
    assert "set back by 661 s" in note.why
    assert before.at_s == 1060
    assert series(before, "decode-0", "queue_depth")[-1] == (1059, 1059)


def test_workers_do_not_share_their_clock() -> None:
    ring = Ring(CLUSTER)
    ring.add(frame(100, scrape("decode-0", 100, {"queue_depth": 1}), scrape("decode-1", 90, {"queue_depth": 2})))
    assert series(ring.view(), "decode-1", "queue_depth") == [(90, 2)]


def test_another_engine_at_the_same_place_starts_anew() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100, queue_depth=1))
    ring.add(frame(101, scrape("decode-0", 101, {'vllm:num_requests_waiting{engine="0"}': 7}, engine="vllm")))
    assert series(ring.view(), "decode-0", "queue_depth") == [(101, 7)]


def test_pages_of_one_worker_are_kept_apart() -> None:
    ring = Ring(CLUSTER)
    ring.add(
        frame(
            100,
            scrape("decode-0", 100, {"queue_depth": 1}, endpoint="a"),
            scrape("decode-0", 100, {"gpu_util": 0.5}, endpoint="b"),
        )
    )
    view = ring.view()
    assert series(view, "decode-0", "queue_depth") == [(100, 1)]
    assert series(view, "decode-0", "gpu_util") == [(100, 0.5)]


def test_ranks_are_shown_beside_the_worker() -> None:
    ring = Ring(CLUSTER)
    ranks = {f'vllm:kv_cache_usage_perc{{engine="{i}"}}': u for i, u in enumerate((0.2, 0.9))}
    ring.add(frame(100, scrape("decode-0", 100, ranks, engine="vllm")))
    view = ring.view()
    assert series(view, "decode-0", "kv_cache_usage") == [(100, 0.9)]
    assert series(view, "decode-0", "kv_cache_usage[rank=0]") == [(100, 0.2)]
    assert series(view, "decode-0", "kv_cache_usage[rank=1]") == [(100, 0.9)]


def test_histograms_are_put_together_with_their_edges_in_order() -> None:
    ring = Ring(CLUSTER)
    ring.add(frame(100, scrape("decode-0", 100, buckets("ttft_seconds", dict(reversed(EDGES.items())), 4.0))))
    (one,) = ring.view().series["decode-0", "ttft_seconds"]
    assert isinstance(one, HistogramSeries)
    assert one.bounds.tolist() == [0.1, 1.0, math.inf]
    assert one.counts.tolist() == [[5.0, 9.0, 10.0]]
    assert (one.sum.tolist(), one.total.tolist()) == ([4.0], [10.0])


def test_buckets_come_with_full_pages_only() -> None:
    ring = Ring(CLUSTER)
    full = buckets("ttft_seconds", EDGES, 4.0)
    part = {k: v for k, v in full.items() if "_bucket" not in k}
    for t in range(100, 105):
        ring.add(frame(t, scrape("decode-0", t, full if t in (100, 104) else part)))
    (one,) = ring.view().series["decode-0", "ttft_seconds"]
    assert isinstance(one, HistogramSeries)
    assert (len(one.sum_t), one.t.tolist()) == (5, [100, 104])


# the View


def test_a_view_stays_what_it_was() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100, queue_depth=1))
    lazy, asked = ring.view(), ring.view()
    assert series(asked, "decode-0", "queue_depth") == [(100, 1)]
    for t in range(101, 1500):
        ring.add(page("decode-0", t, queue_depth=t, kv_cache_usage=0.1))
    for view in (lazy, asked):
        assert series(view, "decode-0", "queue_depth") == [(100, 1)]
        assert ("decode-0", "kv_cache_usage") not in view.series
        assert view.at_s == 100


def test_memory_is_bounded_by_the_span() -> None:
    ring = Ring(CLUSTER, interval_s=1.0, span_s=100.0)
    event = Event(t_s=0, kind=EventKind.RESTART, worker="decode-0")
    for t in range(5_000):
        ring.add(Frame(at_s=t, scrapes=page("decode-0", t, queue_depth=t).scrapes, events=(event,) * 3))
    kept = series(ring.view(), "decode-0", "queue_depth")
    assert list(kept[-1]) == [4999, 4999]
    (track,) = ring._tracks.values()
    rows = {"shown": len(kept), "scalars": len(track.scalars), "buckets": len(track.buckets)}
    assert 100 <= rows["shown"] <= rows["scalars"] <= 130
    assert rows["buckets"] == 0
    assert len(ring._events) <= 2_000


def test_what_is_older_than_the_span_is_not_shown() -> None:
    ring = Ring(CLUSTER)
    old, new = 1_000.0 - SPAN_S - 1, 1_000.0 - SPAN_S
    ring.add(
        Frame(
            at_s=1_000.0,
            events=tuple(Event(t_s=t, kind=EventKind.RESTART, worker="decode-0") for t in (old, new)),
            logs=tuple(LogLine(t_s=t, worker="decode-0", line="x") for t in (old, new)),
            probes=tuple(Probe(t_s=t, kind=ProbeKind.CANARY, ok=True) for t in (old, new)),
        )
    )
    view = ring.view()
    assert [len(kept) for kept in (view.events, view.logs, view.probes)] == [1, 1, 1]


def test_a_worker_that_logs_without_end_pushes_out_no_line_of_another() -> None:
    ring = Ring(CLUSTER)
    ring.add(Frame(at_s=1_000.0, logs=(LogLine(t_s=999.0, worker="prefill-0", line="first"),)))
    flood = tuple(LogLine(t_s=1_000.0, worker="decode-0", line=str(n)) for n in range(10_000))
    ring.add(Frame(at_s=1_001.0, logs=flood))
    logs = ring.view().logs
    assert logs[0].line == "first"
    assert logs[-1].line == "9999"
    assert len(logs) < 2_500


def test_a_note_of_a_source_is_taken_back_when_it_no_longer_says_it() -> None:
    ring = Ring(CLUSTER)
    ring.take_notes([Note(worker="decode-0", code="logs/0", why="gone")])
    assert [n.why for n in ring.view().notes] == ["gone"]
    ring.take_notes([])
    assert ring.view().notes == ()


def test_facts_are_kept_and_the_newest_wins() -> None:
    ring = Ring(CLUSTER)
    ring.add(Frame(at_s=1, facts={"decode-0": {"block_size": "16", "dtype": "auto"}}))
    before = ring.view()
    ring.add(Frame(at_s=2, facts={"decode-0": {"block_size": "32"}}))
    assert before.facts == {"decode-0": {"block_size": "16", "dtype": "auto"}}
    assert ring.view().facts == {"decode-0": {"block_size": "32", "dtype": "auto"}}


def test_windows() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 1_000, queue_depth=1))
    view = ring.view(2_500.0)
    assert view.now == Window(2_500.0 - WINDOW_S, 2_500.0)
    assert view.start_s == 2_500.0 - SPAN_S
    assert view.base == Window(view.start_s, 2_500.0 - BASE_END_S)


@pytest.mark.parametrize(
    ("age_s", "base"),
    [
        (BASE_END_S + BASE_MIN_S, Window(0.0, BASE_MIN_S)),
        (BASE_END_S + BASE_MIN_S - 1, Window(0.0, BASE_END_S + BASE_MIN_S - 1 - 1.5 * WINDOW_S)),
        (1.5 * WINDOW_S + BASE_MIN_S, Window(0.0, BASE_MIN_S)),
        (1.5 * WINDOW_S + BASE_MIN_S - 1, None),
    ],
)
def test_the_base_is_old_enough_or_there_is_none(age_s: float, base: Window | None) -> None:
    assert base_window(0.0, age_s, WINDOW_S) == base


def test_an_empty_ring_has_a_view() -> None:
    view = Ring(CLUSTER).view()
    assert (len(view.series), view.base, view.pairs()) == (0, None, ())
    assert not Readings(view).level("decode-0", "queue_depth").known


@pytest.mark.parametrize("interval_s", [1.0, 15.0])
def test_quantiles_of_the_base_are_known_where_every_page_is_full(interval_s: float) -> None:
    ring = Ring(CLUSTER, interval_s=interval_s)
    for i in range(int(1_200 / interval_s)):
        full = buckets("ttft_seconds", {edge: n * i for edge, n in EDGES.items()}, 4.0 * i)
        ring.add(frame(i * interval_s, scrape("decode-0", i * interval_s, full)))
    view = ring.view()
    assert view.base is not None
    asked = Readings(view)
    assert asked.mean("decode-0", "ttft_seconds", view.base).known
    assert asked.quantile("decode-0", "ttft_seconds", 0.95).known
    assert asked.quantile("decode-0", "ttft_seconds", 0.95, view.base).known


def test_a_target_that_was_not_asked_is_stale_and_not_down() -> None:
    ring = Ring(CLUSTER)
    ring.add(page("decode-0", 100.0, queue_depth=1))
    for t in range(101, 106):
        ring.add(frame(t, silent("decode-0", t, f"{NOT_ASKED}, pdops is behind")))
    assert ring.view().health["decode-0"].presence is Presence.STALE


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e308, -5.0])
def test_a_number_no_engine_can_mean_is_unknown(value: float) -> None:
    ring = Ring(CLUSTER)
    for t in range(5):
        ring.add(page("decode-0", 100.0 + t, queue_depth=value, running_requests=1.0))
    asked = Readings(ring.view())
    assert not asked.level("decode-0", "queue_depth").known
    assert asked.level("decode-0", "running_requests").value == 1.0


def test_a_dead_page_beside_a_good_one_is_not_hidden() -> None:
    ring = Ring(CLUSTER)
    for t in range(10):
        good = page("decode-0", 100.0 + t, queue_depth=1.0)
        bad = replace(silent("decode-0", 100.0 + t, "HTTP 500"), endpoint="second")
        ring.add(replace(good, scrapes=(*good.scrapes, bad)))
    health = ring.view().health["decode-0"]
    assert health.presence is Presence.STALE
    assert health.why is not None
    assert "HTTP 500" in health.why


# what a page gives no data of


def test_lines_that_cannot_be_read_are_noted_until_the_page_is_whole_again() -> None:
    ring = Ring(CLUSTER)
    other = scrape("decode-0", 100.0, {"queue_depth": 1}, endpoint="http://d0/gpu?token=hunter2")
    ring.add(
        frame(100.0, replace(scrape("decode-0", 100.0, {"queue_depth": 1}), malformed=3), replace(other, malformed=1))
    )
    notes = ring.view().notes
    assert [(n.worker, n.code) for n in notes] == [("decode-0", PAGE)] * 2
    assert "3 lines" in notes[0].why
    assert "http://d0/gpu?token=[redacted]" in notes[1].why
    assert {m.signal for m in diagnose(ring.view()).missing if m.why == notes[0].why} == {"metrics page"}
    ring.add(page("decode-0", 101.0, queue_depth=1))
    assert [n.why for n in ring.view().notes] == [notes[1].why]


@pytest.mark.parametrize(("stamp_s", "noted"), [(None, False), (940.0, False), (1001.0, False), (939.9, True)])
def test_samples_older_than_the_judged_window_are_noted(stamp_s: float | None, noted: bool) -> None:
    ring = Ring(CLUSTER)
    ring.add(frame(1000.0, replace(scrape("decode-0", 1000.0, {"queue_depth": 1}), stamp_s=stamp_s)))
    assert [n.code for n in ring.view().notes] == [TIMESTAMPS] * noted
    found = [m for m in diagnose(ring.view()).missing if m.signal == "fresh samples"]
    assert [str(m.scope) for m in found] == ["decode-0"] * noted


def test_an_engine_that_does_not_answer_is_down_though_its_host_does() -> None:
    known = replace(CLUSTER, workers=tuple(replace(w, engine=CANONICAL) for w in CLUSTER.workers))
    ring = Ring(known)
    ring.add(page("decode-0", 100.0, queue_depth=1))
    host = replace(scrape("decode-0", 100.0, {"gpu_util": 0.5}), engine="node", endpoint="http://d0:9100")
    for t in range(101, 106):
        ring.add(frame(t, silent("decode-0", t), replace(host, at_s=float(t))))
    assert ring.view().health["decode-0"].presence is Presence.DOWN


def test_a_host_that_does_not_answer_beside_its_engine_is_a_part_that_is_missing() -> None:
    known = replace(CLUSTER, workers=tuple(replace(w, engine=CANONICAL) for w in CLUSTER.workers))
    ring = Ring(known)
    host = replace(scrape("decode-0", 100.0, {"gpu_util": 0.5}), engine="node", endpoint="http://d0:9100")
    ring.add(frame(100.0, host))
    for t in range(101, 106):
        gone = replace(silent("decode-0", t), engine="node", endpoint="http://d0:9100")
        ring.add(frame(t, gone, scrape("decode-0", t, {"queue_depth": 1.0})))
    assert ring.view().health["decode-0"].presence is Presence.STALE
