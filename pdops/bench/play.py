"""Play one episode: simulate it, see whether clients noticed, ask everyone, and judge what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pdops.bench import targets
from pdops.bench.baselines import matrix, thresholds
from pdops.bench.baselines.ranking import alone, baro, n_sigma, with_onset
from pdops.bench.baselines.scoring import farthest_place, meanings
from pdops.bench.clients import felt, hottest
from pdops.bench.episodes import Episode
from pdops.bench.features import moves, vector
from pdops.bench.impact import WINDOW_S, broken, noticed, stuttered
from pdops.bench.outcome import Expected, Outcome, Said, State
from pdops.bench.scenario import INTERVAL_S, WARMUP_S, Scenario, build
from pdops.bench.scores import PDOPS
from pdops.bench.table import table
from pdops.bench.thin import Thinner
from pdops.catalog.load import catalog
from pdops.clock import WallClock
from pdops.diagnose.context import Context
from pdops.diagnose.engine import diagnose
from pdops.history.ring import Ring
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.report import Report, Scope, Verdict
from pdops.model.view import View
from pdops.sim.run import Simulation

ASK_AFTER_S = 60.0
"""The answers that are scored are given this long after clients noticed: one judged window of the fault."""
ASK_LEAST_S = 15.0
"""Of a fault that is over by then they are given when it ends, though not sooner than this after clients noticed."""
FOLLOW_S = 150.0
"""A right answer later than this after the impact counts as none."""
LEAST_FAULT_S = 30.0
"""Least time between impact and the end of an episode for it to count."""
FIRST_JUDGED_S = 90.0
"""Before this the judged window is not full."""
HEALTHY_EVERY_S = 15.0
CALM_S = 60.0
"""An alarm is a new one when there was none for this long."""
_LASTS = ("duration_s", "restart_after_s")
"""Parameters that say how long a fault is there."""
_HANG_S = 35.0
_MANY_WORKERS = 100
_WIDER = 3
_CLOCK = WallClock()

Judge = Callable[[View], Report]


@dataclass(frozen=True, slots=True)
class Played:
    """What a simulation left behind: frames with the cluster as it was at each.

    `start_s` is in Unix seconds, `impact_s` counts from there, and so do `broken`, the moments at which the promise was
    broken for clients.
    """

    cluster: Cluster
    frames: tuple[tuple[Frame, Cluster], ...]
    start_s: float
    impact_s: float | None
    hottest: str | None
    broken: tuple[float, ...] = ()


def play(episode: Episode, judge: Judge = diagnose, *, watched: bool = True) -> Outcome:
    """Play and judge one episode; not `watched`, only the answers that are scored are asked for, in a tenth of the time."""
    began = _CLOCK.monotonic()
    scenario = build(episode)
    played = simulate(episode, scenario)
    expected = _expected(episode, scenario, played.hottest)
    state = state_of(episode, played)
    asked_s = asked(episode, played, state)
    watch = _Watch(episode, played, expected, judge)
    watch.run(asked_s, state, watched=watched)
    return Outcome(
        name=episode.name,
        number=episode.number,
        split=episode.split,
        kinds=tuple(k.id for k in episode.faults) or (episode.sound.id if episode.sound else "quiet",),
        severity=episode.severity,
        workload=episode.workload,
        topology=episode.topology,
        unseen=episode.unseen,
        missing_ratio=episode.missing_ratio,
        state=state,
        expected=expected,
        impact_s=played.impact_s,
        asked_s=asked_s,
        said=watch.said,
        right={m: watch.is_right(s) for m, s in watch.said.items()} if state == "fault" else {},
        delay_s=watch.delay_s,
        healthy_s=watch.healthy_s,
        alarms=len(watch.false),
        broken_s=watch.broken_s,
        excused=watch.excused,
        false_causes=tuple(watch.false),
        diagnose_s=watch.took_s,
        workers=len(played.cluster.workers),
        play_s=_CLOCK.monotonic() - began,
        features=watch.features,
        places=watch.places,
        place_right={c: watch.is_place(p) for c, p in watch.places.items()} if state == "fault" else {},
    )


def simulate(episode: Episode, scenario: Scenario) -> Played:
    """Run the simulator to the end of an episode."""
    simulation = Simulation(scenario.spec)
    thinned = Thinner(simulation.cluster, episode.missing_ratio, episode.name)
    frames: list[tuple[Frame, Cluster]] = []
    start_s: float | None = None
    steps = round(episode.until_s / INTERVAL_S)
    for step in range(steps + 1):
        simulation.advance(WARMUP_S + step * INTERVAL_S)
        frame = thinned(simulation.frame())
        start_s = frame.at_s if start_s is None else start_s
        frames.append((frame, simulation.cluster))
    # Requests that hang are known only when they end.
    simulation.advance(WARMUP_S + episode.until_s + _HANG_S)
    requests, slo = tuple(felt(simulation.records, WARMUP_S)), scenario.spec.slo
    gaps = {second - round(WARMUP_S): counts for second, counts in simulation.gaps.items()}
    impact_s = noticed(requests, slo, since_s=episode.at_s, until_s=episode.until_s, interval_s=INTERVAL_S)
    if episode.faults and episode.faults[0].moves == "telemetry":
        impact_s = episode.at_s
    return Played(
        cluster=frames[0][1],
        frames=tuple(frames),
        start_s=start_s or 0.0,
        impact_s=impact_s,
        hottest=hottest(simulation.records, WARMUP_S + episode.at_s),
        broken=tuple(
            sorted(
                {
                    *broken(requests, slo, until_s=episode.until_s, interval_s=INTERVAL_S),
                    *stuttered(gaps, slo, until_s=episode.until_s, interval_s=INTERVAL_S),
                }
            )
        ),
    )


def state_of(episode: Episode, played: Played) -> State:
    """Say whether clients noticed the fault of an episode, and early enough to ask about it."""
    if not episode.faults:
        return "healthy" if played.impact_s is None else "not-healthy"
    late = played.impact_s is None or played.impact_s > episode.until_s - LEAST_FAULT_S
    ended_s = _ended(episode)
    # What begins longer after its end than clients' troubles are counted over is not its doing.
    apart = ended_s is not None and played.impact_s is not None and played.impact_s > ended_s + WINDOW_S
    return "sub-threshold" if late or apart else "fault"


def _ended(episode: Episode) -> float | None:
    """Return when all faults of an episode are over, in seconds from the first frame, or None where one stays."""
    ends = []
    for number, kind in enumerate(episode.faults):
        began_s = episode.at_s + (episode.second_after_s if number else 0.0)
        for place, template in enumerate(kind.faults):
            params = {**template.params, **(kind.severities[episode.severity] if place == 0 else {})}
            lasts = next((v for name in _LASTS if isinstance(v := params.get(name), float | int)), None)
            if lasts is None:
                return None
            ends.append(began_s + lasts)
    return max(ends, default=None)


def asked(episode: Episode, played: Played, state: State) -> float:
    """Return when the answers that are scored are given, in seconds from the first frame."""
    if state == "fault" and played.impact_s is not None:
        ended_s = _ended(episode)
        soon_s = played.impact_s + ASK_LEAST_S
        last_s = episode.until_s if ended_s is None else min(max(ended_s, soon_s), episode.until_s)
        return _tick(min(played.impact_s + ASK_AFTER_S, last_s))
    return _tick(min(episode.at_s + 2 * ASK_AFTER_S, episode.until_s))


def _expected(episode: Episode, scenario: Scenario, hot: str | None) -> tuple[Expected, ...]:
    return tuple(
        Expected(
            kind=kind.id,
            causes=kind.truth.causes,
            layers_ok=tuple(layer.value for layer in kind.truth.layers_ok),
            scopes=targets.scopes(kind.truth.scopes, chosen, hot, scenario.names),
            verdicts=tuple(v.value for v in kind.truth.verdicts),
        )
        for kind, chosen in zip(episode.faults, scenario.chosen, strict=True)
    )


class _Watch:
    """Goes through the frames once and judges where it matters."""

    def __init__(self, episode: Episode, played: Played, expected: Sequence[Expected], judge: Judge) -> None:
        self._episode, self._played, self._expected, self._judge = episode, played, expected, judge
        self._step_s = INTERVAL_S * (_WIDER if len(played.cluster.workers) > _MANY_WORKERS else 1)
        self.said: Mapping[str, Said] = {}
        self.features: tuple[float, ...] = ()
        self.places: Mapping[str, tuple[Scope, ...]] = {}
        self.false: list[str] = []
        self.healthy_s = self.broken_s = 0.0
        self.excused = 0
        self._watched = True
        self.delay_s: float | None = None
        self.took_s: float | None = None
        self._last_alarm_s = self._sound_s = float("-inf")

    def run(self, asked_s: float, state: State, *, watched: bool = True) -> None:
        """Judge at every planned instant, or at the one whose answers are scored."""
        self._watched = watched
        ring = Ring(self._played.cluster, interval_s=INTERVAL_S)
        plan = _Plan(self._instants(asked_s, state) if watched else iter((asked_s,)))
        for frame, cluster in self._played.frames:
            ring.cluster = cluster
            ring.add(frame)
            at_s = frame.at_s - self._played.start_s
            if not plan.due(at_s):
                continue
            if (self.delay_s is not None or not watched) and at_s > asked_s + INTERVAL_S / 2:
                break
            self._at(at_s, ring.view(), state, is_asked=abs(at_s - asked_s) < INTERVAL_S / 2)

    def is_right(self, said: Said) -> bool:
        """Whether the place of a first answer is one of the right ones."""
        if not said.alarm or said.abstained or not said.scopes:
            return False
        return self.is_place(said.scopes[0])

    def is_place(self, named: Sequence[Scope]) -> bool:
        """Whether these scopes are right for any fault that was there."""
        return any(targets.same_place(named, e.scopes, self._played.cluster) for e in self._expected)

    def _instants(self, asked_s: float, state: State) -> Iterator[float]:
        yield asked_s
        sound_until_s = self._episode.at_s if self._episode.faults else self._episode.until_s
        if state != "not-healthy":
            yield from _span(FIRST_JUDGED_S, sound_until_s, HEALTHY_EVERY_S)
        if state == "fault" and self._played.impact_s is not None:
            yield from _span(
                _tick(self._episode.at_s),
                min(self._played.impact_s + FOLLOW_S, self._episode.until_s),
                self._step_s,
            )

    def _at(self, at_s: float, view: View, state: State, *, is_asked: bool) -> None:
        began = _CLOCK.monotonic()
        report = self._judge(view)
        took_s = _CLOCK.monotonic() - began
        said = heard(report)
        sound = at_s < self._episode.at_s or not self._episode.faults
        if is_asked:
            self.took_s = took_s
            self._ask(view, said, state)
        if not self._watched:
            return
        if sound:
            if state != "not-healthy":
                self._watch_sound(at_s, said, view.now.span_s)
        elif state == "fault":
            self._watch_fault(at_s, said)

    def _watch_sound(self, at_s: float, said: Said, judged_s: float) -> None:
        # The instant at which everybody is asked may lie between two others; its time must not count twice.
        passed_s = min(HEALTHY_EVERY_S, at_s - self._sound_s)
        self._sound_s = at_s
        was_broken = any(at_s - judged_s < t <= at_s for t in self._played.broken)
        if was_broken:
            self.broken_s += passed_s
        else:
            self.healthy_s += passed_s
        if said.alarm and not said.abstained:
            if at_s - self._last_alarm_s > CALM_S:
                if was_broken:
                    self.excused += 1
                else:
                    self.false.append(said.causes[0] if said.causes else said.verdict)
            self._last_alarm_s = at_s

    def _watch_fault(self, at_s: float, said: Said) -> None:
        impact_s = self._played.impact_s or 0.0
        stands = said.alarm and not said.abstained and said.causes
        if self.delay_s is None and stands and any(said.causes[0] in e.causes for e in self._expected):
            self.delay_s = max(0.0, at_s - impact_s)

    def _ask(self, view: View, said: Said, state: State) -> None:
        cluster = view.cluster
        metrics = table(view)
        ctx = Context(view)
        moved = moves(metrics, view)
        self.features = vector(moved, view)
        self.places = {c: farthest_place(moved, (c,), cluster) for c in catalog().causes if _speaks(c)}
        answers = {
            PDOPS: said,
            "matrix": matrix.said(ctx),
            "thresholds": thresholds.said(ctx),
            "n-sigma": alone(metrics, cluster, n_sigma),
            "baro": alone(metrics, cluster, baro),
        }
        if state == "fault":
            # Told when it began, these cannot be asked about a cluster in which nothing began.
            began_s = self._played.start_s + self._episode.at_s
            answers["n-sigma, told onset"] = with_onset(metrics, cluster, n_sigma, began_s)
            answers["baro, told onset"] = with_onset(metrics, cluster, baro, began_s)
        self.said = answers


def heard(report: Report) -> Said:
    """Return a report in the form all methods answer in."""
    if report.verdict is Verdict.HEALTHY:
        return Said(alarm=False, verdict=report.verdict.value)
    found = report.hypotheses
    if not found:
        return Said(alarm=True, abstained=True, verdict=report.verdict.value)
    return Said(
        alarm=True,
        abstained=report.verdict is Verdict.UNKNOWN,
        verdict=report.verdict.value,
        causes=tuple(h.cause for h in found),
        confidences=tuple(h.confidence for h in found),
        faults=tuple(h.fault for h in found),
        layer=found[0].layer.value,
        scopes=tuple(h.scopes for h in found),
    )


class _Plan:
    """Instants, each due once at the first frame that is not before it."""

    def __init__(self, instants: Iterator[float]) -> None:
        self._left = sorted(set(instants), reverse=True)

    def due(self, at_s: float) -> bool:
        """Whether an instant has come; all that have are then done."""
        hit = False
        while self._left and self._left[-1] <= at_s + 1e-6:
            self._left.pop()
            hit = True
        return hit


def _speaks(cause: str) -> bool:
    return any(cause in (m.up, m.down) for m in meanings().values())


def _span(start_s: float, end_s: float, step_s: float) -> Iterator[float]:
    at_s = start_s
    while at_s < end_s - 1e-6:
        yield at_s
        at_s += step_s


def _tick(at_s: float) -> float:
    return round(at_s / INTERVAL_S) * INTERVAL_S
