"""The states of a run and of its steps, and which may follow which."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """How far a run is."""

    PLANNED = "planned"
    APPROVED = "approved"
    GATING = "gating"
    ACTING = "acting"
    VERIFYING = "verifying"
    OBSERVING = "observing"
    ROLLING_BACK = "rolling-back"
    HELD = "held"
    """It waits for a person: something is not known, frozen or was moved by somebody else. `resume` or `abort`."""
    DONE = "done"
    ROLLED_BACK = "rolled-back"
    FAILED = "failed"
    REFUSED = "refused"
    ABORTED = "aborted"


_R = RunState
ENDED = frozenset({_R.DONE, _R.ROLLED_BACK, _R.FAILED, _R.REFUSED, _R.ABORTED})
FOLLOWS: dict[RunState, frozenset[RunState]] = {
    _R.PLANNED: frozenset({_R.APPROVED, _R.REFUSED, _R.ABORTED}),
    _R.APPROVED: frozenset({_R.GATING, _R.REFUSED, _R.ABORTED}),
    _R.GATING: frozenset({_R.ACTING, _R.REFUSED, _R.HELD, _R.ABORTED}),
    _R.ACTING: frozenset({_R.VERIFYING, _R.OBSERVING, _R.ROLLING_BACK, _R.HELD, _R.FAILED}),
    _R.VERIFYING: frozenset({_R.ACTING, _R.OBSERVING, _R.ROLLING_BACK, _R.HELD, _R.FAILED}),
    _R.OBSERVING: frozenset({_R.DONE, _R.ROLLING_BACK, _R.HELD, _R.FAILED}),
    _R.ROLLING_BACK: frozenset({_R.ROLLED_BACK, _R.FAILED, _R.HELD}),
    _R.HELD: frozenset({_R.GATING, _R.ACTING, _R.ROLLING_BACK, _R.FAILED, _R.ABORTED}),
    **{ended: frozenset() for ended in ENDED},
}


class StepState(StrEnum):
    """How far a step, or the undoing of one, is."""

    INTENT = "intent"
    """Written down before the effect: if nothing follows, whether it happened is for a look to say."""
    APPLIED = "applied"
    VERIFIED = "verified"
    FAILED = "failed"


_S = StepState
STEP_FOLLOWS: dict[StepState | None, frozenset[StepState]] = {
    None: frozenset({_S.INTENT, _S.APPLIED, _S.VERIFIED}),
    _S.INTENT: frozenset({_S.INTENT, _S.APPLIED, _S.FAILED}),
    _S.APPLIED: frozenset({_S.INTENT, _S.VERIFIED, _S.FAILED}),
    _S.VERIFIED: frozenset(),
    _S.FAILED: frozenset({_S.INTENT, _S.APPLIED}),
}
"""A failed step may be tried again; one found to be so already is applied without an intent, and one that is not needed
verified at once. One that only looks is done again after a stop, as what it saw was not kept."""
