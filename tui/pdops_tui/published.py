"""The newest state of a feed, handed over between threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from pdops.errors import PdopsError, UnreachableError
from pdops.model.cluster import Cluster, Slo
from pdops.model.report import Report
from pdops.model.view import View
from pdops_tui.heap import trim
from pdops_tui.snapshot import Position, Snapshot, Taping

Judge = Callable[[View], Report]
JOIN_S = 5.0
"""A thread that does not end in this time is left behind; it cannot keep the process alive."""
_TRIM_EVERY = 10
"""Judgements from one giving back of free memory to the next, each of which takes some 3 to 25 ms of the judging thread."""


class Published:
    """The newest snapshot, handed over between threads."""

    def __init__(self, source: str, judge: Judge) -> None:
        self._source = source
        self._judge = judge
        self._lock = threading.Lock()
        self._latest: Snapshot | None = None
        self._report: Report | None = None
        self._trouble: str | None = None
        self._slo: Slo | None = None
        self._asking = False
        self._judgements = 0
        self.failure: PdopsError | None = None

    def latest(self) -> Snapshot | None:
        """Return the newest state, or None before the first one."""
        return self._latest

    def publish(self, view: View, position: Position | None = None, taping: Taping | None = None) -> None:
        """Make a View with the newest report the newest state."""
        with self._lock:
            self._latest = Snapshot(
                seq=self._latest.seq + 1 if self._latest else 1,
                view=view,
                report=self._report,
                source=self._source,
                position=position,
                trouble=self._said(),
                asking=self._asking,
                taping=taping,
                slo=self._slo,
            )

    def promised(self, cluster: Cluster) -> Cluster:
        """Return the cluster with the promise of this session."""
        return cluster if self._slo is None else replace(cluster, slo=self._slo)

    def _said(self) -> str | None:
        return str(self.failure) if self.failure else self._trouble

    def judged(self, view: View) -> None:
        """Judge a View; the report goes out with what is published next."""
        try:
            self._report, self._trouble = self._judge(view), None
        except Exception as error:  # noqa: BLE001  a judge that fails must not take the numbers off the screen
            self._report, self._trouble = None, f"the diagnosis failed: {type(error).__name__}: {error}"
        self._judgements += 1
        if self._judgements % _TRIM_EVERY == 0:
            trim()

    def failed(self, error: BaseException) -> None:
        """Keep why the feed ended, as an error a person can act on."""
        if isinstance(error, PdopsError):
            self.failure = error
            return
        self.failure = UnreachableError(
            "the source stopped", why=f"{type(error).__name__}: {error}", hint="run the command again with --debug"
        )
