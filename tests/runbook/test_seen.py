"""Who follows the journal: nothing lost, no flood, and no run in its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from pdops.actuate.notify import LIMIT, Annotations, Lines, Note, Webhook, schema, slack_body, webhook_body
from pdops.clock import VirtualClock
from pdops.errors import TellingError, UnreachableError, UsageError
from pdops.runbook import notes
from pdops.runbook.journal import Event, Journal
from pdops.runbook.seen import BURST, LATE_S, TRIES, Seen
from pdops.runbook.sinks import Notified
from tests.runbook.engine_kit import CORDON, RESTART, Bench
from tests.runbook.receiver_double import ReceiverDouble, receiving


class SinkDouble:
    """Remembers the groups it is told, and fails as often as it is told to."""

    def __init__(self, key: str | None = "double", wants=notes.telling) -> None:
        self.name, self.key, self.wants = "double", key, wants
        self.groups: list[list[Event]] = []
        self.fails: list[bool] = []

    def tell(self, events, journal: Journal) -> None:
        if self.fails:
            raise TellingError("no", where=self.name, why="told to fail", final=self.fails.pop(0))
        self.groups.append(list(events))

    @property
    def told(self) -> list[Event]:
        return [event for group in self.groups for event in group]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.journal.close()


@pytest.fixture
def receiver() -> Iterator[ReceiverDouble]:
    with receiving() as double:
        yield double


def _run(bench: Bench, runbook: str = "scale-out-prefill", steps=CORDON, **more) -> str:
    x = bench.executor()
    plan = bench.plan(steps, runbook, cooldown_s=0.0, budget_per_hour=100, **more)
    return x.drive(x.open(plan).id).id


def _follow(bench: Bench, *sinks, say=lambda _: None) -> Seen:
    return Seen(bench.journal.path, sinks, bench.clock, say)


def _names(events: list[Event]) -> list[str]:
    return [str(e.body["to"]) if e.kind == "state" else e.kind for e in events]


def test_a_run_is_told_in_order_and_once(bench: Bench) -> None:
    sink = SinkDouble()
    seen = _follow(bench, sink)
    _run(bench)
    assert seen.pump() == 4
    assert seen.pump() == 0
    assert _names(sink.told) == ["opened", "approved", "started", "done"]


def test_one_that_is_new_begins_with_what_happens_from_then_on(bench: Bench) -> None:
    _run(bench)
    sink = SinkDouble()
    assert _follow(bench, sink).pump() == 0


def test_a_process_that_comes_later_goes_on_where_the_last_one_stopped(bench: Bench) -> None:
    first, second = SinkDouble(), SinkDouble()
    _follow(bench, first)
    run = _run(bench)
    _follow(bench, second).pump()
    assert (first.told, {e.run for e in second.told}) == ([], {run})


def test_a_crash_between_telling_and_writing_down_repeats_one_and_loses_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = SinkDouble()
    seen = _follow(bench, sink)
    _run(bench)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(seen._places, "put", crash)
    with pytest.raises(KeyboardInterrupt):
        seen.pump()
    _follow(bench, sink).pump()
    assert _names(sink.told) == ["opened", "opened", "approved", "started", "done"]


def test_more_than_anybody_reads_is_told_as_one_with_the_newest_of_each_run(bench: Bench) -> None:
    sink = SinkDouble()
    seen = _follow(bench, sink)
    for number in range(BURST):
        bench.backend.move("worker/decode-0/cordoned", False)
        _run(bench, f"r{number}")
    seen.pump()
    assert [len(g) for g in sink.groups[1:]] == [1] * BURST
    runs = {e.run for e in sink.groups[0]}
    assert len(runs) > notes.MOST_LINES
    told = notes.summary([(e, bench.journal.run(e.run)) for e in sink.groups[0]])
    assert (told.event, told.text.count("[c] ")) == ("summary", notes.MOST_LINES)
    assert f"and {len(runs) - notes.MOST_LINES} more" in told.text


def test_what_is_late_is_told_as_one(bench: Bench) -> None:
    sink = SinkDouble()
    seen = _follow(bench, sink)
    _run(bench)
    bench.clock.advance(LATE_S + 60)
    seen.pump()
    assert [len(g) for g in sink.groups] == [4]


def test_a_sink_that_fails_is_said_once_waited_for_and_told_later(bench: Bench) -> None:
    sink, said = SinkDouble(), []
    sink.fails = [False, False]
    seen = _follow(bench, sink, say=said.append)
    _run(bench)
    assert (seen.pump(), seen.pump(), len(sink.fails)) == (0, 0, 1)
    bench.clock.advance(1.0)
    seen.pump()
    bench.clock.advance(2.0)
    assert seen.pump() == 4
    assert [s.rpartition(" ")[2] for s in said] == ["on", "again"]
    assert (seen.standings[0].failed, seen.standings[0].why) == (2, "")


def test_one_that_is_refused_for_good_is_left_out_and_said(bench: Bench) -> None:
    sink, said = SinkDouble(), []
    sink.fails = [True] * TRIES
    seen = _follow(bench, sink, say=said.append)
    _run(bench)
    for _ in range(TRIES):
        seen.pump()
        bench.clock.advance(60.0)
    assert _names(sink.told) == ["approved", "started", "done"]
    assert (seen.standings[0].left_out, any("left out" in s for s in said)) == (1, True)


def test_an_outage_leaves_nothing_out(bench: Bench) -> None:
    sink = SinkDouble()
    sink.fails = [False] * 50
    seen = _follow(bench, sink)
    _run(bench)
    for _ in range(51):
        seen.pump(last=True)
    assert (_names(sink.told), seen.standings[0].left_out) == (["opened", "approved", "started", "done"], 0)


def test_of_two_processes_one_tells(bench: Bench) -> None:
    one, two = SinkDouble(), SinkDouble()
    first, second = _follow(bench, one), _follow(bench, two)
    _run(bench)
    with first._places.alone("double"):
        assert second.pump() == 0
    assert (second.pump(), first.pump()) == (4, 0)


def test_one_that_began_while_another_process_told_loses_nothing(bench: Bench) -> None:
    one, two = SinkDouble("other"), SinkDouble()
    first = _follow(bench, one)
    with first._places.alone("double"):
        second = _follow(bench, two)
        _run(bench)
    assert (second.pump(), len(two.told)) == (4, 4)


def test_a_defect_in_one_sink_is_said_and_silences_no_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sound, said = SinkDouble("broken"), SinkDouble(), []
    seen = _follow(bench, broken, sound, say=said.append)
    monkeypatch.setattr(broken, "tell", lambda *_: {}["no such key"])
    _run(bench)
    assert (seen.pump(), len(sound.told), "KeyError" in said[0]) == (4, 4, True)


def test_another_journal_in_its_place_is_said_and_not_told_from_its_beginning(bench: Bench, tmp_path: Path) -> None:
    sink, said = SinkDouble(), []
    _run(bench)
    seen = _follow(bench, sink, say=said.append)
    bench.journal.close()
    for file in tmp_path.glob("journal.db*"):
        if file.is_file():
            file.unlink()
    bench.backend.move("worker/decode-0/cordoned", False)
    bench.again()
    bench.clock.advance(9.0)
    _run(bench, "other")
    assert (seen.pump(), len(said)) == (0, 1)
    assert "not the one" in said[0]


def test_a_journal_that_cannot_be_read_is_said_and_stops_nobody(tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "journal.db"
    file.write_text("this is no journal, but text that somebody put there")
    seen = Seen(file, [SinkDouble()], VirtualClock(), said.append)
    assert (seen.pump(), seen.pump(), len(said)) == (0, 0, 1)


def test_holds_and_freezes_say_what_to_do_next(bench: Bench) -> None:
    lines: list[str] = []
    seen = _follow(bench, Notified(Lines(lines.append)))
    x = bench.executor("eve")
    x.switch.on("eve", "maintenance", "c")
    run = _run(bench)
    seen.pump()
    assert "automation of c was frozen by eve: maintenance" in lines[0]
    assert f"next: pdops runbook resume {run}" in lines[-1]
    assert [line.split()[1] for line in lines] == ["warning", "info", "info", "warning"]


def test_what_somebody_noted_to_be_said_is_told(bench: Bench) -> None:
    lines: list[str] = []
    seen = _follow(bench, Notified(Lines(lines.append)))
    with bench.journal.transaction() as tx:
        tx.append("noted", actor="respond", body={"say": "no Watchdog for 300 s"})
        tx.append("noted", actor="respond", body={"diagnosis": {}})
    assert (seen.pump(), "no Watchdog" in lines[0]) == (1, True)


@pytest.mark.parametrize("slack", [False, True])
def test_a_webhook_gets_what_is_published(bench: Bench, receiver: ReceiverDouble, tmp_path: Path, slack: bool) -> None:
    file = tmp_path / "url"
    file.write_text(receiver.url + "/services/T0/SECRET\n")
    seen = _follow(bench, Notified(Webhook(file, slack=slack)))
    run = _run(bench)
    assert seen.pump() == 4
    assert receiver.paths == ["/services/T0/SECRET"] * 4
    if slack:
        assert [set(m) for m in receiver.got] == [{"text"}] * 4
        assert f"{run}: done" in receiver.got[-1]["text"]
    else:
        last = receiver.got[-1]
        for message in receiver.got:
            jsonschema.validate(message, schema())
        assert (last["schema"], last["run"], last["event"]) == ("pdops/notification/v1", run, "done")
        assert len({m["id"] for m in receiver.got}) == 4


def _note(text: str) -> Note:
    return Note(id="i", at_s=0.0, level="error", event="failed", cluster="c", runbook="r", run="r-1", text=text)


def test_no_secret_of_an_address_is_ever_said(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("http://127.0.0.1:9/services/T0/SECRET")
    hook = Webhook(file, slack=True)
    with pytest.raises(TellingError) as caught:
        hook.send(_note("x"))
    everything = " ".join(
        [hook.name, str(hook.key), str(caught.value), caught.value.hint, repr(caught.value.__cause__)]
    )
    assert "SECRET" not in everything
    assert not caught.value.final


@pytest.mark.parametrize(("status", "final"), [(400, True), (404, True), (429, False), (500, False), (302, False)])
def test_answers_that_sending_again_cannot_mend_are_final(
    receiver: ReceiverDouble, tmp_path: Path, status: int, final: bool
) -> None:
    file = tmp_path / "url"
    file.write_text(receiver.url)
    receiver.statuses, receiver.location = [status], receiver.url + "/elsewhere"
    with pytest.raises(TellingError) as caught:
        Webhook(file).send(_note("x"))
    assert (caught.value.final, receiver.paths) == (final, ["/"])


@pytest.mark.parametrize(
    "text", ["", "ftp://h/x", "http://hooks.example/x", "https://h/a b", "https://h:99999999/", "\x00"]
)
def test_an_address_that_a_message_may_not_go_to_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "url"
    file.write_text(text)
    with pytest.raises(UsageError):
        Webhook(file)


def test_messages_are_short_without_credentials_and_without_markup() -> None:
    long = _note("Authorization: Bearer abcdefgh12345678 <!channel> " + "x" * 9000)
    text = slack_body(long)["text"]
    assert ("abcdefgh12345678" in text, "<!channel>" in text, "&lt;!channel&gt;" in text) == (False, False, True)
    assert len(webhook_body(long)["text"]) == LIMIT


class AnnotatorDouble:
    """Remembers annotations, or refuses them."""

    def __init__(self) -> None:
        self.got: list[tuple[str, list[str], int]] = []
        self.refuses = False

    def annotate(self, text: str, tags: list[str], at_ms: int) -> None:
        if self.refuses:
            raise UnreachableError("Grafana did not write an annotation", why="403", hint="-")
        self.got.append((text, tags, at_ms))


def test_beginning_and_end_are_marked_in_grafana_at_their_own_time(bench: Bench) -> None:
    grafana = AnnotatorDouble()
    seen = _follow(bench, Notified(Annotations(lambda: grafana, "https://grafana.example"), notes.marking))
    begun_s = bench.clock.now()
    _run(bench, steps=RESTART)
    bench.clock.advance(100.0)
    grafana.refuses = True
    assert (seen.pump(), "403" in seen.standings[0].why) == (0, True)
    grafana.refuses = False
    bench.clock.advance(100.0)
    assert seen.pump() == 2
    assert grafana.got[0][1] == ["pdops", "cluster:c", "runbook:scale-out-prefill"]
    assert grafana.got[0][2] == int(begun_s * 1000)
    assert grafana.got[1][2] > grafana.got[0][2]
