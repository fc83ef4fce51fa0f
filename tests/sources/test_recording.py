"""Recordings: frames come back as they were, and a cut, damaged or hostile file never breaks its reader."""

from __future__ import annotations

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdops.errors import RecordingError
from pdops.model.cluster import Cluster, Endpoint, Role, Secret, Slo, Worker
from pdops.model.frame import Event, EventKind, Frame, Layout, LogLine, Probe, ProbeKind, Scrape
from pdops.model.times import LAST_S
from pdops.sources.recording import RecordingWriter, open_recording
from pdops.sources.recording.members import hops, pack

T0 = 1_764_420_250.5
CLUSTER = Cluster(
    name="prod",
    workers=(
        Worker(
            id="decode-0",
            role=Role.DECODE,
            pool="decode",
            url="http://user:hunter2@10.0.0.1:8000",
            endpoints=(Endpoint("http://user:hunter2@10.0.0.1:8000/metrics", "vllm"),),
            engine="vllm",
            node="n1",
            logs=({"file": "/var/log/hunter2"},),
            secret=Secret(bearer_token_file="/etc/hunter2"),
        ),
    ),
    slo=Slo(ttft_s=1.0),
    link_bytes_per_s=4.5e10,
)
LAYOUT = Layout(('a_total{engine="0"}', "b", 'b{x="1"}', "c"))
FAST = Layout(("a_total", "b"))


def scrape(at_s: float, values: Iterable[float], layout: Layout = LAYOUT, worker: str = "decode-0") -> Scrape:
    row = np.array(list(values), dtype=np.float64)
    return Scrape(worker=worker, engine="vllm", at_s=at_s, layout=layout, values=row, endpoint="http://h/metrics")


def frames(count: int, start_s: float = T0) -> list[Frame]:
    return [Frame(at_s=start_s + n, scrapes=(scrape(start_s + n, (n, n / 3, 7, math.nan)),)) for n in range(count)]


def record(path: Path, what: Iterable[Frame], **options: float) -> Path:
    with RecordingWriter(path, CLUSTER, **options) as writer:
        for frame in what:
            writer.write(frame)
    return path


def plain(frame: Frame) -> object:
    """A frame as something that compares by value, bit for bit."""
    scrapes = [
        (
            replace(s, layout=None, values=None),
            None if s.layout is None else s.layout.series,
            None if s.values is None else np.where(np.isnan(s.values), np.nan, s.values).tobytes(),
        )
        for s in frame.scrapes
    ]
    return frame.at_s, scrapes, frame.events, frame.logs, frame.probes, {w: dict(f) for w, f in frame.facts.items()}


def same(got: Iterable[Frame], wanted: Iterable[Frame]) -> bool:
    return [plain(f) for f in got] == [plain(f) for f in wanted]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def rewrite(path: Path, change: Callable[[list[dict[str, object]]], object]) -> Path:
    """Rewrite a recording as one ordinary gzip member after a change to its records."""
    records = lines(path)
    change(records)
    path.write_bytes(gzip.compress(b"".join(json.dumps(r).encode() + b"\n" for r in records)))
    return path


times = st.floats(0, 2e9) | st.integers(0, 2_000_000_000).map(float)
texts = st.text(max_size=20) | st.sampled_from(["\x00\n\r", "\ud800", '"}{', "</script>", "\x1b[31m", "\u2028"])
numbers = st.floats() | st.integers(-5, 5).map(float) | st.sampled_from([-0.0, 2.0**53, -(2.0**53) - 2, 1e308, 5e-324])
layouts = st.lists(texts, max_size=6).map(lambda names: Layout(tuple(names)))


@st.composite
def any_scrape(draw: st.DrawFn, pool: list[Layout]) -> Scrape:
    layout = draw(st.sampled_from([*pool, None]))
    values = None
    if layout is not None and draw(st.integers(0, 4)):
        values = np.array([draw(numbers) for _ in layout.series], dtype=np.float64)
    return Scrape(
        worker=draw(texts),
        engine=draw(st.sampled_from(["vllm", "x"])),
        at_s=draw(times),
        layout=layout,
        values=values,
        full=draw(st.booleans()),
        duration_s=draw(st.floats(0, 100)),
        size_bytes=draw(st.integers(0, 1 << 40)),
        error=draw(st.none() | texts),
        endpoint=draw(texts),
    )


@st.composite
def any_frames(draw: st.DrawFn) -> list[Frame]:
    pool = draw(st.lists(layouts, min_size=1, max_size=3))
    event = st.builds(
        Event,
        t_s=times,
        kind=st.sampled_from(EventKind),
        worker=st.none() | texts,
        pool=st.none() | texts,
        detail=st.none() | texts,
        revision=st.none() | texts,
    )
    probe = st.builds(
        Probe,
        t_s=times,
        kind=st.sampled_from(ProbeKind),
        ok=st.none() | st.booleans(),
        pair=st.none() | texts,
        worker=st.none() | texts,
        detail=st.none() | texts,
        value=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    )
    log = st.builds(LogLine, t_s=times, worker=texts, line=texts)
    out = []
    for at_s in sorted(draw(st.lists(times, min_size=1, max_size=6))):
        out.append(
            Frame(
                at_s=at_s,
                scrapes=tuple(draw(st.lists(any_scrape(pool), max_size=4))),
                events=tuple(draw(st.lists(event, max_size=2))),
                logs=tuple(draw(st.lists(log, max_size=2))),
                probes=tuple(draw(st.lists(probe, max_size=2))),
                facts=draw(st.dictionaries(texts, st.dictionaries(texts, texts, max_size=2), max_size=2)),
            )
        )
    return out


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(any_frames())
def test_frames_come_back_bit_for_bit(tmp_path: Path, wanted: list[Frame]) -> None:
    path = tmp_path / "a.pdrec"
    with RecordingWriter(path, CLUSTER, overwrite=True) as writer:
        for frame in wanted:
            writer.write(frame)
    recording = open_recording(path)
    assert same(recording.iter_frames(), wanted)
    assert recording.warnings == ()
    assert recording.duration_s == wanted[-1].at_s - wanted[0].at_s


def test_the_header_has_the_inventory_without_secrets(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(1), interval_s=2.0)
    recording = open_recording(path)
    worker = recording.cluster.workers[0]
    assert (recording.cluster.name, recording.cluster.slo, recording.interval_s) == ("prod", CLUSTER.slo, 2.0)
    assert (worker.url, worker.node, worker.secret, worker.logs) == ("http://10.0.0.1:8000", "n1", Secret(), ())
    assert worker.endpoints == (Endpoint("http://10.0.0.1:8000/metrics", "vllm"),)
    assert recording.start_s == T0
    assert b"hunter2" not in gzip.decompress(path.read_bytes())


def test_any_gzip_tool_reads_it(tmp_path: Path) -> None:
    kinds = [r["kind"] for r in lines(record(tmp_path / "a.pdrec", frames(12)))]
    assert kinds == ["header", "series", "page", *["frame"] * 10, "header", "series", "page", "frame", "frame"]


def test_same_series_are_the_same_layout_in_the_whole_file(tmp_path: Path) -> None:
    again = Layout(LAYOUT.series)
    what = [*frames(12), Frame(at_s=T0 + 12, scrapes=(scrape(T0 + 12, (1, 2, 3, 4), again, "decode-1"),))]
    found = {s.layout for f in open_recording(record(tmp_path / "a.pdrec", what)).iter_frames() for s in f.scrapes}
    assert len(found) == 1


def test_each_page_of_a_worker_is_told_against_itself(tmp_path: Path) -> None:
    what = [
        Frame(
            at_s=T0 + n,
            scrapes=(
                scrape(T0 + n, (n, 2, 3, 4) if n % 3 == 0 else (n, n), LAYOUT if n % 3 == 0 else FAST),
                scrape(T0 + n, (5, 6), FAST, "prefill-0"),
            ),
        )
        for n in range(9)
    ]
    path = record(tmp_path / "a.pdrec", what)
    assert same(open_recording(path).iter_frames(), what)
    coded = [s[-1] for r in lines(path) if r["kind"] == "frame" for s in r["scrapes"]]  # type: ignore[attr-defined]
    assert coded[1] == [0, 5, 0, 6]
    assert coded[3] == []


def test_every_member_stands_alone(tmp_path: Path) -> None:
    facts = {"decode-0": {"block_size": "16"}}
    what = frames(35)
    what[0] = replace(what[0], facts=facts)
    path = record(tmp_path / "a.pdrec", what)
    raw = path.read_bytes()
    with path.open("rb") as file:
        found = hops(file)
    assert [hop.start_s - T0 for hop in found] == [0, 10, 20, 30]
    assert sum(hop.length for hop in found) == len(raw)
    for number, hop in enumerate(found):
        path.write_bytes(raw[hop.offset : hop.offset + hop.length])
        alone = list(open_recording(path).iter_frames())
        part = what[number * 10 : number * 10 + 10]
        assert same([replace(f, facts={}) for f in alone], [replace(f, facts={}) for f in part])
        assert alone[0].facts == facts


def test_a_recording_without_frames(tmp_path: Path) -> None:
    recording = open_recording(record(tmp_path / "a.pdrec", []))
    assert (list(recording.iter_frames()), recording.start_s, recording.duration_s) == ([], 0.0, 0.0)


def test_a_file_cut_at_any_byte_reads_up_to_the_cut(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(25))
    raw = path.read_bytes()
    with path.open("rb") as file:
        ends = [hop.offset + hop.length for hop in hops(file)]
    for cut in range(len(raw)):
        path.write_bytes(raw[:cut])
        try:
            recording = open_recording(path)
        except RecordingError:
            assert cut < ends[0]
            continue
        got = list(recording.iter_frames())
        assert same(got, frames(25)[: len(got)])
        assert len(got) >= 10 * sum(end <= cut for end in ends)
        assert bool(recording.warnings) is (cut not in ends)
        assert recording.duration_s == (got[-1].at_s - T0 if got else 0.0)
        assert recording.end_s == recording.start_s + recording.duration_s


def test_a_damaged_part_is_left_out_and_the_rest_is_read(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(35))
    raw = bytearray(path.read_bytes())
    with path.open("rb") as file:
        second = hops(file)[1]
    for at in range(second.offset + 36, second.offset + second.length, 7):
        damaged = bytearray(raw)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        recording = open_recording(path)
        assert same(recording.iter_frames(), frames(35)[:10] + frames(35)[20:])
        assert recording.warnings == (f"the part at byte {second.offset} is damaged and was left out",)


def test_a_lost_first_part_loses_no_more(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(25))
    raw = bytearray(path.read_bytes())
    raw[60:70] = bytes(10)
    path.write_bytes(raw)
    assert same(open_recording(path).iter_frames(), frames(25)[10:])


def test_what_follows_the_recording_is_told(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(2))
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"hello")
    recording = open_recording(path)
    assert len(list(recording.iter_frames())) == 2
    assert recording.warnings == (f"what follows byte {size} is not a recording and was left out",)


def test_a_recording_packed_again_still_reads(tmp_path: Path) -> None:
    path = rewrite(record(tmp_path / "a.pdrec", frames(25)), lambda records: None)
    recording = open_recording(path)
    assert same(recording.iter_frames(), frames(25))
    assert recording.duration_s == 24


def test_unknown_kinds_are_left_out_with_one_warning_each(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(3))
    rewrite(path, lambda records: records.extend({"kind": "trace"} for _ in range(5)))
    recording = open_recording(path)
    assert same(recording.iter_frames(), frames(3))
    assert recording.warnings == ("records of kind 'trace' are not known and were left out",)


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "frame"},
        {"kind": "frame", "t": "now", "scrapes": []},
        {"kind": "frame", "t": T0, "scrapes": [[9, 1, 1, 1, 1, None, []]]},
        {"kind": "frame", "t": T0, "scrapes": [[0, T0, 0, 0, 1, None, [4, 1]]]},
        {"kind": "frame", "t": T0, "scrapes": [[0, T0, 0, 0, 1, None, [-1, 1]]]},
        {"kind": "frame", "t": T0, "scrapes": [[0, T0, 0, 0, 1, None, [0, "x"]]]},
        {"kind": "frame", "t": T0, "scrapes": [[0, T0, 0, 0, 1, None, [0]]]},
        {"kind": "frame", "t": T0, "scrapes": [[0, T0, 0, 0, 1, None, [0, 10**400]]]},
        {"kind": "frame", "t": T0, "scrapes": [], "events": [{"t_s": 1, "kind": "party"}]},
        {"kind": "frame", "t": T0, "scrapes": [], "events": [{"t_s": 1, "kind": "down", "by": 1}]},
        {"kind": "frame", "t": T0, "scrapes": [], "facts": {"a": 1}},
        {"kind": "page", "id": 1},
        {"kind": "series", "id": 1, "names": [5, "x"]},
        {"kind": "series", "id": 1, "names": [0, "x" * 100_000, *[100_000, ""] * 700]},
        {"kind": "facts", "facts": 5},
        {"kind": ["frame"]},
        [],
    ],
)
def test_after_a_bad_record_nothing_is_believed_until_the_next_member(tmp_path: Path, bad: object) -> None:
    path = record(tmp_path / "a.pdrec", frames(15))
    rewrite(path, lambda records: records.insert(5, bad))  # type: ignore[arg-type]
    recording = open_recording(path)
    assert same(recording.iter_frames(), frames(15)[:2] + frames(15)[10:])
    assert recording.warnings == ("records that cannot be read were left out, up to the next part of the file",)


def test_a_clock_that_was_set_back_loses_no_frame_and_time_never_goes_back(tmp_path: Path) -> None:
    event = Event(t_s=T0 - 300.0, kind=EventKind.RESTART, worker="decode-0")
    back = [replace(f, events=(event,)) if f.at_s == T0 - 300.0 else f for f in frames(40, T0 - 300.0)]
    path = record(tmp_path / "a.pdrec", [*frames(25), *back])
    recording = open_recording(path)
    assert recording.end_s - T0 == pytest.approx(64)
    found = list(recording.iter_frames())
    assert [round(f.at_s - T0, 6) for f in found] == list(range(65))
    assert [round(f.scrapes[0].at_s - T0, 6) for f in found] == list(range(65))
    assert [round(e.t_s - T0, 6) for f in found for e in f.events] == [25]
    (warning,) = recording.warnings
    assert warning.startswith("the recorder's clock was set back by 324 s at 2025-")


@pytest.mark.parametrize("back_s", [2.0, 7.0])
def test_a_small_step_back_ends_no_recording_too_early_once_it_is_read(tmp_path: Path, back_s: float) -> None:
    path = record(tmp_path / "a.pdrec", [*frames(16), *frames(20, T0 + 16.0 - back_s)])
    recording = open_recording(path)
    assert recording.start_s <= recording.end_s
    found = list(recording.iter_frames())
    assert [round(f.at_s - T0, 6) for f in found] == list(range(36))
    assert recording.end_s == found[-1].at_s


def test_one_frame_that_lies_in_the_past_moves_nobody_but_itself(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", [*frames(3), *frames(1, T0 - 50.0), *frames(3, T0 + 4.0)])
    recording = open_recording(path)
    assert [round(f.at_s - T0, 6) for f in recording.iter_frames()] == [0, 1, 2, 3, 4, 5, 6]


def test_a_clock_set_back_from_the_end_of_the_calendar_stays_in_it(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", [*frames(2, LAST_S - 1.0), *frames(2), *frames(2)])
    recording = open_recording(path)
    assert [f.at_s for f in recording.iter_frames()] == [LAST_S - 1.0, *[LAST_S] * 5]
    assert len(recording.warnings) == 1


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"schema: pdops/case/v1\n", "it is not gzip"),
        (b"\x1f\x8b\x08", "it is cut off or damaged before its header ends"),
        (gzip.compress(b"", mtime=0), "it is cut off or damaged before its header ends"),
        (gzip.compress(b"hello\n", mtime=0), "it does not begin with a header"),
        (gzip.compress(b"[" * 100_000, mtime=0), "it does not begin with a header"),
        (gzip.compress(b'{"kind":"header","schema":"x/y"}\n', mtime=0), "its schema is 'x/y', expected pdops/rec/v1"),
        (
            gzip.compress(b'{"kind":"header","schema":"pdops/rec/v2"}\n', mtime=0),
            "its schema is pdops/rec/v2, this release reads pdops/rec/v1",
        ),
        (
            gzip.compress(b'{"kind":"header","schema":"pdops/rec/v1.7"}\n', mtime=0),
            "its header is damaged at cluster: field required",
        ),
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.pdrec"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        open_recording(path)
    assert str(caught.value) == f"recording cannot be read: {path}: {why}"
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_header_with_two_workers_of_one_id_is_refused(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(2))
    header, *rest = lines(path)
    workers = header["cluster"]["workers"]  # type: ignore[index]
    workers.append(workers[0])
    path.write_bytes(gzip.compress("".join(json.dumps(x) + "\n" for x in (header, *rest)).encode(), mtime=0))
    with pytest.raises(RecordingError, match=f"its header gives worker id '{workers[0]['id']}' twice") as caught:
        open_recording(path)
    assert "its own id" in caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no such file or directory"):
        open_recording(tmp_path / "a.pdrec")
    with pytest.raises(RecordingError, match="is a directory"):
        open_recording(tmp_path)


@pytest.mark.parametrize("line", [b"0", b"0\n"])
def test_a_bomb_is_refused(tmp_path: Path, line: bytes) -> None:
    path = record(tmp_path / "a.pdrec", frames(2))
    squeeze = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(squeeze.compress(line * (1 << 20)) for _ in range(80)) + squeeze.flush()
    path.write_bytes(path.read_bytes() + bomb)
    recording = open_recording(path)
    with pytest.raises(RecordingError, match="expand to more than 64 MiB"):
        list(recording.iter_frames())


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(2))
    path.write_bytes(path.read_bytes() + pack(b"0" * (17 << 20), T0))
    with pytest.raises(RecordingError, match="a line is longer than 16 MiB"):
        list(open_recording(path).iter_frames())


def test_an_existing_file_is_not_written_over(tmp_path: Path) -> None:
    path = record(tmp_path / "a.pdrec", frames(2))
    with pytest.raises(RecordingError, match="the file exists"):
        RecordingWriter(path, CLUSTER)
    with pytest.raises(RecordingError, match="no such file or directory"):
        RecordingWriter(tmp_path / "no" / "a.pdrec", CLUSTER)


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    writer = RecordingWriter("/dev/full", CLUSTER, overwrite=True)
    writer.write(frames(1)[0])
    with pytest.raises(RecordingError, match="no space left on device"):
        writer.close()


def test_a_frame_that_does_not_fit_leaves_the_recording_sound(tmp_path: Path) -> None:
    what = frames(6)
    bad = Frame(at_s=T0 + 2.5, scrapes=(scrape(T0 + 2.5, (9, 9, 9, 9)), scrape(T0, (1,))))
    with RecordingWriter(tmp_path / "a.pdrec", CLUSTER) as writer:
        for frame in what[:3]:
            writer.write(frame)
        with pytest.raises(ValueError, match="one value per series"):
            writer.write(bad)
        for frame in what[3:]:
            writer.write(frame)
    assert same(open_recording(tmp_path / "a.pdrec").iter_frames(), what)


def test_a_killed_recorder_leaves_what_it_flushed(tmp_path: Path) -> None:
    script = """
        import sys
        import numpy as np
        from pdops.model.cluster import Cluster
        from pdops.model.frame import Frame, Layout, Scrape
        from pdops.sources.recording import RecordingWriter

        layout = Layout(("a_total", "b"))
        writer = RecordingWriter(sys.argv[1], Cluster(name="c", workers=()))
        for n in range(10_000_000):
            values = np.array([n, n / 7])
            writer.write(Frame(at_s=float(n), scrapes=(Scrape(worker="w", engine="vllm", at_s=float(n), layout=layout, values=values),)))
            if n == 500:
                print("ready", flush=True)
    """
    path = tmp_path / "a.pdrec"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(path)], stdout=subprocess.PIPE, env=env
    ) as recorder:
        assert recorder.stdout is not None
        try:
            assert recorder.stdout.readline() == b"ready\n"
        finally:
            recorder.send_signal(signal.SIGKILL)
    got = list(open_recording(path).iter_frames())
    assert len(got) >= 500
    for n, frame in enumerate(got):
        values = frame.scrapes[0].values
        assert values is not None
        assert (frame.at_s, values.tolist()) == (n, [n, n / 7])


def test_five_minutes_of_a_busy_pair_stay_small(tmp_path: Path) -> None:
    """Two engine pages and a router page, every second, with every counter and many buckets moving all the time."""
    rng = np.random.default_rng(7)
    pages = []
    for worker, families in (("prefill-0", 10), ("decode-0", 10), ("router-0", 3)):
        names = [
            f'vllm:family_{worker}_{n}_bucket{{engine="0",le="{0.001 * 2**edge:g}",model_name="m"}}'
            for n in range(families)
            for edge in range(16)
        ]
        names += [
            f'vllm:family_{n}_{part}{{engine="0",model_name="m"}}' for n in range(families) for part in ("sum", "count")
        ]
        names += [f'vllm:counter_{n}_total{{engine="0",model_name="m"}}' for n in range(7 * families)]
        pages.append((worker, Layout(tuple(names)), np.zeros(len(names)), families))
    what = []
    for n in range(300):
        scrapes = []
        for worker, layout, values, families in pages:
            buckets = families * 16
            values[:buckets] += rng.integers(0, 2, buckets) * rng.integers(0, 4, buckets)
            values[buckets : buckets + 2 * families : 2] += rng.random(families)
            values[buckets + 1 : buckets + 2 * families : 2] += 3
            values[buckets + 2 * families :: 3] += rng.integers(0, 200, len(values[buckets + 2 * families :: 3]))
            scrapes.append(replace(scrape(T0 + n, values, layout, worker), duration_s=float(rng.random()) / 100))
        what.append(Frame(at_s=T0 + n, scrapes=tuple(scrapes)))
    path = record(tmp_path / "a.pdrec", what)
    assert path.stat().st_size < 400_000
    assert same(open_recording(path).iter_frames(), what)


def test_a_file_that_is_being_recorded_is_not_taken_by_another_recorder(tmp_path: Path) -> None:
    path = tmp_path / "a.pdrec"
    with RecordingWriter(path, CLUSTER) as first:
        first.write(frames(1)[0])
        with pytest.raises(RecordingError, match="another recorder is writing it") as caught:
            RecordingWriter(path, CLUSTER, overwrite=True)
        assert "another name" in caught.value.hint
        first.write(frames(2)[1])
    assert len(list(open_recording(path).iter_frames())) == 2
    record(path, frames(1), overwrite=True)
    assert len(list(open_recording(path).iter_frames())) == 1, "once it is closed it may be replaced, and nothing stays"


def test_what_an_address_gives_away_is_not_recorded(tmp_path: Path) -> None:
    url = "http://h:1/metrics?token=hunter2&x=1"
    worker = Worker(id="decode-0", role=Role.DECODE, pool="decode", url=url, endpoints=(Endpoint(url),))
    path = tmp_path / "a.pdrec"
    failed = Scrape(worker="decode-0", engine="vllm", at_s=T0, error=f"no answer from {url}", endpoint=url)
    with RecordingWriter(path, Cluster(name="c", workers=(worker,))) as writer:
        writer.write(Frame(at_s=T0, scrapes=(replace(scrape(T0, (1, 2, 3, 4)), endpoint=url), failed)))
    assert b"hunter2" not in gzip.decompress(path.read_bytes())
    (frame,) = open_recording(path).iter_frames()
    assert [s.endpoint for s in frame.scrapes] == ["http://h:1/metrics?token=[redacted]&x=1"] * 2


def test_what_of_a_page_could_not_be_read_is_recorded(tmp_path: Path) -> None:
    odd = replace(scrape(T0, (1, 2, 3, 4)), malformed=2, stamp_s=T0 - 70.25)
    plain_one = scrape(T0, (1, 2, 3, 4), worker="decode-1")
    path = record(tmp_path / "a.pdrec", [Frame(at_s=T0, scrapes=(plain_one, odd))])
    (frame,) = open_recording(path).iter_frames()
    assert [(s.malformed, s.stamp_s) for s in frame.scrapes] == [(0, None), (2, T0 - 70.25)]


@pytest.mark.parametrize("odd", [[[0]], [["x", 1, None]], [[0, 1, "x"]], 5, [[0, None, None]]])
def test_a_recording_with_damaged_counts_is_damaged(tmp_path: Path, odd: object) -> None:
    path = record(tmp_path / "a.pdrec", frames(1))
    lines = gzip.decompress(path.read_bytes()).splitlines()
    lines[-1] = json.dumps({**json.loads(lines[-1]), "odd": odd}).encode()
    path.write_bytes(pack(b"\n".join(lines) + b"\n", T0))
    recording = open_recording(path)
    assert list(recording.iter_frames()) == []
    assert recording.warnings
    assert [n.why for n in recording.notes] == list(recording.warnings)
