"""Keep what a reader of a server's data must know about it, one note per code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pdops.model.view import Note
from pdops.sources.promql.api import Answer, QueryError
from pdops.sources.promql.columns import Collector
from pdops.sources.promql.names import Query
from pdops.sources.promql.presence import Presence
from pdops.sources.promql.survey import SAID, Survey
from pdops.sources.promql.targets import SERVER, SHOWN


class Notes:
    """Notes by code; each is taken back when its reason is gone."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}

    def all(self) -> tuple[Note, ...]:
        """Return the notes that hold now, sorted by code."""
        return tuple(self._notes[code] for code in sorted(self._notes))

    def why(self, code: str) -> str | None:
        """Return what a note says, or None."""
        note = self._notes.get(code)
        return note.why if note is not None else None

    def say(self, code: str, why: str | None, fix: str = "") -> None:
        """Set a note, or take it back with None."""
        if why is None:
            self._notes.pop(code, None)
        else:
            self._notes[code] = Note(worker=SERVER, code=code, why=why, fix=fix)

    def of_survey(self, found: Survey, *, given: bool) -> None:
        """Take over what a survey found; `given` says whether there is an inventory."""
        for code in SAID:
            why, fix = found.said.get(code, (None, ""))
            self.say(code, why, fix)
        some = found.escaped[0] if found.escaped else ""
        escaped = f"{len(found.escaped)} names have ':' written as '_' (such as {some}); both spellings are read"
        fix = "dashboards and alerts that use the colon find nothing: add a relabel rule vllm_(.+) -> vllm:$1"
        self.say("names-escaped", escaped if found.escaped else None, fix)
        twice = found.placement.twice
        doubled = f"instances have more than one up series, so that sums count twice: {', '.join(twice[:SHOWN])}"
        self.say("twice", doubled if twice else None, "add the replica label to the selector, or deduplicate")
        strangers = found.placement.unplaced
        counted = [t for t in strangers if found.placement.pool(t.role_value) is not None] if given else []
        names = ", ".join(t.name for t in (counted or strangers)[:SHOWN])
        if counted:
            strange = f"{len(counted)} targets that are not in the inventory are in the sums: {names}"
            fix = "narrow the selector, or list them"
        else:
            strange = f"{len(strangers)} targets belong to no known worker: {names}"
            fix = "list them in the inventory" if given else "give them a role label, or list them in an inventory"
        self.say("unplaced", strange if strangers else None, fix)

    def of_presence(self, here: Iterable[Presence], fresh_s: float) -> None:
        """Say which workers the server itself has lost sight of."""
        stale = [f"{p.worker} ({p.age_s or 0:.0f} s old)" for p in here if p.stale]
        why = f"{len(stale)} workers have no sample of the last {fresh_s:g} s: {', '.join(stale[:SHOWN])}"
        self.say("stale", why if stale else None, "check that Prometheus still scrapes them and is not behind")

    def of_look(
        self, troubles: Sequence[tuple[Query, QueryError]], good: Iterable[Answer], collector: Collector
    ) -> None:
        """Say what is missing from, or odd about, the answers of one look."""
        lost = ", ".join(dict.fromkeys(q.about for q, _ in troubles))
        first = troubles[0][1] if troubles else None
        unanswered = f"{len(troubles)} questions got no answer ({lost[:160]}): {first.why}" if first else None
        self.say("unanswered", unanswered, first.hint if first else "")
        warnings = list(dict.fromkeys(w for a in good for w in a.warnings))
        partial = f"answers may lack a part of the cluster: {'; '.join(warnings[:2])}"
        fix = "sums are too low until the stores behind the server answer"
        self.say("partial", partial if warnings else None, fix)
        mixed = ", ".join(sorted({f"{c.signal} of {c.scope}" for c in collector.mixed})[:SHOWN])
        why = f"several engines give one signal, and only one of them is counted: {mixed}"
        self.say("mixed", why if mixed else None, "give engines of different kinds pools of their own")
        odd = ", ".join(sorted({f"{c.signal} of {c.scope}" for c in collector.differing})[:SHOWN])
        why = f"workers of a pool have different bucket edges, so quantiles are not known: {odd}"
        self.say("buckets", why if odd else None, "run one engine version per pool")
