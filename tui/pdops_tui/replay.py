"""A recording, played, paused, stepped and sought in the background."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import PurePath

from pdops.clock import Clock, WallClock
from pdops.errors import UnreachableError
from pdops.model.cluster import Cluster, Slo
from pdops_tui.moments import Moments
from pdops_tui.player import Player, Recorded
from pdops_tui.published import JOIN_S, Judge, Published
from pdops_tui.snapshot import Command, Position

SPEEDS = (0.25, 64.0)
_PUBLISH_EVERY_S = 0.1
_SEARCH_EVERY_S = 0.25
_ELSEWHERE = ("seek", "offset", "fraction")
"""A wish of these kinds makes one that is being met pointless."""
_GAP_WAIT_S = 2.0
"""A hole in a recording is waited for no longer than this; the screen says how long it was."""


class ReplayFeed(Published):
    """Play recorded frames through a Ring, judged as live ones are.

    Args:
        recorded: the recording; `Frames` makes one of frames in memory.
        judge: makes a Report of a View.
        speed: recorded seconds per second.
        start_s: begin on the last frame that is not after this moment (Unix seconds); None for the first frame.
        cluster: stands for the recording's own, for another SLO.
        label: what the header calls the recording.
        paused: stay on the first frame shown.
        diagnose_every_s: seconds between two judgements while it plays; every step and pause is judged.
        clock: where durations are read.
    """

    def __init__(
        self,
        recorded: Recorded,
        judge: Judge,
        *,
        speed: float = 1.0,
        start_s: float | None = None,
        cluster: Cluster | None = None,
        label: str = "",
        paused: bool = False,
        diagnose_every_s: float = 0.5,
        clock: Clock | None = None,
    ) -> None:
        path = getattr(recorded, "path", "")
        super().__init__(label or PurePath(path).name or "recording", judge)
        self._cluster = cluster or recorded.cluster
        self._make = partial(Player, recorded, cluster)
        self._recorded = recorded
        self._start_s = start_s
        self._clock = clock or WallClock()
        self._speed = speed
        self._paused = paused
        self._every_s = diagnose_every_s
        self._commands: deque[Command] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._moments = Moments(recorded, judge, self._clock)
        self._searched = self._moments.progress
        self._pending: tuple[Command, float, object] | None = None
        self._due_s = 0.0
        self._judged_s = self._published_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="pdops-replay-feed", daemon=True)

    def start(self) -> None:
        """Begin to play, or stand on the first frame when paused."""
        self._thread.start()

    def stop(self) -> None:
        """Stop and wait for the thread; may be called twice."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)
        self._moments.stop()

    def control(self, command: Command) -> None:
        """Play, pause, step, seek or change the speed; takes effect in the feed's own thread."""
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _run(self) -> None:
        try:
            player = self._make()
            if not player.forward():
                raise UnreachableError(
                    "nothing to play", where=self._source, why="it holds no frame", hint="record again"
                )
            if self._start_s is not None:
                player.seek(self._start_s, self._called_off)
            self._show(player, judge=True)
            self._moments.search(player.cluster)
            self._play(player)
        except Exception as error:  # noqa: BLE001  what ends this thread must reach the person, who looks at another one
            self.failed(error)
            if self._latest is not None:
                self.publish(self._latest.view, self._latest.position)

    def _play(self, player: Player) -> None:
        self._due_s = self._clock.monotonic() + self._pace(player)
        while True:
            with self._wake:
                if not self._commands and not self._stopping:
                    self._wake.wait(self._until_due(player))
                if self._stopping:
                    return
                commands = list(self._commands)
                self._commands.clear()
            if commands:
                self._moments.said, self._pending = "", None
            for command in _merged(commands):
                self._obey(player, command)
            if commands:
                self._due_s = self._clock.monotonic() + self._pace(player)
                self._show(player, judge=True)
            elif self._advance(player):
                now = self._clock.monotonic()
                judge = player.ended or now - self._judged_s >= self._every_s
                if judge or now - self._published_s >= _PUBLISH_EVERY_S:
                    self._show(player, judge=judge)
            elif self._moments.progress != self._searched:
                self._show(player, judge=False)
            if self._pending is not None and self._pending[2] != self._moments.progress:
                self._meet(player, *self._pending[:2])
                self._show(player, judge=self._pending is None)

    def _until_due(self, player: Player) -> float | None:
        if self._paused or player.ended:
            return None if self._moments.done and self._moments.progress == self._searched else _SEARCH_EVERY_S
        return max(0.0, self._due_s - self._clock.monotonic())

    def _pace(self, player: Player) -> float:
        return min(player.wait_s / self._speed, max(_GAP_WAIT_S, player.interval_s / self._speed))

    def _advance(self, player: Player) -> bool:
        if self._paused or player.ended or self._clock.monotonic() < self._due_s:
            return False
        player.forward()
        # Time that judging took is not made up for by a jump: frames are only ever shown later, never left out.
        self._due_s = max(self._due_s, self._clock.monotonic() - _PUBLISH_EVERY_S) + self._pace(player)
        return True

    def _obey(self, player: Player, command: Command) -> None:
        action = command.action
        if action == "toggle":
            action = "play" if self._paused else "pause"
        if action in ("play", "pause"):
            self._paused = action == "pause"
            if action == "play" and player.ended:
                player.go_to(1)
        elif action in ("speed", "faster", "slower"):
            wanted = {"faster": self._speed * 2.0, "slower": self._speed / 2.0}.get(action, command.value)
            self._speed = min(SPEEDS[1], max(SPEEDS[0], wanted or 1.0))
        elif action == "step":
            self._paused = True
            self._seeking(player)
            player.go_to(player.index + round(command.value), lambda: self._stopping)
        elif action == "promise":
            self._promise(player, command.slo)
        elif action == "mark":
            self._moments.mark(player.at_s or 0.0)
        else:
            self._meet(player, command, player.at_s or 0.0)

    def _meet(self, player: Player, command: Command, from_s: float) -> None:
        """Go to where a wish of that moment leads; one that the search may still meet is kept until it has."""
        if command.action in ("event", "change"):
            self._moments.ask()
        # Asked before, as the search may go on between the two.
        done, progress = self._moments.done, self._moments.progress
        moment = self._moments.wanted(command, from_s)
        self._pending = None
        if moment is not None:
            # A place is gone to in order to look at it.
            self._paused = self._paused or command.action in ("event", "change", "to_mark")
            self._seeking(player)
            player.seek(moment, self._called_off)
        elif not done and command.action in ("event", "change"):
            self._pending = (command, from_s, progress)

    def _promise(self, player: Player, slo: Slo | None) -> None:
        self._slo = slo
        player.set_cluster(self.promised(self._cluster))
        self._moments.search(player.cluster)

    def _seeking(self, player: Player) -> None:
        if self._latest is not None and self._latest.position is not None:
            self.publish(self._latest.view, replace(self._position(player), seeking=True))

    def _called_off(self) -> bool:
        return self._stopping or any(c.action in _ELSEWHERE for c in self._commands)

    def _show(self, player: Player, *, judge: bool) -> None:
        view = player.view()
        if judge:
            self.judged(view)
            self._judged_s = self._clock.monotonic()
        self.publish(view, self._position(player))
        self._published_s = self._clock.monotonic()

    def _position(self, player: Player) -> Position:
        at_s = player.at_s or 0.0
        moments = self._moments
        self._searched = moments.progress
        return Position(
            index=player.index,
            start_s=self._recorded.start_s,
            at_s=at_s,
            total=player.total,
            end_s=self._recorded.end_s,
            paused=self._paused,
            speed=self._speed,
            ended=player.ended,
            gap_s=player.gap_s,
            marks=moments.marks,
            landmarks=moments.landmarks,
            searched_to_s=moments.searched_to_s,
            said=moments.said,
        )


def _merged(commands: Iterable[Command]) -> list[Command]:
    """Return the commands with steps and skips in a row added up, so that going back twice rebuilds once."""
    out: list[Command] = []
    for command in commands:
        if command.action in ("step", "skip") and out and out[-1].action == command.action:
            out[-1] = Command(command.action, out[-1].value + command.value)
        else:
            out.append(command)
    return out
