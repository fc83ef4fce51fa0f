"""What a canary found, as nouns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pdops.model.frame import Probe, ProbeKind
from pdops.model.report import Bound


class Status(StrEnum):
    """Whether something is as it must be; `unknown` is never as good as `ok`."""

    OK = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class Api(StrEnum):
    """How an engine is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def path(self) -> str:
        """The path below a serving address."""
        return "/v1/completions" if self is Api.COMPLETIONS else "/v1/chat/completions"


Observed = float | Bound | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at: what was seen, what had to be, and a sentence when that needs words."""

    name: str
    status: Status
    observed: Observed = None
    expected: Observed = None
    unit: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """How long each leg took, in seconds; None for one that did not end well.

    `first_token` is from the request to decode (or router) to its first output, the pull of KV included.
    """

    prefill: float | None = None
    first_token: float | None = None
    answer: float | None = None
    reference: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One canary.

    Args:
        src: the prefill worker; for a router the one whose own continuation is compared, or None.
        dst: the decode worker; for a router the one whose counters moved, or None.
        router: the router it went through, or None when the two legs were sent by pdops.
        answered: whether any worker asked answered at all.
    """

    src: str | None
    dst: str | None
    router: str | None = None
    at_s: float
    checks: tuple[Check, ...]
    seconds: Seconds = Seconds()
    duration_s: float
    api: Api | None = None
    prompt_tokens: int | None = None
    answered: bool = True
    next: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        """Wrong when one check is, else unknown when one is or there is none, else ok."""
        found = {check.status for check in self.checks}
        if Status.WRONG in found:
            return Status.WRONG
        return Status.UNKNOWN if Status.UNKNOWN in found or not found else Status.OK

    @property
    def because(self) -> str:
        """Why it is not ok, in one line; empty when it is."""
        return "; ".join(check.why for check in self.checks if check.status is self.status and check.why) * (
            self.status is not Status.OK
        )

    @property
    def name(self) -> str:
        """`P>D`, or the id of the router."""
        return self.router or f"{self.src}>{self.dst}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryReport:
    """All canaries of one run; `at_s` is Unix seconds of its start."""

    cluster: str
    at_s: float
    model: str | None
    pairs: tuple[Result, ...] = ()
    routers: tuple[Result, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def results(self) -> tuple[Result, ...]:
        """Pairs, then routers."""
        return self.pairs + self.routers

    @property
    def status(self) -> Status:
        """The worst of all; unknown when nothing was asked."""
        found = {result.status for result in self.results}
        for status in (Status.WRONG, Status.UNKNOWN, Status.OK):
            if status in found:
                return status
        return Status.UNKNOWN

    @property
    def reachable(self) -> bool:
        """Whether anything answered."""
        return any(result.answered for result in self.results)


def to_probes(results: Iterable[Result]) -> tuple[Probe, ...]:
    """Return results as the model's probes: `value` is the whole duration in seconds, `detail` says why it is not ok."""
    judged = {Status.OK: True, Status.WRONG: False, Status.UNKNOWN: None}
    return tuple(
        Probe(
            t_s=result.at_s,
            kind=ProbeKind.CANARY,
            ok=judged[result.status],
            pair=None if result.router else f"{result.src}>{result.dst}",
            worker=result.router,
            detail=result.because or None,
            value=result.duration_s,
        )
        for result in results
    )
