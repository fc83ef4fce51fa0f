"""What one canary has seen so far, until it is a result."""

from __future__ import annotations

from dataclasses import dataclass, field

from pdops.clock import Clock
from pdops.probe.completion import Answer
from pdops.probe.report import Api, Check, Result, Seconds, Status
from pdops.probe.words import hints


@dataclass(slots=True)
class Draft:
    """One canary under way; `begin` is monotonic, `at_s` Unix seconds, `id` goes with every request of it."""

    begin: float
    at_s: float
    prompt: str
    id: str
    checks: list[Check] = field(default_factory=list)
    api: Api | None = None
    prompt_tokens: int | None = None
    prefill_s: float | None = None
    answer: Answer | None = None
    reference: Answer | None = None
    answered: bool = False

    def result(
        self, clock: Clock, *, src: str | None = None, dst: str | None = None, router: str | None = None
    ) -> Result:
        """Return what was found, with what to do about it."""
        answer, reference = self.answer, self.reference
        result = Result(
            src=src,
            dst=dst,
            router=router,
            at_s=self.at_s,
            checks=tuple(self.checks),
            seconds=Seconds(
                prefill=self.prefill_s,
                first_token=answer.first_token_s if answer is not None else None,
                answer=answer.duration_s if answer is not None and not answer.error else None,
                reference=reference.duration_s if reference is not None and not reference.error else None,
            ),
            duration_s=clock.monotonic() - self.begin,
            api=self.api,
            prompt_tokens=self.prompt_tokens,
            answered=self.answered,
        )
        return hints(result)


def wrong(name: str, why: str, status: int | None = None) -> Check:
    """Return a check that failed, with the HTTP status where there was one."""
    return Check(name=name, status=Status.WRONG, observed=status, why=why)


def unknown(name: str, why: str) -> Check:
    """Return a check that could not be made."""
    return Check(name=name, status=Status.UNKNOWN, why=why)
