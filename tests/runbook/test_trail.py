"""Runs as traces and as counts: the same from any process, however often it is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from pdops.grafana.families import families
from pdops.runbook import trail
from pdops.runbook.gates import Outcome
from pdops.runbook.metrics import RunbookCollector
from pdops.runbook.seen import Seen
from pdops.runbook.sinks import Traced
from pdops.runbook.tally import MOST_NAMES, OTHER, Tally
from pdops.telemetry.past import PastWriter, past_writer, span_id, trace_id
from pdops_exporters.page import write
from tests.reference.otlp_double import collecting
from tests.runbook.engine_kit import CORDON, RESTART, SCALE_OUT, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.journal.close()


class StoppedError(Exception):
    """Ends a run where a process would have been killed."""


def _traced(bench: Bench, exporter: object) -> Seen:
    return Seen(bench.journal.path, [Traced(PastWriter("pdops-runbook", exporter), "http://127.0.0.1")], bench.clock)


def _run(bench: Bench, steps=RESTART, runbook: str = "restart-worker", reached=lambda _: None) -> str:
    x = bench.executor(reached=reached)
    run = x.open(bench.plan(steps, runbook, cooldown_s=0.0)).id
    x.drive(run)
    return run


def test_a_run_is_one_trace_with_a_span_for_each_step(bench: Bench) -> None:
    exporter = InMemorySpanExporter()
    seen = _traced(bench, exporter)
    run = _run(bench)
    assert seen.pump() == 4
    spans = {s.name: s for s in exporter.get_finished_spans()}
    assert set(spans) == {"cordon", "restart", "uncordon", "runbook restart-worker"}
    root = spans["runbook restart-worker"]
    assert (root.context.trace_id, root.context.span_id, root.parent) == (trace_id(run), span_id(run, trail.ROOT), None)
    assert {s.parent.span_id for s in spans.values() if s is not root} == {root.context.span_id}
    assert {s.context.trace_id for s in spans.values()} == {trace_id(run)}
    assert spans["restart"].attributes["pdops.action"] == "worker.restart"
    assert (spans["restart"].attributes["pdops.before"], spans["restart"].attributes["pdops.target"]) == ("1", "2")
    assert root.attributes["pdops.runbook.outcome"] == "done"
    assert all(root.start_time <= s.start_time <= s.end_time <= root.end_time for s in spans.values())


def test_a_run_that_was_killed_and_resumed_continues_its_trace(bench: Bench) -> None:
    first, second = InMemorySpanExporter(), InMemorySpanExporter()
    seen = _traced(bench, first)

    def kill(point: str) -> None:
        if point == "after-effect" and [e[1] for e in bench.backend.effects[-1:]] == ["worker.restart"]:
            raise StoppedError

    x = bench.executor(reached=kill)
    run = x.open(bench.plan(RESTART, "restart-worker")).id
    with pytest.raises(StoppedError):
        x.drive(run)
    seen.pump()
    bench.clock.advance(600.0)
    bench.again()
    bench.executor().drive(run)
    _traced(bench, second).pump()
    assert [s.name for s in first.get_finished_spans()] == ["cordon"]
    assert [s.name for s in second.get_finished_spans()] == ["restart", "uncordon", "runbook restart-worker"]
    assert len({s.context.trace_id for s in (*first.get_finished_spans(), *second.get_finished_spans())}) == 1


def test_a_span_that_is_sent_twice_is_the_same_span(bench: Bench) -> None:
    run = _run(bench)
    events = list(bench.journal.events(run))
    wanted = frozenset(e.seq for e in events if trail.closing(e))
    assert trail.spans(events, wanted) == trail.spans(iter(events), wanted)
    assert len({(s.trace, s.key) for s in trail.spans(events, wanted)}) == 4


def test_what_failed_and_what_was_taken_back_is_in_the_trace(bench: Bench) -> None:
    exporter = InMemorySpanExporter()
    seen = _traced(bench, exporter)
    bench.judge.answers["verify canary"] = (Outcome.FAIL, "first token differs")
    _run(bench, SCALE_OUT, "scale-out-prefill")
    seen.pump()
    spans = {s.name: s for s in exporter.get_finished_spans()}
    assert set(spans) == {"start", "canary", "take back start", "runbook scale-out-prefill"}
    assert spans["canary"].status.description == "canary: first token differs"
    assert spans["runbook scale-out-prefill"].attributes["pdops.runbook.outcome"] == "rolled-back"
    assert not spans["runbook scale-out-prefill"].status.is_ok
    assert spans["take back start"].attributes["pdops.action"] == "pool.scale-in"


def test_a_receiver_that_takes_nothing_gets_it_later(bench: Bench) -> None:
    class Refusing(InMemorySpanExporter):
        result = SpanExportResult.FAILURE

        def export(self, spans):
            return super().export(spans) if self.result is SpanExportResult.SUCCESS else self.result

    exporter = Refusing()
    seen = _traced(bench, exporter)
    _run(bench, CORDON)
    assert (seen.pump(), "did not take them" in seen.standings[0].why) == (0, True)
    exporter.result = SpanExportResult.SUCCESS
    assert seen.pump(last=True) == 2


def test_spans_arrive_over_otlp(bench: Bench, tmp_path: Path) -> None:
    with collecting(tmp_path / "spans.jsonl") as double:
        seen = Seen(bench.journal.path, [Traced(past_writer(double.url, "pdops-runbook"), double.url)], bench.clock)
        _run(bench, CORDON)
        assert seen.pump() == 2
    assert "pdops.runbook.outcome" in (tmp_path / "spans.jsonl").read_text()


def _page(collector: RunbookCollector) -> dict[str, dict[tuple[str, ...], float]]:
    registry = CollectorRegistry()
    registry.register(collector)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(write(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_runs_and_steps_are_counted_by_outcome(bench: Bench) -> None:
    _run(bench)
    bench.judge.answers["verify canary"] = (Outcome.FAIL, "first token differs")
    _run(bench, SCALE_OUT, "scale-out-prefill")
    bench.backend.move("worker/decode-0/cordoned", False)
    bench.executor().open(bench.plan(CORDON, "waits", risk="disruptive"))
    page = _page(RunbookCollector(bench.journal.path, bench.clock))
    assert page["pdops_runbook_journal_up"] == {(): 1.0}
    assert page["pdops_runbook_runs_total"] == {
        ("c", "done", "restart-worker"): 1.0,
        ("c", "rolled-back", "scale-out-prefill"): 1.0,
    }
    steps = page["pdops_runbook_steps_total"]
    assert steps["worker.restart", "c", "verified", "restart-worker"] == 1.0
    assert steps["pair.canary", "c", "failed", "scale-out-prefill"] == 1.0
    assert steps["pool.scale-in", "c", "taken-back", "scale-out-prefill"] == 1.0
    assert page["pdops_runbook_run_seconds_count"]["c", "restart-worker"] == 1.0
    assert page["pdops_runbook_current_runs"]["c", "planned"] == 1.0
    assert page["pdops_runbook_current_runs"]["c", "held"] == 0.0
    assert page["pdops_runbook_frozen"] == {("*",): 0.0, ("c",): 0.0}


def test_a_freeze_by_file_or_journal_is_seen_and_a_scrape_reads_only_what_is_new(bench: Bench) -> None:
    collector = RunbookCollector(bench.journal.path, bench.clock)
    _run(bench)
    assert _page(collector)["pdops_runbook_frozen"]["c",] == 0.0
    bench.executor().switch.on("eve", "x", "c")
    assert _page(collector)["pdops_runbook_frozen"] == {("*",): 0.0, ("c",): 1.0}
    (bench.folder / "FREEZE").touch()
    assert _page(collector)["pdops_runbook_frozen"]["*",] == 1.0
    assert _page(collector)["pdops_runbook_runs_total"]["c", "done", "restart-worker"] == 1.0


def test_a_freeze_that_nobody_can_tell_counts_as_one(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is changed then, and the other families are still told."""

    def fails(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    _run(bench)
    monkeypatch.setattr("pdops.runbook.killswitch.Path.lstat", fails)
    page = _page(RunbookCollector(bench.journal.path, bench.clock))
    assert page["pdops_runbook_frozen"] == {("*",): 1.0, ("c",): 1.0}
    assert page["pdops_runbook_runs_total"]["c", "done", "restart-worker"] == 1.0


def test_a_journal_that_is_not_there_is_unknown_not_zero(tmp_path: Path, bench: Bench) -> None:
    page = _page(RunbookCollector(tmp_path / "nowhere.db", bench.clock))
    assert page == {"pdops_runbook_journal_up": {(): 0.0}}
    assert not (tmp_path / "nowhere.db").exists()


def test_scrapes_of_several_threads_count_each_event_once(bench: Bench) -> None:
    _run(bench)
    collector, pages = RunbookCollector(bench.journal.path, bench.clock), []
    threads = [threading.Thread(target=lambda: pages.append(_page(collector))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [p["pdops_runbook_runs_total"]["c", "done", "restart-worker"] for p in pages] == [1.0] * 6


def test_families_are_those_that_alerts_may_ask_for(bench: Bench) -> None:
    _run(bench)
    collector = RunbookCollector(bench.journal.path, bench.clock, seen=_traced(bench, InMemorySpanExporter()))
    found = {f.name: {tuple(sorted(k for k in s.labels if k != "le")) for s in f.samples} for f in collector.collect()}
    known = {f.name: {tuple(sorted(f.labels))} for f in families().values() if f.name.startswith("pdops_runbook_")}
    assert found == known


def test_names_of_users_do_not_make_labels_without_end(bench: Bench) -> None:
    _run(bench)
    opened = next(e for e in bench.journal.events() if e.kind == "opened")
    tally = Tally()
    for number in range(MOST_NAMES + 50):
        body = {"plan": {**opened.body["plan"], "runbook": f"mine-{number}"}}
        tally.take(
            type(opened)(
                **{f: getattr(opened, f) for f in ("seq", "at_s", "actor", "kind", "prev", "hash")},
                run=f"r{number}",
                body=body,
            )
        )
        end = {"to": "refused", "why": ""}
        tally.take(
            type(opened)(
                **{f: getattr(opened, f) for f in ("seq", "at_s", "actor", "prev", "hash")},
                kind="state",
                run=f"r{number}",
                body=end,
            )
        )
    runbooks = {runbook for _, runbook, _ in tally.runs}
    assert (len(runbooks) <= MOST_NAMES, OTHER in runbooks) == (True, True)


def test_nobody_can_write_through_a_reader(bench: Bench) -> None:
    from pdops.errors import JournalError
    from pdops.runbook.journal import Journal

    _run(bench)
    before = bench.journal.head()
    with (
        Journal(bench.journal.path, bench.clock, read_only=True) as reader,
        pytest.raises(JournalError),
        reader.transaction() as tx,
    ):
        tx.append("froze", actor="eve", body={"scope": "*", "why": ""})
    assert bench.journal.head() == before
