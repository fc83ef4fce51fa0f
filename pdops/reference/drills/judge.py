"""Compare what `pdops diagnose` says of a drill's recording with what is true."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pdops.diagnose.engine import diagnose
from pdops.diagnose.scan import strongest
from pdops.history.ring import WINDOW_S, Ring
from pdops.model.report import Report, Verdict
from pdops.sources.recording import open_recording
from pdops.sources.truth import Truth, TruthWindow, load_truth

STEP_S = 5.0
_TOLD = (Verdict.FAULT, Verdict.OVERLOAD)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a diagnosis said at a moment, in seconds from the start of the recording, and whether that is true."""

    at_s: float
    verdict: str
    causes: tuple[str, ...]
    right: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a diagnosis did.

    Args:
        right: the strongest verdict is the truth of its moment, so are all moments of the fault window, and none of the
            healthy ones is accused.
        strongest: what `pdops diagnose --replay` answers.
        fault: moments of the fault windows.
        healthy: moments of the healthy windows in which the judged window was full.
    """

    right: bool
    strongest: Moment
    fault: tuple[Moment, ...]
    healthy: tuple[Moment, ...]

    def document(self) -> dict[str, Any]:
        """Return it as published JSON."""
        return {
            "right": self.right,
            "strongest": asdict(self.strongest),
            "fault": [asdict(moment) for moment in self.fault],
            "healthy": [asdict(moment) for moment in self.healthy],
        }

    def lines(self) -> list[str]:
        """Return it for a person."""
        said = self.strongest
        what = ", ".join((said.verdict, *said.causes[:1]))
        lines = [
            f"diagnosis {'RIGHT' if self.right else 'WRONG'}: at {said.at_s:.0f} s it says {what}"
            f"{'' if said.right else ', which is not true then'}"
        ]
        if self.fault:
            lines.append(f"  fault window: {_share(self.fault)} right{_wrong(self.fault)}")
        lines.append(f"  healthy windows: {_share(self.healthy)} right{_wrong(self.healthy)}")
        return lines


def _share(moments: tuple[Moment, ...]) -> str:
    return f"{sum(m.right for m in moments)} of {len(moments)} moments"


def _wrong(moments: tuple[Moment, ...]) -> str:
    first = next((m for m in moments if not m.right), None)
    if first is None:
        return ""
    return f"; first wrong at {first.at_s:.0f} s: {', '.join((first.verdict, *first.causes))}"


def compare(recording: Path, truth_file: Path) -> Outcome:
    """Judge a recording every five seconds, each time from what came before only, and compare with its truth.

    Raises:
        RecordingError: the recording cannot be read.
        CaseError: the truth cannot.
    """
    record = open_recording(recording)
    truth = load_truth(truth_file, duration_s=record.duration_s)
    ring = Ring(record.cluster, interval_s=record.interval_s)
    fault, healthy = list[Moment](), list[Moment]()
    next_s = 0.0
    for frame in record.iter_frames():
        ring.add(frame)
        at_s = frame.at_s - record.start_s
        if at_s < next_s:
            continue
        next_s = at_s + STEP_S
        window = truth.at(at_s)
        if window is None or window.transition:
            continue
        if window.verdict in _TOLD:
            fault.append(_moment(at_s, diagnose(ring.view()), window))
        elif at_s > WINDOW_S + 1:
            healthy.append(_moment(at_s, diagnose(ring.view()), window))
    best = strongest(record.iter_frames(), record.cluster, interval_s=record.interval_s).report
    top = _strongest(best, record.start_s, truth)
    right = top.right and all(m.right for m in (*fault, *healthy))
    return Outcome(right, top, tuple(fault), tuple(healthy))


def _strongest(report: Report, start_s: float, truth: Truth) -> Moment:
    assert report.at_s is not None
    at_s = report.at_s - start_s
    window = truth.at(min(at_s, truth.end_s))
    if window is not None and not window.transition:
        return _moment(at_s, report, window)
    # In a transition the verdict of any of the fault windows is right.
    told = [w for w in truth.windows if w.verdict in _TOLD]
    moment = _moment(at_s, report, None)
    right = any(_fits(report, w) for w in told)
    return Moment(moment.at_s, moment.verdict, moment.causes, right)


def _moment(at_s: float, report: Report, window: TruthWindow | None) -> Moment:
    causes = tuple(dict.fromkeys(h.cause for h in report.hypotheses[:2]))
    return Moment(round(at_s, 1), report.verdict.value, causes, window is not None and _fits(report, window))


def _fits(report: Report, window: TruthWindow) -> bool:
    """Say whether a report says what is true: the verdict, the first layer, and a cause within the first two."""
    if report.verdict is not window.verdict:
        return False
    if window.verdict not in _TOLD:
        return True
    if report.top is None or report.top.layer not in window.layers_ok:
        return False
    return bool({h.cause for h in report.hypotheses[:2]} & set(window.causes))
