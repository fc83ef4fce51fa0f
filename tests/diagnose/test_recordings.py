"""Recordings of the real pair: what pdops says at each moment, beside what really happened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pdops.diagnose.engine import diagnose
from pdops.diagnose.scan import strongest
from pdops.history.ring import WINDOW_S, Ring
from pdops.model.frame import Frame, Layout, Scrape
from pdops.model.report import Report, Verdict
from pdops.sources.recording import open_recording
from pdops.sources.truth import Truth, TruthWindow, load_truth

HERE = Path(__file__).resolve().parents[2]
FOLDER = HERE / "fixtures" / "recordings"
RECORDINGS = sorted(FOLDER.glob("*.pdrec"))
HEALTHY = FOLDER / "healthy-load.pdrec"
MAX_BYTES = 1_000_000
WHEEL_BYTES = 400_000


WRONG: dict[tuple[str, str], str] = {
    (
        "block-size-mismatch",
        "strongest",
    ): "the strongest moment is that of the restart itself, in which prefill was down",
    ("dtype-mismatch", "moments"): "the dtype is on no page, so failing transfers are laid to the restart",
    ("dtype-mismatch", "strongest"): "the dtype is on no page, so failing transfers are laid to the restart",
    ("side-channel-unreachable", "moments"): "handshakes that fail after a restart are laid to what the peer remembers",
    (
        "side-channel-unreachable",
        "strongest",
    ): "handshakes that fail after a restart are laid to what the peer remembers",
    ("version-mismatch", "moments"): "the connector's version is on no page, so it is seen late",
    ("kv-store-stopped", "moments"): "once a fault of the router is as likely to it",
    ("link-cut-below-lease", "moments"): "a cut of twelve seconds is seen late, and for one moment only",
    ("link-lossy", "moments"): "the router is accused while transfers crawl",
    ("link-lossy", "strongest"): "the router is accused while transfers crawl",
    ("overload", "moments"): "requests that wait before the engines are laid to the router, not to the load",
    ("overload", "strongest"): "requests that wait before the engines are laid to the router, not to the load",
    (
        "long-prompt-shift",
        "moments",
    ): "the ratio of the pools is named, since decode idles; that prompts became longer is not",
    (
        "long-prompt-shift",
        "strongest",
    ): "the ratio of the pools is named, since decode idles; that prompts became longer is not",
    ("link-slow", "moments"): "a minute after the link is whole again, the prefix cache is suspected without need",
}
"""Recordings that pdops misjudges today, by what is asked of them; each must leave this list once it is judged right."""


def faulty(asked: str) -> list[object]:
    """Return every recording of a fault, marked where pdops is known to be wrong about it."""
    found: list[object] = []
    for path in RECORDINGS:
        if "healthy" not in path.stem:
            why = WRONG.get((path.stem, asked))
            marks = [pytest.mark.xfail(strict=True, reason=why)] if why else []
            found.append(pytest.param(path, id=path.stem, marks=marks))
    return found


def truth_of(path: Path) -> Truth:
    return load_truth(path.with_suffix("").with_suffix(".truth.yaml"), duration_s=open_recording(path).duration_s)


def judged(path: Path, step_s: float, cut: str | None = None) -> Iterator[tuple[float, Report]]:
    """Judge a recording every few seconds from its frames so far; `cut` leaves a worker's pages out."""
    record = open_recording(path)
    ring = Ring(record.cluster, interval_s=record.interval_s)
    next_s = 0.0
    for frame in record.iter_frames():
        ring.add(without(frame, cut))
        offset = frame.at_s - record.start_s
        if offset >= next_s:
            next_s = offset + step_s
            yield offset, diagnose(ring.view())


def without(frame: Frame, worker: str | None) -> Frame:
    return replace(frame, scrapes=tuple(s for s in frame.scrapes if s.worker != worker))


def fits(report: Report, window: TruthWindow) -> bool:
    """Whether a report says what a fault or overload window says: verdict, layer, cause within the first two."""
    if report.verdict is not window.verdict or report.top is None:
        return False
    layers = {*window.layers_ok}
    return report.top.layer in layers and bool({h.cause for h in report.hypotheses[:2]} & set(window.causes))


def test_all_six_are_there() -> None:
    assert {p.stem for p in RECORDINGS} >= {
        "decode-killed-replaced",
        "decode-kv-exhaustion",
        "healthy-load",
        "prefill-abandoned",
        "prefill-killed",
        "router-drops-kv-params",
    }


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda p: p.stem)
def test_a_recording_is_whole_small_and_labelled(path: Path) -> None:
    assert path.stat().st_size <= MAX_BYTES
    record = open_recording(path)
    assert sum(1 for _ in record.iter_frames()) > 100
    assert record.warnings == ()
    assert truth_of(path).end_s >= int(record.duration_s)


@pytest.mark.parametrize("path", faulty("strongest"))
def test_the_strongest_moment_names_what_happened(path: Path) -> None:
    record = open_recording(path)
    report = strongest(record.iter_frames(), record.cluster, interval_s=record.interval_s).report
    window = truth_of(path).at(report.at_s - record.start_s)
    assert window is not None
    accused = [w for w in truth_of(path).windows if w.verdict in (Verdict.FAULT, Verdict.OVERLOAD)]
    told = [(h.cause, h.layer, h.confidence) for h in report.hypotheses]
    assert any(fits(report, w) for w in accused), (report.verdict, told)
    assert window.transition or fits(report, window), (report.at_s - record.start_s, told)


@pytest.mark.parametrize("path", faulty("moments"))
def test_every_moment_of_the_fault_names_it_and_no_healthy_moment_is_accused(path: Path) -> None:
    truth = truth_of(path)
    wrong = []
    for offset, report in judged(path, 2.0):
        window = truth.at(offset)
        if window is None or window.transition:
            continue
        if window.verdict is Verdict.HEALTHY:
            right = (
                report.verdict in (Verdict.HEALTHY, Verdict.UNKNOWN)
                if offset < WINDOW_S
                else report.verdict is Verdict.HEALTHY
            )
        else:
            right = fits(report, window)
        if not right:
            wrong.append(
                (round(offset), report.verdict.value, [(h.cause, h.confidence) for h in report.hypotheses[:2]])
            )
    assert wrong == []


def test_healthy_is_unknown_until_the_window_is_full_and_healthy_ever_after() -> None:
    told = [(offset, report.verdict) for offset, report in judged(HEALTHY, 0.0)]
    assert all(verdict is Verdict.UNKNOWN for offset, verdict in told if offset < WINDOW_S)
    assert [(o, v) for o, v in told if o > WINDOW_S + 1 and v is not Verdict.HEALTHY] == []


@pytest.mark.parametrize("worker", ["prefill-0", "decode-0"])
def test_a_worker_cut_out_makes_it_unknown_and_is_named(worker: str) -> None:
    for offset, report in judged(HEALTHY, 10.0, cut=worker):
        assert report.verdict is Verdict.UNKNOWN, offset
        assert worker in {str(m.scope) for m in report.missing}


def test_what_ships_in_the_wheel_is_what_was_recorded() -> None:
    shipped = sorted((HERE / "pdops" / "recordings").glob("*.pdrec"))
    assert [p.name for p in shipped] == ["healthy-load.pdrec", "prefill-killed.pdrec"]
    assert sum(p.stat().st_size for p in shipped) <= WHEEL_BYTES
    assert all(p.read_bytes() == (FOLDER / p.name).read_bytes() for p in shipped)


@pytest.mark.parametrize("kept", ["gauges", "no histograms"])
def test_a_worker_that_tells_only_gauges_is_not_healthy(kept: str) -> None:
    record = open_recording(HEALTHY)
    ring = Ring(record.cluster, interval_s=record.interval_s)
    for frame in record.iter_frames():
        ring.add(
            replace(frame, scrapes=tuple(thinned(s, kept) if s.worker == "prefill-0" else s for s in frame.scrapes))
        )
    report = diagnose(ring.view())
    assert report.verdict is Verdict.UNKNOWN
    assert ("ttft_seconds", "prefill-0") in {(m.signal, str(m.scope)) for m in report.missing}


def thinned(scrape: Scrape, kept: str) -> Scrape:
    """Leave histograms out of a page, and counters too where only gauges are kept."""
    if scrape.layout is None or scrape.values is None:
        return scrape
    ends = ("_bucket", "_sum", "_count") + (("_total",) if kept == "gauges" else ())
    names = [s.partition("{")[0] for s in scrape.layout.series]
    stay = [i for i, name in enumerate(names) if not name.endswith(ends)]
    layout = THIN.setdefault((scrape.layout, kept), Layout(tuple(scrape.layout.series[i] for i in stay)))
    return replace(scrape, layout=layout, values=scrape.values[stay])


THIN: dict[tuple[Layout, str], Layout] = {}
