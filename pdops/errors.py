"""One exception tree. Every error says what failed, where, why, and what to do next.

`PdopsError` is never raised itself; a subclass fixes the exit code::

    PdopsError
    ├── UsageError        2   command line or configuration cannot be used
    │   ├── InventoryError    the inventory file
    │   ├── CaseError         a case file
    │   ├── CatalogError      the shipped or extended catalog
    │   ├── SimError          what is to be simulated
    │   └── RunbookError      a runbook, a plan file, or an action of another package
    ├── RecordingError    2   a recording that cannot be read at all
    ├── RefusedError      6   a guard, the freeze, a stale plan or a missing approval forbids it
    │   └── FencedError       somebody else has taken the run over
    ├── UnreachableError  3   no source of data answered
    ├── DeploymentError   3   a reference deployment cannot be built, started, found or driven
    ├── JournalError      2   the journal of runbook runs cannot be read or written
    ├── TellingError      3   a notification, trace or annotation of a run could not be sent
    └── ActionError       5   an action on the cluster could not be done
"""

from __future__ import annotations

from typing import ClassVar


class PdopsError(Exception):
    """Carry the four parts of a message a person can act on.

    Args:
        what: what failed, lower case, no trailing dot.
        where: file with line, URL or worker.
        why: the reason as far as it is known.
        hint: the next action.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return ": ".join(part for part in (self.what, self.where, self.why) if part)


class UsageError(PdopsError):
    """The command line or a configuration file cannot be used."""


class InventoryError(UsageError):
    """The inventory file is not valid."""


class CaseError(UsageError):
    """A case file is not valid."""


class CatalogError(UsageError):
    """A catalog file is not valid."""


class SimError(UsageError):
    """What is to be simulated is not valid."""


class RunbookError(UsageError):
    """A runbook, a plan file, or an action of another package is not valid."""


class RefusedError(PdopsError):
    """A guard, the freeze or a stale plan forbids it, or it waits for approval."""

    exit_code = 6


class RecordingError(PdopsError):
    """A recording cannot be read, not even in part."""


class UnreachableError(PdopsError):
    """No source of data answered."""

    exit_code = 3


class DeploymentError(PdopsError):
    """A reference deployment cannot be built, started, found or driven."""

    exit_code = 3


class BusyError(DeploymentError):
    """Another command is changing the deployment; nothing was done."""


class JournalError(PdopsError):
    """The journal of runbook runs cannot be read or written; nothing is changed without it."""


class ActionError(PdopsError):
    """An action on the cluster could not be done; whether it changed anything is for the next look to say."""

    exit_code = 5


class TellingError(PdopsError):
    """A notification, trace or annotation could not be sent; no run depends on it.

    Args:
        final: sending the same again would be refused again.
    """

    exit_code = 3

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "", final: bool = False) -> None:
        super().__init__(what, where=where, why=why, hint=hint)
        self.final = final


class FencedError(RefusedError):
    """Somebody else has taken the run over since; nothing was done."""
